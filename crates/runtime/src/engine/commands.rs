//! Messages to runs: callbacks, cancels, and the commands of operators.
//!
//! A command is checked here, stored as a message of the run and decided by the runner that holds it. What this check saw may
//! have changed by then: the conductor decides again, and a command that came too late has no effect.

use super::Engine;
use crate::error::{EngineError, Refusal};
use fermata_core::{AnswerRule, Kind, NodeId, NodeIx, Phase, Plan, Run, RunId, Status, conductor};
use fermata_expr::nearest;
use fermata_store::runs::{Answer, Delivery, RunMessage, SkipNode};
use serde_json::{Map, Value};

impl Engine {
    /// Answers the wait of a callback's token. The answer is durable when this returns, and the run is woken at once.
    pub async fn answer(&self, token: &str, payload: &str) -> Result<Answer, EngineError> {
        let now = self.shared.clock.now();
        Ok(self.shared.store.answer(token, payload, None, now).await?)
    }

    /// Requests that a run stops. A terminal run is not changed. Returns the status of the run.
    pub async fn cancel(&self, run: RunId, reason: &str) -> Result<Status, EngineError> {
        let message = RunMessage::Cancel {
            reason: reason.to_owned(),
        };
        match self.shared.store.deliver(run, message, self.shared.clock.now()).await? {
            Delivery::NotFound => Err(Refusal::RunNotFound(run).into()),
            Delivery::Terminal { status } | Delivery::Delivered { status } => Ok(status),
        }
    }

    /// Pauses a run: running actions finish, nothing new starts. A run that is paused is not changed.
    pub async fn pause(&self, run: RunId) -> Result<(), EngineError> {
        self.command(run, RunMessage::Pause, "paused").await
    }

    /// Resumes a run. A run that is not paused is not changed.
    pub async fn resume(&self, run: RunId) -> Result<(), EngineError> {
        self.command(run, RunMessage::Resume, "resumed").await
    }

    /// Skips a node that waits, or waits for its next attempt: it succeeds with these outputs.
    pub async fn skip(&self, run: RunId, skip: Skip) -> Result<(), EngineError> {
        let replayed = self.replayed(run).await?;
        let ix = open_node(&replayed, run, &skip.node, "skipped")?;
        let refused = |why: &str| Refusal::NodeCommand {
            run,
            node: skip.node.clone(),
            command: "skipped",
            why: why.to_owned(),
        };
        if !conductor::waits(&replayed, ix, self.shared.clock.now()) {
            return Err(
                refused("its action is running or about to start; only a node that waits can be skipped").into(),
            );
        }
        if let Some(outcomes) = outcomes(&replayed, ix) {
            let chosen = skip.outputs.get("outcome").and_then(Value::as_str);
            if !chosen.is_some_and(|chosen| outcomes.iter().any(|outcome| outcome == chosen)) {
                return Err(Refusal::InvalidSkip(format!(
                    "node `{}` is a decision: `outputs.outcome` must be one of {}",
                    skip.node,
                    outcomes.join(", ")
                ))
                .into());
            }
        }
        let message = RunMessage::Skip(SkipNode {
            node: skip.node.as_str().into(),
            outputs: Value::Object(skip.outputs).to_string(),
            reason: skip.reason,
            by: skip.by,
        });
        self.command(run, message, "changed").await
    }

    /// Sends the request of a node again that waits for its answer: the same request, token and idempotency key. It is sent also if
    /// this process ends now.
    pub async fn resend(&self, run: RunId, node: &str) -> Result<(), EngineError> {
        let replayed = self.replayed(run).await?;
        let ix = open_node(&replayed, run, node, "sent again")?;
        let refused = |why: &str| Refusal::NodeCommand {
            run,
            node: node.to_owned(),
            command: "sent again",
            why: why.to_owned(),
        };
        let Phase::Open(open) = &replayed.node(ix).phase else {
            return Err(refused("it does not wait").into());
        };
        let sends = match &replayed.plan().node(ix).kind {
            Kind::Request { .. } => self.sends_request(&replayed, ix),
            Kind::Wait { .. } => return Err(refused("it waits for a callback and sends nothing itself").into()),
            Kind::Action { .. } | Kind::Sleep { .. } | Kind::Pass => {
                return Err(refused("it does not wait for the answer of a service").into());
            }
        };
        if !sends {
            let why = match replayed.plan().node(ix).kind.awaits_children() {
                true => "it waits for a child run",
                false => "its request is in the inbox; there is nothing to send",
            };
            return Err(refused(why).into());
        }
        if !open.requested {
            return Err(refused("its request is being sent").into());
        }
        let (node, attempt) = (NodeId::from(node), open.attempt);
        self.command(run, RunMessage::Resend { node, attempt }, "changed").await
    }

    /// Whether the action of a node sends its request over HTTP.
    fn sends_request(&self, run: &Run, ix: NodeIx) -> bool {
        let Kind::Request { action, parameters, .. } = &run.plan().node(ix).kind else {
            return false;
        };
        let action = self.shared.registry.get(action);
        action.is_some_and(|action| action.sends_http(parameters))
    }

    /// Whether a node waits for the answer to a request that [`Engine::resend`] would send again.
    pub(crate) fn can_resend(&self, run: &Run, ix: NodeIx) -> bool {
        match &run.node(ix).phase {
            Phase::Open(open) => open.requested && run.node(ix).items.is_none() && self.sends_request(run, ix),
            Phase::Idle | Phase::Finished { .. } | Phase::Skipped => false,
        }
    }

    async fn command(&self, run: RunId, message: RunMessage, command: &'static str) -> Result<(), EngineError> {
        match self.shared.store.deliver(run, message, self.shared.clock.now()).await? {
            Delivery::NotFound => Err(Refusal::RunNotFound(run).into()),
            Delivery::Terminal { status } => Err(Refusal::RunEnded { run, status, command }.into()),
            Delivery::Delivered { .. } => Ok(()),
        }
    }

    /// A run that has not ended, as its journal says now.
    async fn replayed(&self, id: RunId) -> Result<Run, EngineError> {
        let run = self.shared.store.run(id).await?.ok_or(Refusal::RunNotFound(id))?;
        let (status, command) = (run.status, "changed");
        if status.is_terminal() {
            return Err(Refusal::RunEnded {
                run: id,
                status,
                command,
            }
            .into());
        }
        Ok(self.reads().state(&run).await?.0)
    }
}

/// The skip of a node by a caller.
#[derive(Debug, Clone)]
pub struct Skip {
    /// The node.
    pub node: String,
    /// The outputs that it has instead.
    pub outputs: Map<String, Value>,
    /// Why.
    pub reason: String,
    /// Who, if that is known.
    pub by: Option<String>,
}

/// The nodes of a plan, or the one that was probably meant, to be added to a message about a node that does not exist.
pub(super) fn nodes_of(plan: &Plan, wrong: &str) -> String {
    const MOST: usize = 10;
    let ids = || plan.nodes.iter().map(|node| node.id.as_str());
    match nearest(wrong, ids()) {
        Some(near) => format!("; did you mean `{near}`?"),
        None if plan.nodes.len() > MOST => String::new(),
        None => {
            let ids: Vec<String> = ids().map(|id| format!("`{id}`")).collect();
            format!("; its nodes are {}", ids.join(", "))
        }
    }
}

/// A node that is open in a run that does not stop.
fn open_node(replayed: &Run, run: RunId, node: &str, command: &'static str) -> Result<NodeIx, Refusal> {
    let ix = replayed.plan().find(node).ok_or_else(|| Refusal::NodeNotFound {
        run,
        node: node.to_owned(),
        help: nodes_of(replayed.plan(), node),
    })?;
    let why = match &replayed.node(ix).phase {
        _ if replayed.stop().is_some() => "the execution is stopping",
        Phase::Open(_) => return Ok(ix),
        Phase::Idle => "it has not begun",
        Phase::Finished { .. } => "it has ended",
        Phase::Skipped => "it will not run",
    };
    Err(Refusal::NodeCommand {
        run,
        node: node.to_owned(),
        command,
        why: why.to_owned(),
    })
}

/// The outcomes of a node whose answer chooses one.
fn outcomes(run: &Run, ix: NodeIx) -> Option<&[String]> {
    match &run.plan().node(ix).kind {
        Kind::Request {
            answer: AnswerRule::Outcome { outcomes } | AnswerRule::Approval { outcomes },
            ..
        } => Some(outcomes),
        _ => None,
    }
}
