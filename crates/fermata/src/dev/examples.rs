//! The bundled examples: the same files as in `examples/dataworkflows`, part of the program.

use super::publish::publish;
use crate::cli;
use fermata_core::Status;
use fermata_runtime::{Accepted, Engine, Request};
use std::time::Duration;

macro_rules! example {
    ($name:literal) => {
        (
            $name,
            include_str!(concat!("../../../../examples/dataworkflows/", $name)),
        )
    };
}

/// File names and documents.
const EXAMPLES: &[(&str, &str)] = &[
    example!("fanout-fanin.json"),
    example!("http-fallback.json"),
    example!("onboard-project.json"),
    example!("reminder.yaml"),
    example!("retry-demo.json"),
    example!("status-report.json"),
];

/// Longer than any of the sample runs takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A run of an example that was started.
pub struct Sample {
    pub workflow: String,
    run: Accepted,
}

/// Publishes the examples and starts one run of each version. What was done by an earlier start is not done again.
pub async fn offer(engine: &Engine) -> anyhow::Result<Vec<Sample>> {
    let mut samples = Vec::new();
    for (name, document) in EXAMPLES {
        let published = publish(engine, document.as_bytes(), name).await?;
        let request = Request {
            workflow_id: published.workflow.id.clone(),
            request_id: Some(format!("dev-sample-{}-{}", published.workflow.id, published.version)),
            trigger: serde_json::Value::Object(serde_json::Map::new()),
            ..Request::default()
        };
        let run = engine.start(request).await?;
        samples.push(Sample {
            workflow: published.workflow.id,
            run,
        });
    }
    Ok(samples)
}

/// Tells how the runs that are new ended, once they have.
pub async fn tell(engine: Engine, samples: Vec<Sample>) {
    let fresh: Vec<Sample> = samples.into_iter().filter(|sample| sample.run.created).collect();
    if fresh.is_empty() {
        return;
    }
    let mut succeeded = 0;
    for sample in &fresh {
        match engine.wait(sample.run.run, PATIENCE).await {
            Ok(Some(ended)) if ended.status == Status::Succeeded => succeeded += 1,
            Ok(Some(ended)) => cli::say(format_args!("the sample run of {} {}", sample.workflow, ended.status)),
            // It stops, or the database is gone; both are told elsewhere.
            Ok(None) | Err(_) => return,
        }
    }
    cli::say(format_args!("{succeeded} of {} sample runs succeeded", fresh.len()));
}

#[cfg(test)]
mod tests {
    use super::EXAMPLES;

    #[test]
    fn every_example_is_bundled() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/dataworkflows");
        let files = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        let mut files: Vec<String> = files.map(|name| name.into_string().unwrap()).collect();
        files.retain(|name| !name.ends_with(".md"));
        files.sort();
        let bundled: Vec<&str> = EXAMPLES.iter().map(|(name, _)| *name).collect();
        assert_eq!(bundled, files);
    }
}
