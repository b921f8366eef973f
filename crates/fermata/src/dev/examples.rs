//! The bundled examples: the same files as in `examples/`, part of the program.

use super::publish::publish;
use crate::cli;
use fermata_core::Status;
use fermata_runtime::{Accepted, Engine, EngineError, Request};
use std::time::Duration;

/// A document and the trigger of its sample run.
struct Example {
    /// Below `examples/`.
    file: &'static str,
    document: &'static str,
    /// `None` if its run would wait for a person or a worker.
    trigger: Option<&'static str>,
}

macro_rules! example {
    ($file:literal) => {
        example!($file, "{}")
    };
    ($file:literal, $trigger:literal) => {
        Example {
            trigger: Some($trigger),
            ..example!($file, waits)
        }
    };
    ($file:literal, waits) => {
        Example {
            file: $file,
            document: include_str!(concat!("../../../../examples/", $file)),
            trigger: None,
        }
    };
}

const EXAMPLES: &[Example] = &[
    example!("dataworkflows/child-workflow.json"),
    example!("dataworkflows/expense-approval.yaml", waits),
    example!("dataworkflows/fanout-fanin.json"),
    example!("dataworkflows/flow-control.yaml", r#"{ "customer": "ada" }"#),
    example!("dataworkflows/http-fallback.json"),
    example!("dataworkflows/onboard-project.json"),
    example!("dataworkflows/parent-workflow.json"),
    example!("dataworkflows/price-item.json"),
    example!("dataworkflows/price-order.yaml"),
    example!("dataworkflows/reminder.yaml"),
    example!("dataworkflows/retry-demo.json"),
    example!("dataworkflows/status-report.json"),
    example!("jsondagapi/greet-guest.yaml", r#"{ "item": "ada" }"#),
    example!("jsondagapi/invite-guests.yaml"),
    example!("jsondagapi/refund-approval.yaml", waits),
    example!("jsondagapi/score-routing.yaml", r#"{ "score": 0.9 }"#),
    example!("jsondagapi/user-onboarding.json", waits),
    example!(
        "runlater/api-example.json",
        r#"{ "order_id": 123, "email": "alice@example.com", "token": "sk_live_xxx" }"#
    ),
    example!(
        "runlater/checkout-flow.json",
        r#"{ "order_id": 123, "amount": 42, "payment": "paid" }"#
    ),
    example!("runlater/flaky-service.yaml"),
    example!(
        "runlater/order-processing.json",
        r#"{ "order_id": 123, "amount": 42, "charge_status": 200 }"#
    ),
    example!("runlater/trial-expiry.yaml", r#"{ "user_id": 7 }"#),
    example!("triggers/daily-summary.yaml"),
    example!("triggers/heartbeat.yaml"),
    example!("triggers/incoming.yaml", r#"{ "amount": 120 }"#),
    example!("triggers/order-paid.yaml", r#"{ "orderId": 17 }"#),
];

/// Longer than any of the sample runs takes.
const LONGEST: Duration = Duration::from_secs(60);

/// A run of an example that was started.
pub struct Sample {
    pub workflow: String,
    run: Option<Accepted>,
}

/// Publishes the examples and starts one run of each version that needs no answer, unless an earlier start did. Examples that were archived or
/// disabled stay so.
pub async fn offer(engine: &Engine) -> anyhow::Result<Vec<Sample>> {
    let mut samples = Vec::new();
    for example in EXAMPLES {
        match example.offer(engine).await {
            Ok(sample) => samples.push(sample),
            Err(EngineError::Refused(why)) => cli::say(format_args!("{} is not run: {why}", example.file)),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(samples)
}

impl Example {
    async fn offer(&self, engine: &Engine) -> Result<Sample, EngineError> {
        let published = publish(engine, self.document.as_bytes(), self.file).await?;
        let workflow = published.workflow.id;
        let Some(trigger) = self.trigger else {
            return Ok(Sample { workflow, run: None });
        };
        let request = Request {
            workflow_id: workflow.clone(),
            request_id: Some(format!("dev-sample-{workflow}-{}", published.version)),
            trigger: serde_json::from_str(trigger).unwrap_or_default(),
            ..Request::default()
        };
        let run = Some(engine.start(request).await?);
        Ok(Sample { workflow, run })
    }
}

/// Prints how many of the new sample runs succeeded, once all have ended.
pub async fn summarise(engine: Engine, samples: Vec<Sample>) {
    let run = |sample: Sample| Some((sample.run.filter(|run| run.created)?.run, sample.workflow));
    let fresh: Vec<_> = samples.into_iter().filter_map(run).collect();
    if fresh.is_empty() {
        return;
    }
    let mut succeeded = 0;
    for (run, workflow) in &fresh {
        match engine.wait(*run, LONGEST).await {
            Ok(Some(ended)) if ended.status == Status::Succeeded => succeeded += 1,
            Ok(Some(ended)) => cli::say(format_args!("the sample run of {workflow} {}", ended.status)),
            // The server stops, or the database cannot be read; both are reported elsewhere.
            Ok(None) | Err(_) => return,
        }
    }
    cli::say(format_args!("{succeeded} of {} sample runs succeeded", fresh.len()));
}

#[cfg(test)]
mod tests {
    use super::EXAMPLES;
    use serde_json::Value;

    #[test]
    fn every_example_is_bundled() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
        let mut files = Vec::new();
        for path in crate::validate::in_folder(&folder).unwrap() {
            let file = path.strip_prefix(&folder).unwrap();
            if file.starts_with("dry-run") {
                continue; // its services do not exist, and it has files with mocks
            }
            files.push(file.to_str().unwrap().to_owned());
        }
        let bundled: Vec<&str> = EXAMPLES.iter().map(|example| example.file).collect();
        assert_eq!(bundled, files);
        for trigger in EXAMPLES.iter().filter_map(|example| example.trigger) {
            assert!(serde_json::from_str::<Value>(trigger).unwrap().is_object());
        }
    }
}
