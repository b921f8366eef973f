//! `fermata graph`: a document as a drawing, in Mermaid or DOT, or as JSON.
//!
//! Node ids are free text, so nodes are called `n0`, `n1`, … in the drawing and only their labels hold text of the
//! document. What must stay true: no text of a document can end the label it stands in.

use crate::{
    cli::{self, USAGE, Usage},
    config::Config,
    duration, validate,
};
use clap::{Args, ValueEnum};
use fermata_core::{
    Plan,
    plan::{Edge, Join, Kind, Node, Route, When},
};
use fermata_dialects::{AnyAction, Document, Stage, compile};
use fermata_expr::logic::Logic;
use serde_json::{Value, json};
use std::{fmt::Write, path::PathBuf, process::ExitCode, time::Duration};

/// Shown below `--help`.
pub const HELP: &str = "\
Examples:
  fermata graph order.json                       Mermaid, for Markdown pages and https://mermaid.live
  fermata graph order.json -o dot | dot -Tsvg > order.svg

Steps are boxes, pauses are rounded, steps that wait for a callback are hexagons. A step shows its `if`. An edge shows its
condition, and its `when` unless that is plain success; onFailure is dashed.

Exit codes: 0 drawn, 2 the document or the call is wrong.";

/// The arguments of `fermata graph`.
#[derive(Debug, Args)]
pub struct GraphArgs {
    /// The document: JSON or YAML, or `-` for standard input.
    file: PathBuf,
    /// The language of the drawing; `json` lists nodes and edges.
    #[arg(long, short, value_enum, value_name = "LANGUAGE", default_value_t = Language::Mermaid)]
    output: Language,
    /// The same as `--output json`.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Language {
    Mermaid,
    Dot,
    Json,
}

/// Draws a document.
pub fn graph(args: &GraphArgs, config: &Config) -> anyhow::Result<ExitCode> {
    let settings = config.settings().dialects;
    let (source, name) = validate::read(&args.file).map_err(Usage)?;
    let compiled = Document::parse(&source, &name, &settings.document)
        .and_then(|document| compile(&document, &settings, &AnyAction, Stage::Save));
    let plan = match compiled {
        Ok(compiled) => compiled.plan,
        Err(problems) => {
            cli::say(problems.render(cli::colors(&std::io::stderr())).trim_end());
            return Ok(ExitCode::from(USAGE));
        }
    };
    let language = if args.json { Language::Json } else { args.output };
    cli::print(match language {
        Language::Json => format!("{:#}\n", graph_json(&plan)),
        Language::Mermaid => mermaid(&plan),
        Language::Dot => dot(&plan),
    });
    Ok(ExitCode::SUCCESS)
}

/// What a node says, in lines: its name, what it does, and what must be true for that.
fn lines(node: &Node) -> Vec<String> {
    let limit = |millis: Option<u64>| millis.map(|millis| duration::written(Duration::from_millis(millis)));
    let what = node.kind.action_type();
    let child = match &node.kind {
        Kind::Action { parameters, .. } | Kind::Request { parameters, .. } => parameters["workflowId"].as_str(),
        Kind::Sleep { .. } | Kind::Wait { .. } | Kind::Pass => None,
    };
    let what = &child.map_or_else(|| what.to_owned(), |child| format!("{what} {child}"));
    let each = node
        .kind
        .each()
        .map(|each| format!("for each of {}", each.items.trim()));
    let what = match &node.kind {
        Kind::Action { .. } | Kind::Pass => what.to_owned(),
        Kind::Sleep { parameters, .. } => match limit(parameters["durationMs"].as_u64()) {
            Some(pause) => format!("{what} {pause}"),
            None => what.to_owned(),
        },
        Kind::Wait { timeout_ms } | Kind::Request { timeout_ms, .. } => match limit(*timeout_ms) {
            Some(timeout) => format!("{what}, at most {timeout}"),
            None => what.to_owned(),
        },
    };
    let mut lines = vec![node.id.to_string(), what];
    lines.extend(each);
    if let Join::Guard(condition) = &node.join {
        lines.push(format!("if {}", condition.trim()));
    }
    lines
}

/// What an edge says: its place under `firstMatch`, its `when`, its condition.
fn label(plan: &Plan, node: &Node, at: usize, edge: &Edge) -> String {
    let guarded = matches!(plan.node(edge.target).join, Join::Guard(_));
    let when = match edge.when {
        When::Success => "",
        When::Failure => "failure",
        // The guard of the target decides, however this node ends.
        When::Always if guarded => "",
        When::Always => "always",
        When::Unhandled => "onFailure",
    };
    let condition = match &edge.condition {
        Some(text) if plan.language == fermata_core::Language::Logic => {
            Logic::parse(text).map_or_else(|_| text.clone(), |logic| logic.source().to_owned())
        }
        Some(text) => text.clone(),
        None => edge.outcome.clone().unwrap_or_default(),
    };
    let condition = condition.trim();
    let between = if when.is_empty() || condition.is_empty() {
        ""
    } else {
        ": "
    };
    let text = format!("{when}{between}{condition}");
    match node.route {
        Route::FirstMatch => format!("{}. {}", at + 1, if text.is_empty() { "success" } else { &text }),
        Route::Parallel | Route::Outcome | Route::ExactlyOne => text,
    }
}

fn mermaid(plan: &Plan) -> String {
    let mut text = format!("---\ntitle: {}\n---\nflowchart TD\n", quoted_yaml(&plan.display_name));
    for (at, node) in plan.nodes.iter().enumerate() {
        let label = lines(node).iter().map(|line| entities(line)).collect::<Vec<_>>();
        let label = label.join("<br/>");
        let (open, close) = match node.kind {
            Kind::Action { .. } => ("[", "]"),
            Kind::Sleep { .. } => ("([", "])"),
            Kind::Wait { .. } | Kind::Request { .. } => ("{{", "}}"),
            Kind::Pass => ("{", "}"),
        };
        let _ = writeln!(text, "  n{at}{open}\"{label}\"{close}");
    }
    for (from, node) in plan.nodes.iter().enumerate() {
        for (at, edge) in node.edges.iter().enumerate() {
            let arrow = match edge.when {
                When::Unhandled => "-.->",
                _ => "-->",
            };
            let label = match label(plan, node, at, edge) {
                empty if empty.is_empty() => empty,
                label => format!("|\"{}\"|", entities(&label)),
            };
            let _ = writeln!(text, "  n{from} {arrow}{label} n{}", edge.target.at());
        }
    }
    text
}

/// Text inside a quoted Mermaid label. Whatever means something there is written as an entity.
fn entities(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if c.is_control() => safe.push(' '),
            '"' | '#' | '&' | '<' | '>' | '`' | '\\' | ';' => {
                let _ = write!(safe, "#{};", u32::from(c));
            }
            c => safe.push(c),
        }
    }
    safe
}

/// JSON is YAML.
fn quoted_yaml(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn dot(plan: &Plan) -> String {
    let mut text = format!("digraph {} {{\n", quoted_dot(&plan.workflow));
    let _ = writeln!(text, "  label={};", quoted_dot(&plan.display_name));
    for (at, node) in plan.nodes.iter().enumerate() {
        let label = lines(node).join("\n");
        let attributes = match node.kind {
            Kind::Action { .. } => "shape=box",
            Kind::Sleep { .. } => "shape=box, style=rounded",
            Kind::Wait { .. } | Kind::Request { .. } => "shape=hexagon",
            Kind::Pass => "shape=diamond",
        };
        let _ = writeln!(text, "  n{at} [label={}, {attributes}];", quoted_dot(&label));
    }
    for (from, node) in plan.nodes.iter().enumerate() {
        for (at, edge) in node.edges.iter().enumerate() {
            let label = match label(plan, node, at, edge) {
                empty if empty.is_empty() => None,
                label => Some(format!("label={}", quoted_dot(&label))),
            };
            let style = (edge.when == When::Unhandled).then(|| "style=dashed".to_owned());
            let attributes: Vec<String> = label.into_iter().chain(style).collect();
            let attributes = match attributes.is_empty() {
                true => String::new(),
                false => format!(" [{}]", attributes.join(", ")),
            };
            let _ = writeln!(text, "  n{from} -> n{}{attributes};", edge.target.at());
        }
    }
    text + "}\n"
}

fn graph_json(plan: &Plan) -> Value {
    let nodes = plan.nodes.iter().map(|node| {
        let mut entry = json!({ "id": node.id, "actionType": node.kind.action_type() });
        if let Join::Guard(condition) = &node.join {
            entry["if"] = json!(condition);
        }
        entry
    });
    let edges = plan.nodes.iter().flat_map(|node| {
        node.edges.iter().map(move |edge| {
            let mut entry = json!({ "from": node.id, "to": plan.node(edge.target).id, "when": edge.when });
            if let Some(condition) = &edge.condition {
                entry["condition"] = json!(condition);
            }
            entry
        })
    });
    json!({
        "workflowId": plan.workflow,
        "displayName": plan.display_name,
        "nodes": nodes.collect::<Vec<_>>(),
        "edges": edges.collect::<Vec<_>>(),
    })
}

fn quoted_dot(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            c if c.is_control() => quoted.push(' '),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use fermata_dialects::{DocumentLimits, Settings};

    fn plan(source: &str) -> Plan {
        let document = Document::parse(source.as_bytes(), "w.json", &DocumentLimits::default()).unwrap();
        let compiled = compile(&document, &Settings::default(), &AnyAction, Stage::Save);
        compiled
            .unwrap_or_else(|problems| panic!("{}", problems.render(false)))
            .plan
    }

    const ORDER: &str = r#"{ "id": "o", "displayName": "An \"order\"", "startNode": "fetch", "nodes": [
        { "id": "fetch", "actionType": "http.request", "routePolicy": "firstMatch", "onFailure": "end", "edges": [
            { "targetNode": "pause", "condition": "trigger.s === \"a|b\" && trigger.n < 3" },
            { "targetNode": "end" } ] },
        { "id": "pause", "actionType": "core.delay", "edges": [{ "targetNode": "end", "when": "always" }] },
        { "id": "end", "actionType": "core.echo" } ] }"#;

    #[test]
    fn json_lists_nodes_and_edges() {
        let graph = graph_json(&plan(ORDER));
        assert_eq!(graph["nodes"][1], json!({ "id": "pause", "actionType": "core.delay" }));
        assert_eq!(
            graph["edges"][2],
            json!({ "from": "fetch", "to": "end", "when": "unhandled" })
        );
        assert_eq!(graph["edges"].as_array().map(Vec::len), Some(4));
    }

    #[test]
    fn mermaid_shows_kinds_conditions_and_ways_out() {
        let expected = r#"---
title: "An \"order\""
---
flowchart TD
  n0["fetch<br/>http.request"]
  n1(["pause<br/>core.delay"])
  n2["end<br/>core.echo"]
  n0 -->|"1. trigger.s === #34;a|b#34; #38;#38; trigger.n #60; 3"| n1
  n0 -->|"2. success"| n2
  n0 -.->|"3. onFailure"| n2
  n1 -->|"always"| n2
"#;
        assert_eq!(mermaid(&plan(ORDER)), expected);
    }

    #[test]
    fn dot_shows_the_same() {
        let expected = r#"digraph "o" {
  label="An \"order\"";
  n0 [label="fetch\nhttp.request", shape=box];
  n1 [label="pause\ncore.delay", shape=box, style=rounded];
  n2 [label="end\ncore.echo", shape=box];
  n0 -> n1 [label="1. trigger.s === \"a|b\" && trigger.n < 3"];
  n0 -> n2 [label="2. success"];
  n0 -> n2 [label="3. onFailure", style=dashed];
  n1 -> n2 [label="always"];
}
"#;
        assert_eq!(dot(&plan(ORDER)), expected);
    }

    const CHECKOUT: &str = r#"{ "name": "checkout", "tasks": {
        "create": { "url": "https://x.test/" },
        "nap": { "needs": ["create"], "sleep": "1.5h" },
        "result": { "needs": ["create"], "wait_for_webhook": { "timeout": "1d" } },
        "forever": { "wait_for_webhook": {} },
        "fulfill": { "needs": ["result", "nap"], "if": "tasks.result.body.status == 'paid'", "url": "https://x.test/" },
        "ship": { "needs": ["fulfill"], "url": "https://x.test/" } } }"#;

    #[test]
    fn tasks_show_their_pauses_and_their_conditions() {
        let expected = r#"---
title: "checkout"
---
flowchart TD
  n0["create<br/>http.request"]
  n1(["nap<br/>core.delay 1h30m"])
  n2{{"result<br/>core.wait, at most 1d"}}
  n3{{"forever<br/>core.wait"}}
  n4["fulfill<br/>http.request<br/>if tasks.result.body.status == 'paid'"]
  n5["ship<br/>http.request"]
  n0 --> n1
  n0 --> n2
  n1 --> n4
  n2 --> n4
  n4 --> n5
"#;
        assert_eq!(mermaid(&plan(CHECKOUT)), expected);
        let dot = dot(&plan(CHECKOUT));
        assert!(
            dot.contains(r#"n4 [label="fulfill\nhttp.request\nif tasks.result.body.status == 'paid'", shape=box];"#),
            "{dot}"
        );
        assert!(dot.contains("  n2 -> n4;\n"), "{dot}");
    }
}
