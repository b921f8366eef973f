//! What `fermata dev` prints once it is ready: where everything is, and lines to copy into a shell.

use super::DevArgs;
use crate::playground::HOST;
use fermata_runtime::{Engine, EngineError, triggers::TriggerList};
use serde_json::Value;
use std::fmt;

/// The address that clients use without `--server`.
const USUAL: &str = "http://127.0.0.1:7070";

/// How many triggers are shown.
const MOST_TRIGGERS: u32 = 10;

/// The printed guide.
pub struct Guide {
    url: String,
    place: String,
    /// The program as it was called, so that the lines work where it is not installed.
    program: String,
    /// The call that starts this server from an empty database.
    again: String,
    pub serving: String,
    pub workflows: Vec<String>,
    /// What starts workflows by itself.
    triggers: Vec<String>,
    tries: Vec<String>,
}

impl Guide {
    pub fn new(url: &str, place: String, args: &DevArgs) -> Guide {
        let program = quoted(&std::env::args().next().unwrap_or_else(|| "fermata".to_owned()));
        let mut again = format!("{program} dev");
        if let Some(dir) = &args.dir {
            again.push_str(&format!(" {}", quoted(&dir.display().to_string())));
        }
        for (flag, value) in [("--listen", &args.listen), ("--database", &args.database)] {
            if let Some(value) = value {
                again.push_str(&format!(" {flag} {}", quoted(value)));
            }
        }
        Guide {
            url: url.to_owned(),
            place,
            program,
            again: format!("{again} --reset"),
            serving: String::new(),
            workflows: Vec::new(),
            triggers: Vec::new(),
            tries: Vec::new(),
        }
    }

    /// Adds lines that run a workflow: with this program, on the server and without it, and with curl.
    pub fn execute(&mut self, id: &str, trigger: &Value) {
        let (program, server) = (&self.program, self.server());
        let inputs: String = trigger
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, value)| format!(" --input {}", quoted(&format!("{key}={value}"))))
            .collect();
        let name = quoted(id);
        let url = quoted(&format!("{}?wait=30s", self.address(id, "execute")));
        let body = quoted(&format!("{{\"trigger\": {trigger}}}"));
        self.tries.extend([
            format!("{program} workflows start {name}{inputs} --wait{server}"),
            format!("{program} executions list{server}"),
            format!("{program} workflows get {name} --definition{server} | {program} run -{inputs}"),
            format!("curl -sX POST {url} -H 'content-type: application/json' -d {body}"),
        ]);
    }

    /// Adds a line that starts a run as Runlater's specification does.
    pub fn trigger(&mut self, id: &str, trigger: &Value) {
        let (url, body) = (quoted(&self.address(id, "trigger")), quoted(&trigger.to_string()));
        self.tries.push(format!(
            "curl -sX POST {url} -H 'content-type: application/json' -d {body}"
        ));
    }

    /// Adds the enabled triggers, and a line that sends a request to the first webhook that needs no signature.
    pub async fn triggers(&mut self, engine: &Engine) -> Result<(), EngineError> {
        let list = TriggerList {
            enabled: Some(true),
            limit: MOST_TRIGGERS,
            ..TriggerList::default()
        };
        let settings = engine.settings();
        let base = settings.triggers.webhook_base_path.trim_matches('/');
        let base = format!("{}/{base}", settings.public_url.trim_end_matches('/'));
        let mut has_try = false;
        for trigger in engine.triggers().list(list).await?.items {
            let workflow = &trigger.workflow_id;
            if let Some(segment) = trigger.segment {
                let url = format!("{base}/{segment}");
                let config: Value = serde_json::from_str(&trigger.config).unwrap_or_default();
                if !has_try && config.get("signature").is_none_or(Value::is_null) {
                    has_try = true;
                    let body = quoted(r#"{"amount": 120}"#);
                    let line = format!("curl -sX POST {url} -H 'content-type: application/json' -d {body}");
                    self.tries.push(line);
                }
                self.triggers.push(format!("{url} starts {workflow}"));
            } else if trigger.next_fire_at.is_some() {
                // The stored time is only when the scheduler looks at it next.
                let config = serde_json::from_str(&trigger.config).unwrap_or_default();
                let next = engine.triggers().preview(trigger.kind, &config, 1)?;
                let Some(next) = next.first() else { continue }; // it never fires again
                let next = jiff::Timestamp::from_millisecond(next.millis()).unwrap_or_default();
                self.triggers
                    .push(format!("a schedule starts {workflow}, next at {next}"));
            } else if let Some(event) = trigger.event_type {
                self.triggers.push(format!("the event {event} starts {workflow}"));
            }
        }
        Ok(())
    }

    /// What commands need to reach this server.
    fn server(&self) -> String {
        match self.url.as_str() {
            USUAL => String::new(),
            url => format!(" --server {url}"),
        }
    }

    fn address(&self, id: &str, step: &str) -> String {
        let mut escaped = String::new();
        for byte in id.bytes() {
            match byte {
                byte if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) => escaped.push(byte.into()),
                byte => escaped.push_str(&format!("%{byte:02X}")),
            }
        }
        format!("{}/api/v1/workflows/{escaped}/{step}", self.url)
    }
}

impl fmt::Display for Guide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let workflows = match self.workflows.is_empty() {
            true => "none yet: documents that are added are published at once".to_owned(),
            false => self.workflows.join(", "),
        };
        let (url, place, serving) = (&self.url, &self.place, &self.serving);
        write!(
            f,
            "
  dashboard  {url}/
  API        {url}/api/v1
  data       {place}
  serving    {serving}
  workflows  {workflows}
  to call    http://{HOST}/ (in documents only)
"
        )?;
        for line in &self.triggers {
            writeln!(f, "  trigger    {line}")?;
        }
        if !self.tries.is_empty() {
            writeln!(f, "\nTry:")?;
        }
        for line in &self.tries {
            writeln!(f, "  {line}")?;
        }
        write!(
            f,
            "\nCtrl-C stops the server; nothing is lost. `{}` starts from an empty database.\n",
            self.again
        )
    }
}

/// A word for a POSIX shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lines_survive_odd_names_and_values() {
        let args = DevArgs {
            dir: Some("my flows".into()),
            listen: None,
            database: None,
            reset: false,
        };
        let mut guide = Guide::new("http://127.0.0.1:4000", "x.db".to_owned(), &args);
        guide.program = "fermata".to_owned();
        guide.execute("it's/odd", &json!({ "name": "Ada", "order": { "id": 1 } }));
        let text = guide.to_string();
        assert!(
            text.trim_start().starts_with("dashboard  http://127.0.0.1:4000/\n"),
            "{text}"
        );
        for piece in [
            r"fermata workflows start 'it'\''s/odd' --input 'name=",
            r#"--input 'order={"id":1}' --wait --server http://127.0.0.1:4000"#,
            "/api/v1/workflows/it%27s%2Fodd/execute?wait=30s'",
            "dev 'my flows' --reset",
        ] {
            assert!(text.contains(piece), "{piece}: {text}");
        }
    }
}
