//! The drawer of a node: what it got, what it returned, why it failed, and why the run went on as it did.

use super::{
    bulk::reason_field,
    graph::action,
    json,
    parts::{ago, cut, encoded, exact, mark, node_kind, short_id, took},
    rerun,
    run::{BY, failure},
};
use crate::error::ApiError;
use fermata_core::{AnswerRule, Join, Kind, Node, Verdict, When};
use fermata_runtime::{NodeProgress, Progress, Scope, Session};
use fermata_store::{reads::RunRecord, runs::Attempt};
use maud::{Markup, html};

/// The drawer of a node of a run.
pub(super) async fn of(session: &Session, run: &RunRecord, progress: &Progress, id: &str) -> Result<Markup, ApiError> {
    let found = progress.plan.find(id);
    let Some(ix) = found else {
        let message = format!("this run has no node `{}`", cut(id, 100));
        return Err(ApiError::not_found("NODE_OR_EDGE_NOT_FOUND", message));
    };
    let (node, state) = (progress.plan.node(ix), &progress.nodes[ix.at()]);
    let (attempts, has_earlier) = session.reads().attempts_of(run.id, &node.id, state.attempt).await?;
    let now = session.now();
    let base = format!("/runs/{}/nodes/{}/attempts", run.id, encoded(id));
    Ok(html! {
        div.drawer role="dialog" aria-label=(format!("Node {id}")) {
            header {
                div {
                    h2 { (node.title.as_deref().unwrap_or(id)) }
                    p.muted.mono { (id) " · " (action(&node.kind)) }
                }
                span.grow {}
                a.plain href="?" data-swap data-close aria-label="Close" { "✕" }
            }
            div.pad {
                (mark(node_kind(state.state), &state.word))
                @if state.attempt > 1 { span.muted { " attempt " (state.attempt) " of " (node.policies.retry.max_attempts) } }
                @if let Some(until) = state.until.filter(|_| state.taken.is_none()) { p { "until " (exact(until)) " (" (ago(until, now)) ")" } }
                @if let Some(items) = state.items { p { (items.succeeded) " of " (items.total) " items succeeded, " (items.failed) " failed" } }
                @if let Some(of) = state.reused_from {
                    p { "Kept from " a href=(format!("/runs/{of}?node={}", encoded(id))) title=(of) { "run " (short_id(of)) } "; this run did not execute it." }
                }
                @if let Some(reason) = &state.skip_reason { p { "Skipped: " (reason) } }
                @if let Some(problem) = &state.failure {
                    @if attempts.is_empty() { div.failure { b.mono { (problem.code) } " " span.message { (cut(&problem.message, 2000)) } } }
                }
                @if let Some(chosen) = &state.chosen { p { "Chosen outcome: " b { (chosen) } } }
            }
            (commands(session, run, node, state))
            (why(progress, node, state))
            @for (at, attempt) in attempts.iter().enumerate() { (attempt_part(attempt, at == 0, &base)) }
            @if has_earlier { p.muted.pad { "Earlier attempts are in the API: include=actions." } }
            @if attempts.is_empty() && state.attempt > 0 { p.muted.pad { "No attempt has ended yet." } }
            @if state.attempt == 0 && state.skip_reason.is_none() { p.muted.pad { "The run has not reached this node." } }
        }
    })
}

/// What the caller can do with the node.
fn commands(session: &Session, run: &RunRecord, node: &Node, state: &NodeProgress) -> Markup {
    let can_retry = run.status.is_terminal() && state.attempt > 0;
    if !session.caller().has(Scope::Execute) || !(can_retry || state.can_skip || state.can_resend) {
        return html! {};
    }
    let to = |verb: &str| {
        format!(
            "/api/v1/executions/{}/nodes/{}/{verb}",
            run.id,
            encoded(node.id.as_str())
        )
    };
    html! {
        p.pad.commands {
            @if can_retry { (rerun::from_node(run, node.id.as_str())) }
            @if state.can_resend {
                button.button.js data-post=(to("resend")) data-body=(BY) data-title="Send the request again?" data-yes="Send again"
                    data-text="The service gets the same request again, with the same callback URL and idempotency key. The node waits no longer than before." { "Send again" }
            }
            @if state.can_skip {
                button.button.js data-post=(to("skip")) data-form="skip-form" data-title="Skip this node?" data-yes="Skip the node"
                    data-text="The node succeeds at once with these outputs, and the run goes on. A late answer is refused." { "Skip" }
            }
        }
        @if state.can_skip { template #skip-form { (skip_fields(node)) } }
    }
}

fn skip_fields(node: &Node) -> Markup {
    let outcomes = match &node.kind {
        Kind::Request {
            answer: AnswerRule::Outcome { outcomes } | AnswerRule::Approval { outcomes },
            ..
        } => outcomes.as_slice(),
        _ => &[],
    };
    html! {
        (reason_field(true))
        @if !outcomes.is_empty() {
            label.stacked {
                span { "Outcome" }
                select data-outcome required {
                    option value="" { "–" }
                    @for outcome in outcomes { option value=(outcome) { (outcome) } }
                }
            }
        }
        label.stacked { span { @if outcomes.is_empty() { "Outputs" } @else { "Other outputs" } } textarea name="outputs" data-json rows="4" spellcheck="false" autocapitalize="off" { "{}" } }
    }
}

fn attempt_part(attempt: &Attempt, is_open: bool, base: &str) -> Markup {
    let of = |part: &str| format!("{base}/{}/{part}", attempt.attempt);
    let queued = attempt.started_at.is_none();
    html! {
        details.attempt open[is_open] {
            summary {
                b { "Attempt " (attempt.attempt) } " "
                span.muted { (attempt.status.as_str()) @if !queued { " after " (took(attempt.started_at, Some(attempt.ended_at), attempt.ended_at)) } }
            }
            p.muted.pad.small {
                @if let Some(started) = attempt.started_at { "started " (exact(started)) ", " }
                "ended " (exact(attempt.ended_at))
            }
            @if let Some(error) = &attempt.error { (failure(error)) }
            @if let Some(outputs) = &attempt.outputs { (json::block("Outputs", outputs, &of("outputs"))) }
            @if let Some(parameters) = &attempt.parameters { (json::block("Parameters", parameters, &of("parameters"))) }
            @if let Some(error) = &attempt.error { (json::block("Error", error, &of("error"))) }
        }
    }
}

/// The condition of the node and its outgoing edges: expression, values, verdict.
fn why(progress: &Progress, node: &Node, state: &NodeProgress) -> Markup {
    let guard = match &node.join {
        Join::Guard(condition) => Some(condition),
        Join::Any | Join::All => None,
    };
    html! {
        @if guard.is_some() || !node.edges.is_empty() {
            section.why {
                h3 { "Why" }
                @if let Some(condition) = guard {
                    div.edge-why {
                        p { "Runs if " code { (cut(condition, 1000)) } }
                        @if let Some(verdict) = &state.guard { (verdict_part(verdict)) }
                    }
                }
                @for (at, edge) in node.edges.iter().enumerate() {
                    @let target = &progress.plan.node(edge.target).id;
                    @let taken = state.taken.as_ref().map(|taken| taken.contains(&(at as u32)));
                    div.edge-why.taken[taken == Some(true)] {
                        p {
                            span.verdict { @match taken { Some(true) => "taken", Some(false) => "not taken", None => "open" } }
                            " → " a href=(format!("?node={}", encoded(target.as_str()))) data-swap { (target) }
                            span.muted { " " (when(edge.when)) @if let Some(outcome) = &edge.outcome { ", outcome " (outcome) } }
                        }
                        @if let Some(condition) = &edge.condition { p { "if " code { (cut(condition, 1000)) } } }
                        @for verdict in state.verdicts.iter().filter(|verdict| verdict.edge == at as u32 && edge.condition.is_some()) {
                            (verdict_part(verdict))
                        }
                    }
                }
            }
        }
    }
}

fn when(when: When) -> &'static str {
    match when {
        When::Success => "on success",
        When::Failure => "on failure",
        When::Always => "always",
        When::Unhandled => "on a failure that no other edge handles",
    }
}

fn verdict_part(verdict: &Verdict) -> Markup {
    html! {
        @if !verdict.saw.is_empty() {
            table.saw { @for (path, value) in &verdict.saw { tr { td.mono { (cut(path, 80)) } td.mono.json { (json::inline(value)) } } } }
        }
        p {
            "Result: " b { (verdict.value) }
            @if let Some(error) = &verdict.error { " · " span.error { (cut(error, 500)) } }
        }
    }
}
