//! `fermata executions rerun`: repeat a run, whole or in part, and follow the new one if asked to.

use super::super::{Client, print_json, text, watch};
use crate::{
    cli::{self, Format, Usage},
    duration, input,
};
use clap::Args;
use serde_json::{Map, Value, json};
use std::{process::ExitCode, time::Duration};

/// The arguments of `fermata executions rerun`.
#[derive(Debug, Args)]
pub(super) struct RerunArgs {
    /// The id of the run.
    pub id: String,
    /// Repeat this node and all that it reaches. Nothing before it is executed again.
    #[arg(long, value_name = "NODE")]
    from: Option<String>,
    /// Repeat the nodes that failed and all that they reach.
    #[arg(long, conflicts_with = "from")]
    failed: bool,
    /// Another trigger: key=value (dots make objects), {…}, @file.json, or - for JSON on standard input.
    #[arg(long, short, value_name = "KEY=VALUE")]
    input: Vec<String>,
    /// Another spec, written like --input.
    #[arg(long, value_name = "KEY=VALUE")]
    spec: Vec<String>,
    /// Change parameters of a node: NODE.key=value, or NODE={…} with a JSON object.
    #[arg(long, value_name = "NODE.KEY=VALUE")]
    param: Vec<String>,
    /// Follow this version, or `latest`. The version of the old run if it is left out.
    #[arg(long, value_name = "N|latest", value_parser = version)]
    version: Option<Value>,
    /// Start no second run with the same request id; show the run that exists instead.
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,
    /// Follow the new run until its end, and exit as `executions watch` does.
    #[arg(long)]
    wait: bool,
    /// How long to wait for the end, such as 30s.
    #[arg(long, value_name = "DURATION", requires = "wait", value_parser = duration::parse)]
    timeout: Option<Duration>,
}

pub(super) async fn rerun(client: &Client, args: RerunArgs, format: Format) -> anyhow::Result<ExitCode> {
    let mut body = Map::new();
    let mut stdin = std::io::stdin().lock();
    for (name, flag, given) in [("trigger", "--input", &args.input), ("spec", "--spec", &args.spec)] {
        if !given.is_empty() {
            let value = input::value(flag, given, &mut stdin).map_err(Usage)?;
            body.insert(name.to_owned(), value);
        }
    }
    drop(stdin);
    if !args.param.is_empty() {
        body.insert("parameters".to_owned(), parameters(&args.param).map_err(Usage)?);
    }
    body.extend(args.from.map(|node| ("fromNode".to_owned(), node.into())));
    body.extend(args.failed.then(|| ("failedOnly".to_owned(), true.into())));
    body.extend(args.version.map(|version| ("version".to_owned(), version)));
    body.extend(args.request_id.map(|id| ("requestId".to_owned(), id.into())));
    let old = client.execution_id(&args.id).await?;
    let accepted = client
        .post(&["executions", &old, "rerun"], Some(&Value::Object(body)))
        .await?;
    let id = text(&accepted, "executionId");
    if args.wait {
        if format == Format::Table {
            cli::say(format_args!("run {id}"));
        }
        return watch::watch(client, &id, args.timeout, format).await;
    }
    match format {
        Format::Json => print_json(&accepted),
        Format::Table => {
            cli::print(format_args!("{id}\n"));
            cli::say(format_args!(
                "it repeats {old} and is {}; `fermata executions watch {id}` follows it",
                text(&accepted, "status")
            ));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn version(text: &str) -> Result<Value, String> {
    match text.parse::<u32>() {
        Ok(number) if number > 0 => Ok(number.into()),
        _ if text == "latest" => Ok(text.into()),
        _ => Err("write a number from 1, or latest".to_owned()),
    }
}

/// The changed parameters, by node.
fn parameters(pairs: &[String]) -> Result<Value, String> {
    let mut nodes: Map<String, Value> = Map::new();
    for pair in pairs {
        let wrong = |what: &str| format!("--param {pair}: {what}");
        let (place, text) = pair
            .split_once('=')
            .ok_or_else(|| wrong("write it as NODE.key=value, or as NODE={…}"))?;
        let (node, key) = match place.split_once('.') {
            Some((node, key)) => (node, Some(key)),
            None => (place, None),
        };
        if node.is_empty() || key.is_some_and(|key| key.split('.').any(str::is_empty)) {
            return Err(wrong("write it as NODE.key=value, or as NODE={…}"));
        }
        let given = match key {
            Some(key) => input::value("--param", &[format!("{key}={text}")], &mut std::io::empty())?,
            None => serde_json::from_str(text).map_err(|error| wrong(&format!("this is not JSON: {error}")))?,
        };
        let Value::Object(given) = given else {
            return Err(wrong("the parameters of a node are a JSON object"));
        };
        let node = nodes.entry(node).or_insert_with(|| json!({}));
        if let Value::Object(members) = node {
            members.extend(given);
        }
    }
    Ok(Value::Object(nodes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_given_by_key_or_whole() {
        let read = |pairs: &[&str]| parameters(&pairs.iter().map(|pair| (*pair).to_owned()).collect::<Vec<_>>());
        assert_eq!(
            read(&["charge.url=http://x/?a=b", "charge.tries=3", r#"mail={"to":"a@b"}"#]).unwrap(),
            json!({ "charge": { "url": "http://x/?a=b", "tries": 3 }, "mail": { "to": "a@b" } })
        );
        for wrong in [
            "charge",
            "charge.=1",
            ".url=1",
            "charge.a..b=1",
            "charge=[1]",
            "charge=x",
        ] {
            assert!(read(&[wrong]).is_err(), "{wrong}");
        }
    }
}
