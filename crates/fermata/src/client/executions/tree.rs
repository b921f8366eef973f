//! `fermata executions tree`: a run, the runs that led to it, and the runs that it started. `get` shows the same below a run that
//! has a parent or children.

use super::super::{Client, print_json, text};
use crate::cli::{self, Format};
use serde_json::Value;

pub(super) async fn tree(client: &Client, id: &str, format: Format) -> anyhow::Result<()> {
    let root = read(client, id).await?;
    match format {
        Format::Json => print_json(&root),
        Format::Table => cli::print(draw(&root, id)),
    }
    Ok(())
}

/// The tree below a heading; nothing for a run without parent and children.
pub(super) async fn section(client: &Client, run: &Value, id: &str) -> anyhow::Result<String> {
    let alone = run["children"].as_array().is_none_or(Vec::is_empty) && run["parentExecutionId"].is_null();
    match alone {
        true => Ok(String::new()),
        false => Ok(format!("\nTREE\n{}", draw(&read(client, id).await?, id))),
    }
}

async fn read(client: &Client, id: &str) -> anyhow::Result<Value> {
    Ok(client.get(&["executions", id, "hierarchy"], &[]).await?)
}

/// One line for each run. `marked` is the run that was asked for.
fn draw(root: &Value, marked: &str) -> String {
    let mut lines = String::new();
    line(root, marked, "", "", &mut lines);
    lines
}

fn line(run: &Value, marked: &str, before: &str, below: &str, lines: &mut String) {
    let id = text(run, "executionId");
    let node = run["parentNodeId"]
        .as_str()
        .map_or(String::new(), |node| format!("{node}: "));
    let mark = if id == marked { "  <" } else { "" };
    let (workflow, status) = (text(run, "workflowId"), text(run, "status"));
    lines.push_str(&format!("{before}{node}{workflow}  {status}  {id}{mark}\n"));
    let children = run["children"].as_array().map(Vec::as_slice).unwrap_or_default();
    let more = run["truncated"] == true;
    for (at, child) in children.iter().enumerate() {
        let last = at + 1 == children.len() && !more;
        let (branch, rest) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        line(
            child,
            marked,
            &format!("{below}{branch}"),
            &format!("{below}{rest}"),
            lines,
        );
    }
    if more {
        lines.push_str(&format!("{below}└─ … and more\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn children_are_drawn_below_their_parents() {
        let run = |id: &str, node: Option<&str>, children: Vec<Value>| {
            json!({ "executionId": id, "workflowId": "w", "status": "Running", "parentNodeId": node,
                    "children": children })
        };
        let mut cut = run("d", Some("call"), Vec::new());
        cut["truncated"] = true.into();
        let first = run("b", Some("call"), vec![run("c", Some("deep"), Vec::new())]);
        let root = run("a", None, vec![first, cut]);
        assert_eq!(
            draw(&root, "c"),
            "w  Running  a\n\
             ├─ call: w  Running  b\n\
             │  └─ deep: w  Running  c  <\n\
             └─ call: w  Running  d\n   └─ … and more\n"
        );
    }
}
