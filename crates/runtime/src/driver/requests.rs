//! The requests of a held run: their tokens, what was sent, and their answers.

use super::{
    Driver, StepError,
    attempt::{Report, masked},
    judge::Rendering,
    step::Step,
};
use crate::{actions::AnswerTo, state::writer_ranges};
use fermata_core::{
    AnswerRule, Event, Fact, Failure, Kind, NodeIx, Output, Phase, Timestamp,
    answer::{Answer, Reading, read},
    code,
};
use fermata_store::{
    inbox::{FoundWait, InboxItem, ItemKind, WaitRef},
    runs::WaitChange,
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc};

/// What is known of requests in this process. All of it can be read or rendered again.
#[derive(Default)]
pub(super) struct Requests {
    /// The tokens of attempts that were opened here.
    tokens: BTreeMap<(NodeIx, u32), String>,
    /// What the last attempt of a node sent.
    sent: BTreeMap<NodeIx, Sent>,
    /// Answers that were read in this step: the output and its text.
    answers: BTreeMap<NodeIx, (Arc<Value>, String)>,
}

/// The call that sent a request, for its row.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    attempt: u32,
    pub parameters: Option<String>,
    pub started_at: Option<Timestamp>,
}

impl Requests {
    /// Forgets everything, because the run is loaded again.
    pub fn forget(&mut self) {
        *self = Requests::default();
    }

    pub fn take_answer(&mut self, ix: NodeIx) -> Option<(Arc<Value>, String)> {
        self.answers.remove(&ix)
    }

    pub fn keep_answer(&mut self, ix: NodeIx, value: Arc<Value>, text: String) {
        self.answers.insert(ix, (value, text));
    }

    /// What this attempt sent.
    pub fn take_sent(&mut self, ix: NodeIx, attempt: u32) -> Option<Sent> {
        self.sent.remove(&ix).filter(|sent| sent.attempt == attempt)
    }
}

impl Driver {
    /// Keeps the tokens of requests that these changes open.
    pub(crate) fn learn_tokens(&mut self, changes: &[WaitChange]) {
        for change in changes {
            if let WaitChange::Open { node, attempt, token } = change
                && let Some(ix) = self.compiled.plan.find(node.as_str())
                && matches!(self.compiled.plan.node(ix).kind, Kind::Request { .. })
            {
                self.requests.tokens.insert((ix, *attempt), token.clone());
            }
        }
    }

    /// How an attempt of a request is answered; `None` if it is not answered from outside.
    pub(super) async fn answer_to(
        &mut self,
        ix: NodeIx,
        attempt: u32,
        step: &Step,
    ) -> Result<Option<AnswerTo>, StepError> {
        let outcomes = match &self.compiled.plan.node(ix).kind {
            Kind::Request { answer, .. } => match answer {
                AnswerRule::Child | AnswerRule::Children(_) => return Ok(None),
                AnswerRule::Any | AnswerRule::State => Vec::new(),
                AnswerRule::Outcome { outcomes } | AnswerRule::Approval { outcomes } => outcomes.clone(),
            },
            _ => return Ok(None),
        };
        let known = self.requests.tokens.get(&(ix, attempt)).cloned();
        let token = match known {
            Some(token) => Some(token),
            None => self.wait_of(ix, attempt, step).await?.map(|wait| wait.token),
        };
        let base = self.shared.settings.public_url.trim_end_matches('/');
        Ok(token.map(|token| AnswerTo {
            callback_url: format!("{base}/wh/{token}"),
            outcomes,
        }))
    }

    /// The wait of this attempt, if it is the newest one of its node.
    async fn wait_of(&mut self, ix: NodeIx, attempt: u32, step: &Step) -> Result<Option<FoundWait>, StepError> {
        let (run, node) = (self.meta.id, self.compiled.plan.node(ix).id.clone());
        let wait = self.shared.store.find_wait(&WaitRef::Node { run, node }).await;
        let wait = wait.map_err(|error| self.read_failed(&error, step))?;
        Ok(wait.filter(|wait| wait.attempt == attempt))
    }

    /// The fact that an answer of a request stands for.
    pub(super) async fn request_answered(
        &mut self,
        ix: NodeIx,
        attempt: u32,
        step: &Step,
    ) -> Result<Option<Fact>, StepError> {
        let compiled = self.compiled.clone();
        let node = compiled.plan.node(ix);
        let Kind::Request { answer: rule, .. } = &node.kind else {
            return Ok(None);
        };
        if !self.is_open(ix, attempt) {
            return Ok(None);
        }
        let Some(wait) = self.wait_of(ix, attempt, step).await? else {
            return Ok(None);
        };
        let text = wait.payload.as_deref().unwrap_or("null");
        let payload = self.shared.offload.parse(text).await.unwrap_or_default();
        let Answer { mut result, chosen } = match read(rule, payload) {
            Reading::Answer(answer) => answer,
            // Answers are checked before they are stored. This one bypassed the API.
            Reading::Refused(why) => Answer {
                result: Err(Failure::permanent(code::INVALID_CALLBACK_PAYLOAD, why)),
                chosen: None,
            },
        };
        if let (AnswerRule::Approval { .. }, Ok(Value::Object(output))) = (rule, &mut result) {
            output.insert("answeredBy".to_owned(), json!(wait.answered_by));
            output.insert("answeredAt".to_owned(), json!(wait.answered_at.map(iso)));
        }
        self.answered(ix, attempt, result, chosen, step).await.map(Some)
    }

    /// Whether this attempt of a node is open.
    pub(super) fn is_open(&self, ix: NodeIx, attempt: u32) -> bool {
        matches!(&self.run.node(ix).phase, Phase::Open(open) if open.attempt == attempt)
    }

    /// The fact of an answer. Its output is kept for its row, and so is what the attempt sent.
    pub(super) async fn answered(
        &mut self,
        ix: NodeIx,
        attempt: u32,
        result: Result<Value, Failure>,
        chosen: Option<String>,
        step: &Step,
    ) -> Result<Fact, StepError> {
        self.recall_sent(ix, attempt, step).await?;
        let result = match result {
            Ok(output) => {
                let output = Arc::new(output);
                let text = self.shared.offload.to_text(output.clone()).await;
                let size = Output::of(&output, text.len());
                self.requests.keep_answer(ix, output, text);
                Ok(size)
            }
            Err(failure) => Err(failure),
        };
        Ok(Fact::Answered {
            node: self.compiled.plan.node(ix).id.clone(),
            attempt,
            result,
            chosen,
            jitter: self.shared.ids.jitter(),
        })
    }

    /// Makes sure that it is known what the open attempt sent. Parameters are rendered as of the opening of the node, so they
    /// are the same again.
    pub(super) async fn recall_sent(&mut self, ix: NodeIx, attempt: u32, step: &Step) -> Result<(), StepError> {
        if self.requests.sent.get(&ix).is_some_and(|sent| sent.attempt == attempt) {
            return Ok(());
        }
        let (due, sees) = match &self.run.node(ix).phase {
            Phase::Open(open) => (open.due, open.sees),
            _ => return Ok(()),
        };
        let rendered = match self.render(ix, step).await? {
            Rendering::Now(rendered) => rendered,
            Rendering::Later(rendering) => rendering.await,
        };
        let parameters = match rendered {
            Ok(parameters) => Some(masked(&self.shared, parameters.value, Some(sees)).await.1),
            Err(_) => None,
        };
        let sent = Sent {
            attempt,
            parameters,
            started_at: Some(due),
        };
        self.requests.sent.insert(ix, sent);
        Ok(())
    }

    /// The same for all requests that time out now. Their child runs are cancelled.
    pub(super) async fn recall_timed_out(&mut self, step: &Step) -> Result<(), StepError> {
        if self.run.paused_at().is_some() {
            return Ok(()); // they time out when the run is resumed
        }
        let due = self.run.active().filter_map(|ix| match &self.run.node(ix).phase {
            Phase::Open(open) if open.requested && open.until.is_some_and(|until| until <= step.at) => {
                Some((ix, open.attempt))
            }
            _ => None,
        });
        for (ix, attempt) in due.collect::<Vec<_>>() {
            self.recall_sent(ix, attempt, step).await?;
            if self.is_child(ix) {
                self.cancel_child(ix, attempt, step).await?;
            }
        }
        Ok(())
    }

    /// Records that a request was sent: what it sent, and its item of the inbox.
    pub(super) fn record_request(&mut self, event: &Event, report: Option<&Report>, step: &mut Step) {
        let (Event::Requested { node, attempt, .. }, Some(report)) = (event, report) else {
            return;
        };
        let Some(ix) = self.compiled.plan.find(node.as_str()) else {
            return;
        };
        let sent = Sent {
            attempt: *attempt,
            parameters: report.parameters.clone(),
            started_at: report.started_at,
        };
        self.requests.sent.insert(ix, sent);
        if self.is_child(ix) {
            self.linger(step.at);
        }
        let Some(offer) = report.success().and_then(|success| success.offer.clone()) else {
            return;
        };
        let planned = self.compiled.plan.node(ix);
        let Kind::Request { answer, .. } = &planned.kind else {
            return;
        };
        let (kind, outcomes) = match answer {
            AnswerRule::Approval { outcomes } => (ItemKind::Approval, Some(outcomes)),
            AnswerRule::Outcome { outcomes } => (ItemKind::Decision, Some(outcomes)),
            AnswerRule::Any | AnswerRule::State | AnswerRule::Child | AnswerRule::Children(_) => (ItemKind::Task, None),
        };
        let mut details = offer.details;
        let title = planned.title.as_deref().unwrap_or(node.as_str());
        details.entry("title").or_insert_with(|| title.into());
        details.extend(outcomes.map(|outcomes| ("outcomes".to_owned(), json!(outcomes))));
        if let Phase::Open(open) = &self.run.node(ix).phase {
            details.insert("writers".to_owned(), json!(writer_ranges(&self.run, open.sees)));
            details.insert("sees".to_owned(), json!(open.sees));
        }
        self.shared.metrics.inbox.offered.inc();
        step.waits.push(WaitChange::Offer {
            node: node.clone(),
            attempt: *attempt,
            item: InboxItem {
                id: self.shared.ids.next(),
                kind,
                queue: offer.queue.unwrap_or_else(|| self.compiled.plan.workflow.clone()),
                tenant: self.meta.tenant.to_string(),
                workflow_id: self.compiled.plan.workflow.clone(),
                details: Value::Object(details).to_string(),
            },
        });
    }
}

/// A time as the API writes it.
fn iso(at: Timestamp) -> String {
    format!("{:.3}", jiff::Timestamp::from_microsecond(at.0).unwrap_or_default())
}

/// Makes parameters as they are recorded: they name the position of the state and do not contain it.
pub(super) fn with_position(parameters: &mut Value, sees: u32) {
    if let Value::Object(members) = parameters {
        members.insert("state".to_owned(), json!({ "asOf": sees }));
    }
}
