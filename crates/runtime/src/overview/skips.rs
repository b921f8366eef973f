//! Explains why nodes were skipped: which step, edge or condition is the cause, with the values that the condition
//! read.

use crate::mask::Mask;
use fermata_core::{Edge, Event, Join, Node, NodeId, NodeIx, Outcome, Plan, SkipReason, SkippedBy, Verdict, When};
use fermata_expr::logic::shown;
use std::{collections::HashMap, sync::Arc};

/// At most this many causes are listed; the others are counted.
const LISTED: usize = 4;
/// The most characters that are shown of a value.
const LONGEST_VALUE: usize = 80;

/// Explains the skipped nodes of one run from its events.
pub struct SkipReasons {
    plan: Arc<Plan>,
    mask: Mask,
    /// For each node, its incoming edges: their source node, and their position among its edges.
    incoming: Vec<Vec<(NodeIx, usize)>>,
    ended: HashMap<NodeId, Ended>,
    /// Nodes that a caller skipped; they ended with the outputs that the caller gave.
    by_command: HashMap<NodeId, SkippedBy>,
    /// The results of the conditions on the edges of a node.
    verdicts: HashMap<NodeId, Vec<Verdict>>,
}

enum Ended {
    Finished(Outcome),
    Skipped(SkipReason, Option<Verdict>),
}

impl SkipReasons {
    /// For a run of `plan` without events. `mask` hides secrets among the values that conditions read.
    pub fn new(plan: Arc<Plan>, mask: Mask) -> SkipReasons {
        let mut incoming = vec![Vec::new(); plan.nodes.len()];
        for ix in plan.indices() {
            for (position, edge) in plan.node(ix).edges.iter().enumerate() {
                incoming[edge.target.at()].push((ix, position));
            }
        }
        SkipReasons {
            plan,
            mask,
            incoming,
            ended: HashMap::new(),
            by_command: HashMap::new(),
            verdicts: HashMap::new(),
        }
    }

    /// Adds the next event of the run.
    pub fn note(&mut self, event: &Event) {
        match event {
            Event::Reused(reused) => reused.events.iter().for_each(|event| self.note(event)),
            Event::Finished {
                node, outcome, skipped, ..
            } => {
                self.by_command
                    .extend(skipped.clone().map(|skipped| (node.clone(), skipped)));
                self.ended.insert(node.clone(), Ended::Finished(outcome.clone()));
            }
            Event::Skipped { node, reason, verdict } => {
                let skipped = Ended::Skipped(*reason, verdict.clone());
                self.ended.insert(node.clone(), skipped);
            }
            Event::Routed { node, verdicts, .. } if !verdicts.is_empty() => {
                self.verdicts.insert(node.clone(), verdicts.clone());
            }
            _ => {}
        }
    }

    /// Why a node was skipped; `None` if it was not.
    pub fn why(&self, node: &NodeId) -> Option<String> {
        if let Some(skipped) = self.by_command.get(node) {
            let by = skipped.by.as_deref().unwrap_or("a caller");
            return Some(format!("{by} skipped it: {}", skipped.reason));
        }
        let Some(Ended::Skipped(reason, verdict)) = self.ended.get(node) else {
            return None;
        };
        let Some(ix) = self.plan.find(node.as_str()) else {
            return Some("its workflow has no such step".to_owned());
        };
        Some(match (reason, &self.plan.node(ix).join) {
            (SkipReason::Stopped, _) => "the run was stopped".to_owned(),
            // A guard compares one path with a value. If it read no value, the path does not exist.
            (SkipReason::Guard, Join::Guard(source)) => match verdict {
                Some(verdict) if verdict.error.is_none() && verdict.saw.is_empty() => {
                    format!("its condition `{source}` is false: what it reads is not there")
                }
                verdict => format!("its {}", self.condition(source, verdict.as_ref())),
            },
            (SkipReason::Guard, _) => "its condition is false".to_owned(),
            (SkipReason::DeadPath, Join::All) => {
                let unmet = self.incoming[ix.at()]
                    .iter()
                    .filter_map(|(parent, _)| self.unmet(*parent));
                format!("it needs steps that did not succeed: {}", listed(unmet.collect(), ", "))
            }
            (SkipReason::DeadPath, _) => {
                let dead = self.incoming[ix.at()]
                    .iter()
                    .map(|(parent, edge)| self.dead_edge(*parent, *edge));
                format!("no edge to it was taken: {}", listed(dead.collect(), "; "))
            }
        })
    }

    /// Why the edge at this position of a node was not taken, if it was not.
    pub fn why_not(&self, node: &NodeId, position: usize) -> Option<String> {
        let ix = self.plan.find(node.as_str())?;
        self.plan.node(ix).edges.get(position)?;
        Some(self.dead_edge(ix, position))
    }

    /// A step that did not succeed, with its status in the terms of the dialect.
    fn unmet(&self, ix: NodeIx) -> Option<String> {
        let node = self.plan.node(ix);
        let words = &self.plan.scope.words;
        let word = match self.ended.get(&node.id) {
            Some(Ended::Finished(Outcome::Succeeded(_))) => return None,
            Some(Ended::Finished(Outcome::Failed(failure))) => words.failure(failure),
            Some(Ended::Skipped(..)) => &words.skipped,
            None => &words.pending,
        };
        Some(format!("`{}` ({word})", node.id))
    }

    /// Why an edge was not taken.
    fn dead_edge(&self, parent: NodeIx, position: usize) -> String {
        let node = self.plan.node(parent);
        let (name, edge) = (&node.id, &node.edges[position]);
        let failed = match self.ended.get(name) {
            None => return format!("`{name}` did not end"),
            Some(Ended::Skipped(..)) => return format!("`{name}` was skipped"),
            Some(Ended::Finished(outcome)) => matches!(outcome, Outcome::Failed(_)),
        };
        match (edge.when, failed) {
            (When::Success, true) => format!("`{name}` failed"),
            (When::Failure | When::Unhandled, false) => format!("`{name}` succeeded, and the edge is for its failure"),
            _ => self.not_chosen(node, edge, position),
        }
    }

    /// Why an edge that matches the outcome of its node was not taken.
    fn not_chosen(&self, node: &Node, edge: &Edge, position: usize) -> String {
        let name = &node.id;
        let mut verdicts = self.verdicts.get(name).into_iter().flatten();
        let verdict = verdicts.find(|verdict| verdict.edge as usize == position);
        match (&edge.condition, verdict) {
            (Some(source), Some(verdict)) if !verdict.holds() => {
                format!("after `{name}`, the {}", self.condition(source, Some(verdict)))
            }
            (_, _) if edge.outcome.is_some() => format!("`{name}` chose another outcome"),
            (_, _) if edge.when == When::Unhandled => format!("another edge took the failure of `{name}`"),
            _ => format!("`{name}` took an earlier edge"),
        }
    }

    /// `condition … is false`, with the values it read, or why it could not be evaluated.
    fn condition(&self, source: &str, verdict: Option<&Verdict>) -> String {
        let source = shown(source);
        if let Some(Verdict { error: Some(error), .. }) = verdict {
            let prefix = format!("`{source}`: ");
            let error = error.strip_prefix(&prefix).unwrap_or(error);
            return format!("condition `{source}` could not be evaluated: {error}");
        }
        let seen: Vec<String> = verdict
            .into_iter()
            .flat_map(|verdict| self.mask.of_reads(&verdict.saw))
            .map(|(path, value)| format!("{path} is {}", shortened(&value.to_string())))
            .collect();
        match seen.is_empty() {
            false => format!("condition `{source}` is false: {}", seen.join(", ")),
            true => format!("condition `{source}` is false"),
        }
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(LONGEST_VALUE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn listed(mut causes: Vec<String>, between: &str) -> String {
    let hidden = causes.len().saturating_sub(LISTED);
    causes.truncate(LISTED);
    if hidden > 0 {
        causes.push(format!("and {hidden} more"));
    }
    causes.join(between)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fermata_core::{Failure, Output, plan::PlanBuilder};
    use serde_json::json;

    fn finished(node: &str, failed: bool) -> Event {
        Event::Finished {
            node: node.into(),
            attempt: 1,
            outcome: match failed {
                true => Outcome::Failed(Failure::permanent("X", "broken")),
                false => Outcome::Succeeded(Output::EMPTY),
            },
            chosen: None,
            skipped: None,
            queued_ms: None,
        }
    }

    fn skipped(node: &str, reason: SkipReason) -> Event {
        Event::Skipped {
            node: node.into(),
            reason,
            verdict: None,
        }
    }

    fn reasons(events: &[Event]) -> SkipReasons {
        let plan = PlanBuilder::new("w")
            .action("a", "core.echo")
            .edge("b", When::Success, Some("trigger.n > vars.limit"))
            .edge("c", When::Failure, None)
            .edge("d", When::Success, None)
            .action("b", "core.echo")
            .edge("d", When::Success, None)
            .action("c", "core.echo")
            .action("d", "core.echo")
            .build()
            .unwrap();
        let mut reasons = SkipReasons::new(Arc::new(plan), Mask::default());
        events.iter().for_each(|event| reasons.note(event));
        reasons
    }

    fn routed(verdict: Verdict) -> Event {
        Event::Routed {
            node: "a".into(),
            taken: Vec::new(),
            verdicts: vec![verdict],
        }
    }

    #[test]
    fn dead_edges_name_their_cause_and_the_values_seen() {
        let mut verdict = Verdict::plain(0, false);
        verdict.saw.insert("trigger.n".to_owned(), json!(1));
        verdict.saw.insert("vars.limit".to_owned(), json!("secret"));
        verdict.saw.insert("trigger.token".to_owned(), json!("secret"));
        let skips = reasons(&[
            finished("a", false),
            routed(verdict.clone()),
            skipped("b", SkipReason::DeadPath),
            skipped("c", SkipReason::DeadPath),
        ]);
        let why = |node: &str| skips.why(&node.into());
        assert_eq!(
            why("b").as_deref(),
            Some(
                "no edge to it was taken: after `a`, the condition `trigger.n > vars.limit` is false: trigger.n is 1, \
                 trigger.token is \"***\""
            )
        );
        assert_eq!(
            why("c").as_deref(),
            Some("no edge to it was taken: `a` succeeded, and the edge is for its failure")
        );
        assert_eq!(why("a"), None);

        verdict.error = Some("no such member".to_owned());
        let skips = reasons(&[
            finished("a", false),
            routed(verdict),
            skipped("b", SkipReason::DeadPath),
        ]);
        let why = skips.why(&"b".into()).unwrap();
        assert!(why.contains("could not be evaluated: no such member"), "{why}");
    }

    #[test]
    fn causes_of_all_incoming_edges_are_listed() {
        let skips = reasons(&[
            finished("a", true),
            skipped("b", SkipReason::DeadPath),
            skipped("d", SkipReason::DeadPath),
        ]);
        assert_eq!(
            skips.why(&"d".into()).as_deref(),
            Some("no edge to it was taken: `a` failed; `b` was skipped")
        );
        let skips = reasons(&[skipped("d", SkipReason::Stopped)]);
        assert_eq!(skips.why(&"d".into()).as_deref(), Some("the run was stopped"));
    }
}
