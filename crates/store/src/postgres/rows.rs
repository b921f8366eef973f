//! The rows that a batch writes, by table. Each list is sent as one statement, with one array for each column.

mod flow;

use super::{
    columns::{signed, small, text},
    facts::RunRow,
    hints::Notifications,
    pipeline::Query,
    sql::Statements,
};
use crate::{
    children::Parent,
    dead_letters::DeadLetter,
    fields::RunField,
    flow::rules::KeyRow,
    inbox::InboxItem,
    rules::first_status,
    runs::{Attempt, Link, LocalStart, NewRun, StatusChange, WaitChange},
    triggers::TriggerDelivery,
};
use fermata_core::{NodeId, RunId, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use tokio_postgres::Statement;
use uuid::Uuid;

pub(super) use flow::{FlowColumns, Merge};

/// Everything that a batch writes, and the notifications to send after the commit.
#[derive(Debug, Default)]
pub(super) struct Writes<'a> {
    pub(super) runs: Vec<InsertedRun<'a>>,
    /// Journal rows and waits of new runs of this batch. They are written only if the run is inserted.
    pub(super) first_events: Events<'a>,
    pub(super) first_waits: Waits<'a>,
    pub(super) events: Events<'a>,
    pub(super) attempts: Vec<(RunId, &'a Attempt)>,
    /// Nodes whose attempts new runs keep: new run, the run that it repeats, node. Written only if the run is inserted.
    pub(super) copied: Vec<(RunId, RunId, &'a str)>,
    pub(super) links: Vec<(RunId, &'a Link, Timestamp)>,
    /// Deliveries of new runs of this batch. Written only if the run is inserted.
    pub(super) deliveries: Vec<&'a TriggerDelivery>,
    /// Searchable fields of new runs of this batch. Written only if the run is inserted.
    pub(super) fields: Vec<(&'a NewRun, &'a RunField)>,
    /// Nodes whose waits are closed. Written before `waits`.
    pub(super) closed: Vec<(RunId, &'a str)>,
    pub(super) waits: Waits<'a>,
    pub(super) updates: Vec<RunUpdate<'a>>,
    /// Runs that are paused at this time, or resumed. Written after `updates`.
    pub(super) paused: Vec<(RunId, Option<i64>)>,
    /// Nodes whose waits get a deadline. Written after `waits`.
    pub(super) limits: Vec<(RunId, &'a str, i64)>,
    /// Runs that have ended: all their waits are closed.
    pub(super) ended: Vec<Uuid>,
    /// Runs whose run messages up to this sequence number are deleted.
    pub(super) read_messages: Vec<(RunId, i64)>,
    /// New run messages: run, sequence number, time, text.
    pub(super) messages: Vec<(RunId, i64, Timestamp, &'a str)>,
    /// Waits that are put into the inbox. Written after `waits`.
    pub(super) offers: Vec<OfferedWait<'a>>,
    pub(super) answers: Vec<AnsweredWait<'a>>,
    /// Ended children whose ends their parent has seen.
    pub(super) seen_children: Vec<Uuid>,
    /// Runs that are over, and whose ended children lose their marks.
    pub(super) forgetting: Vec<Uuid>,
    pub(super) dead_letters: Vec<&'a DeadLetter>,
    /// Cached states to write, and the runs whose cached states are removed.
    pub(super) states: Vec<(RunId, &'a str)>,
    pub(super) removed_states: Vec<Uuid>,
    /// Counted steps, by tenant and month. Written last, in this order.
    pub(super) usage: BTreeMap<(String, i32), i64>,
    /// Starts that were answered with another run.
    pub(super) kept_requests: Vec<(&'a NewRun, RunId)>,
    pub(super) merges: Vec<Merge<'a>>,
    /// Places that runs take: key, run (`None` if only the limit is set), limit and its version.
    pub(super) taken_places: Vec<(String, Option<Uuid>, i32, i32)>,
    /// Owners of keys, and windows of rates.
    pub(super) put_keys: BTreeMap<String, KeyRow>,
    /// Keys with places to give to waiting runs, and how many are freed.
    pub(super) freed_places: BTreeMap<String, i32>,
    /// Keys whose rows are deleted if they are free.
    pub(super) touched_keys: BTreeSet<String>,
    /// When places are given.
    pub(super) handed_at: Timestamp,
    pub(super) notifications: Notifications,
}

/// A new run as it is stored.
#[derive(Debug)]
pub(super) struct InsertedRun<'a> {
    pub(super) run: &'a NewRun,
    /// Not set if the run has to wait.
    pub(super) local_start: Option<&'a LocalStart>,
    /// Only with flow control.
    pub(super) wake_at: Option<Timestamp>,
    pub(super) flow: Option<FlowColumns>,
}

/// The statements of a batch.
pub(super) struct Queries<'a> {
    pub(super) queries: Vec<Query<'a>>,
    pub(super) returning: Returning,
}

/// The positions of statements whose rows are read.
#[derive(Debug, Default)]
pub(super) struct Returning {
    /// The ids of inserted runs.
    pub(super) inserted: Option<usize>,
    /// The ids of runs that took a payload.
    pub(super) merged: Option<usize>,
    /// The keys of places that were given to waiting runs.
    pub(super) handed: Option<usize>,
}

impl<'a> Writes<'a> {
    /// Sorts the rows with unique keys that other batches may insert as well. All batches use the same order, so they
    /// cannot deadlock.
    pub(super) fn in_order(&mut self) {
        self.runs
            .sort_by(|a, b| (&a.run.tenant, &a.run.request_id).cmp(&(&b.run.tenant, &b.run.request_id)));
        self.kept_requests
            .sort_by(|(a, _), (b, _)| (&a.tenant, &a.request_id).cmp(&(&b.tenant, &b.request_id)));
        let key = |link: &Link| {
            (
                link.system.clone(),
                link.resource_type.clone(),
                link.resource_id.clone(),
            )
        };
        self.links.sort_by_key(|(_, link, _)| key(link));
        self.deliveries
            .sort_by(|a, b| (a.trigger, &a.occurrence).cmp(&(b.trigger, &b.occurrence)));
    }
}

impl<'a> Writes<'a> {
    /// The statements to send, in the order of execution.
    pub(super) fn queries(&self, sql: &'a Statements) -> Queries<'a> {
        let mut queries = Vec::new();
        let mut returning = Returning::default();
        if !self.runs.is_empty() {
            returning.inserted = Some(queries.len());
            queries.push(self.insert_runs(&sql.insert_runs));
        }
        if !self.copied.is_empty() {
            let query = Query::new(&sql.copy_attempts).column(&self.copied, |copied| copied.0.0);
            let query = query.column(&self.copied, |copied| copied.1.0);
            queries.push(query.column(&self.copied, |copied| copied.2));
        }
        let lists = [
            (&self.first_events, &sql.insert_first_events),
            (&self.events, &sql.insert_events),
        ];
        for (events, statement) in lists.into_iter().filter(|(events, _)| !events.runs.is_empty()) {
            let query = Query::new(statement)
                .bind(events.runs.clone())
                .bind(events.seqs.clone());
            queries.push(query.bind(events.times.clone()).bind(events.texts.clone()));
        }
        if !self.attempts.is_empty() {
            queries.push(self.insert_attempts(&sql.insert_attempts));
        }
        if !self.links.is_empty() {
            queries.push(self.insert_links(&sql.insert_links));
        }
        if !self.deliveries.is_empty() {
            queries.push(self.insert_deliveries(&sql.insert_deliveries));
        }
        if !self.fields.is_empty() {
            let query = Query::new(&sql.insert_fields)
                .column(&self.fields, |(run, _)| run.id.0)
                .column(&self.fields, |(_, field)| field.field.as_str())
                .column(&self.fields, |(_, field)| text(&field.value));
            queries.push(query.column(&self.fields, |(run, _)| run.tenant.as_str()));
        }
        if !self.closed.is_empty() {
            let query = Query::new(&sql.close_waits).column(&self.closed, |wait| wait.0.0);
            queries.push(query.column(&self.closed, |wait| wait.1));
        }
        let lists = [
            (&self.first_waits, &sql.insert_first_waits),
            (&self.waits, &sql.open_waits),
        ];
        for (waits, statement) in lists.into_iter().filter(|(waits, _)| !waits.runs.is_empty()) {
            let query = Query::new(statement)
                .bind(waits.tokens.clone())
                .bind(waits.runs.clone());
            let query = query.bind(waits.nodes.clone()).bind(waits.open.clone());
            queries.push(query.bind(waits.attempts.clone()));
        }
        if !self.limits.is_empty() {
            let query = Query::new(&sql.limit_waits)
                .column(&self.limits, |limit| limit.0.0)
                .column(&self.limits, |limit| limit.1);
            queries.push(query.column(&self.limits, |limit| limit.2));
        }
        if !self.offers.is_empty() {
            queries.push(self.offer_waits(&sql.offer_waits));
        }
        if !self.ended.is_empty() {
            queries.push(Query::new(&sql.close_all_waits).bind(self.ended.clone()));
        }
        self.message_queries(sql, &mut queries);
        if !self.dead_letters.is_empty() {
            queries.push(self.insert_dead_letters(&sql.insert_dead_letters));
        }
        if !self.states.is_empty() {
            let query = Query::new(&sql.set_states).column(&self.states, |state| state.0.0);
            queries.push(query.column(&self.states, |state| state.1));
        }
        if !self.removed_states.is_empty() {
            queries.push(Query::new(&sql.remove_states).bind(self.removed_states.clone()));
        }
        if !self.seen_children.is_empty() {
            queries.push(Query::new(&sql.see_children).bind(self.seen_children.clone()));
        }
        if !self.forgetting.is_empty() {
            queries.push(Query::new(&sql.forget_ended).bind(self.forgetting.clone()));
        }
        if !self.updates.is_empty() {
            queries.push(self.update_runs(&sql.update_runs));
        }
        if !self.paused.is_empty() {
            let query = Query::new(&sql.set_paused).column(&self.paused, |paused| paused.0.0);
            queries.push(query.column(&self.paused, |paused| paused.1));
        }
        if !self.usage.is_empty() {
            let tenants: Vec<String> = self.usage.keys().map(|(tenant, _)| tenant.clone()).collect();
            let months: Vec<i32> = self.usage.keys().map(|(_, month)| *month).collect();
            let steps: Vec<i64> = self.usage.values().copied().collect();
            let query = Query::new(&sql.count_usage).bind(tenants);
            queries.push(query.bind(months).bind(steps));
        }
        self.flow_queries(sql, &mut queries, &mut returning);
        Queries { queries, returning }
    }

    fn message_queries(&self, sql: &'a Statements, queries: &mut Vec<Query<'a>>) {
        if !self.read_messages.is_empty() {
            let query = Query::new(&sql.drop_messages).column(&self.read_messages, |read| read.0.0);
            queries.push(query.column(&self.read_messages, |read| read.1));
        }
        if !self.messages.is_empty() {
            let query = Query::new(&sql.insert_messages)
                .column(&self.messages, |message| message.0.0)
                .column(&self.messages, |message| message.1)
                .column(&self.messages, |message| message.2.0)
                .column(&self.messages, |message| message.3);
            queries.push(query);
        }
        if !self.answers.is_empty() {
            let query = Query::new(&sql.answer_waits)
                .column(&self.answers, |answer| answer.token)
                .column(&self.answers, |answer| answer.payload)
                .column(&self.answers, |answer| answer.seq)
                .column(&self.answers, |answer| answer.by.map(text))
                .column(&self.answers, |answer| answer.at.0);
            queries.push(query);
        }
    }

    fn offer_waits(&self, statement: &'a Statement) -> Query<'a> {
        let offers = &self.offers;
        Query::new(statement)
            .column(offers, |offer| offer.run.0)
            .column(offers, |offer| offer.node)
            .column(offers, |offer| small(offer.attempt))
            .column(offers, |offer| offer.item.id)
            .column(offers, |offer| text(&offer.item.queue))
            .column(offers, |offer| offer.item.tenant.as_str())
            .column(offers, |offer| offer.item.workflow_id.as_str())
            .column(offers, |offer| offer.item.kind.as_str())
            .column(offers, |offer| offer.item.details.as_str())
            .column(offers, |offer| offer.at.0)
    }

    fn insert_deliveries(&self, statement: &'a Statement) -> Query<'a> {
        let deliveries = &self.deliveries;
        Query::new(statement)
            .column(deliveries, |delivery| delivery.id)
            .column(deliveries, |delivery| delivery.trigger)
            .column(deliveries, |delivery| delivery.occurrence.as_str())
            .column(deliveries, |delivery| delivery.tenant.as_str())
            .column(deliveries, |delivery| delivery.received_at.0)
            .column(deliveries, |delivery| delivery.run.0)
            .column(deliveries, |delivery| delivery.payload.as_deref().map(text))
            .column(deliveries, |delivery| delivery.request.as_deref().map(text))
    }

    fn insert_runs(&self, statement: &'a Statement) -> Query<'a> {
        let runs = &self.runs;
        let (limited, runs) = (
            self.limited_runs(),
            &runs.iter().map(|inserted| inserted.run).collect::<Vec<_>>(),
        );
        let children: &[Option<&Parent>] = &match runs.iter().any(|run| run.parent.is_some()) {
            true => runs.iter().map(|run| run.parent.as_ref()).collect(),
            false => Vec::new(),
        };
        let traced: &[&NewRun] = match runs.iter().any(|run| run.traceparent.is_some()) {
            true => runs,
            false => &[],
        };
        let triggered: &[&NewRun] = match runs.iter().any(|run| run.request.is_some()) {
            true => runs,
            false => &[],
        };
        let reruns: &[&NewRun] = match runs.iter().any(|run| run.rerun.is_some()) {
            true => runs,
            false => &[],
        };
        Query::new(statement)
            .column(runs, |run| run.id.0)
            .column(&self.runs, |inserted| first_status(inserted.local_start).as_str())
            .column(&self.runs, |inserted| {
                inserted.local_start.map(|local_start| local_start.runner.0)
            })
            .column(runs, |run| run.workflow_id.as_str())
            .column(runs, |run| small(run.workflow_version))
            .column(runs, |run| run.tenant.as_str())
            .column(runs, |run| run.request_id.as_str())
            .column(runs, |run| run.priority)
            .column(runs, |run| run.correlation_id.as_deref().map(text))
            .column(runs, |run| run.parent.as_ref().map(|parent| parent.run.0))
            .column(runs, |run| text(&run.principal.user_id))
            .column(runs, |run| run.principal.email.as_deref().map(text))
            .column(runs, |run| run.principal.display_name.as_deref().map(text))
            .column(runs, |run| run.created_at.0)
            .column(&self.runs, |inserted| {
                inserted.local_start.map(|local_start| local_start.started_at.0)
            })
            .column(runs, |run| run.trigger.as_str())
            .column(runs, |run| run.spec.as_deref())
            .column(runs, |run| run.workflow_uid)
            .column(children, |parent| {
                parent.and_then(|parent| parent.node.as_ref()).map(NodeId::as_str)
            })
            .column(children, |parent| parent.map(|parent| small(parent.attempt)))
            .column(children, |parent| parent.and_then(|parent| parent.item).map(small))
            .column(children, |parent| parent.filter(|parent| parent.waits).map(|_| true))
            .column(children, |parent| parent.map(|parent| small(parent.depth)))
            .column(children, |parent| parent.map(Parent::lineage_text))
            .column(traced, |run| run.traceparent.as_deref().map(text))
            .column(limited, |run| run.flow.as_ref().map(|flow| flow.text.clone()))
            .column(limited, |run| run.flow.as_ref().map(|flow| flow.step))
            .column(limited, |run| run.flow.as_ref().map(|flow| flow.held))
            .column(limited, |run| run.flow.as_ref().and_then(|flow| flow.waiting.clone()))
            .column(limited, |run| run.wake_at.map(|at| at.0))
            .column(triggered, |run| run.request.as_deref())
            .column(reruns, |run| run.rerun.as_ref().map(|rerun| rerun.source.run.0))
            .column(reruns, |run| run.rerun.as_ref().map(|rerun| rerun.source.root.0))
            .column(reruns, |run| run.rerun.as_ref().map(|rerun| rerun.text.as_str()))
    }

    fn insert_attempts(&self, statement: &'a Statement) -> Query<'a> {
        let attempts = &self.attempts;
        Query::new(statement)
            .column(attempts, |(run, _)| run.0)
            .column(attempts, |(_, attempt)| attempt.node.as_str())
            .column(attempts, |(_, attempt)| small(attempt.attempt))
            .column(attempts, |(_, attempt)| attempt.action_type.as_str())
            .column(attempts, |(_, attempt)| attempt.status.as_str())
            .column(attempts, |(_, attempt)| attempt.parameters.as_deref())
            .column(attempts, |(_, attempt)| attempt.outputs.as_deref())
            .column(attempts, |(_, attempt)| attempt.error.as_deref())
            .column(attempts, |(_, attempt)| attempt.started_at.map(|at| at.0))
            .column(attempts, |(_, attempt)| attempt.ended_at.0)
    }

    fn insert_links(&self, statement: &'a Statement) -> Query<'a> {
        let links = &self.links;
        Query::new(statement)
            .column(links, |(run, ..)| run.0)
            .column(links, |(_, link, _)| text(&link.system))
            .column(links, |(_, link, _)| text(&link.resource_type))
            .column(links, |(_, link, _)| text(&link.resource_id))
            .column(links, |(_, link, _)| link.node.as_str())
            .column(links, |(_, link, _)| small(link.attempt))
            .column(links, |(_, link, _)| link.url.as_deref().map(text))
            .column(links, |(.., at)| at.0)
    }

    fn insert_dead_letters(&self, statement: &'a Statement) -> Query<'a> {
        let dead_letters = &self.dead_letters;
        Query::new(statement)
            .column(dead_letters, |dead_letter| dead_letter.id)
            .column(dead_letters, |dead_letter| dead_letter.at.0)
            .column(dead_letters, |dead_letter| dead_letter.reason.as_str())
            .column(dead_letters, |dead_letter| dead_letter.run.0)
            .column(dead_letters, |dead_letter| dead_letter.workflow_id.as_str())
            .column(dead_letters, |dead_letter| small(dead_letter.workflow_version))
            .column(dead_letters, |dead_letter| dead_letter.tenant.as_str())
            .column(dead_letters, |dead_letter| small(dead_letter.attempts))
            .column(dead_letters, |dead_letter| dead_letter.last_error.as_deref().map(text))
            .column(dead_letters, |dead_letter| dead_letter.payload.as_str())
            .column(dead_letters, |dead_letter| dead_letter.workflow_uid)
    }

    fn update_runs(&self, statement: &'a Statement) -> Query<'a> {
        let updates = &self.updates;
        // Without flow control in the batch these columns are NULL.
        let limited: &[RunUpdate<'_>] = match updates.iter().any(|update| update.flow.is_some()) {
            true => updates,
            false => &[],
        };
        Query::new(statement)
            .column(updates, |update| update.run)
            .column(updates, |update| update.change.map(|change| change.status.as_str()))
            .column(updates, |update| {
                update.change.and_then(|change| change.started_at).map(|at| at.0)
            })
            .column(updates, |update| {
                update.change.and_then(|change| change.ended_at).map(|at| at.0)
            })
            .column(updates, |update| {
                update.change.and_then(|change| change.reason.as_deref())
            })
            .column(updates, |update| {
                update.change.and_then(|change| change.error.as_deref())
            })
            .column(updates, |update| {
                update.change.and_then(|change| change.outputs.as_deref())
            })
            .column(updates, |update| {
                update.change.and_then(|change| change.context_snapshot.as_deref())
            })
            .column(updates, |update| update.released)
            .column(updates, |update| update.wake_at)
            .column(updates, |update| update.message_seq)
            .column(updates, |update| update.messages_seen)
            .column(updates, |update| update.takeovers)
            .column(limited, |update| update.flow.as_ref().map(|flow| flow.text.clone()))
            .column(limited, |update| update.flow.as_ref().map(|flow| flow.step))
            .column(limited, |update| update.flow.as_ref().map(|flow| flow.held))
            .column(limited, |update| {
                update.flow.as_ref().and_then(|flow| flow.waiting.clone())
            })
    }
}

/// Journal rows.
#[derive(Debug, Default)]
pub(super) struct Events<'a> {
    pub(super) runs: Vec<Uuid>,
    pub(super) seqs: Vec<i32>,
    pub(super) times: Vec<i64>,
    pub(super) texts: Vec<&'a str>,
}

impl<'a> Events<'a> {
    pub(super) fn push(&mut self, run: RunId, seq: i32, at: Timestamp, text: &'a str) {
        self.runs.push(run.0);
        self.seqs.push(seq);
        self.times.push(at.0);
        self.texts.push(text);
    }
}

/// Waits to open.
#[derive(Debug, Default)]
pub(super) struct Waits<'a> {
    pub(super) tokens: Vec<&'a str>,
    pub(super) runs: Vec<Uuid>,
    pub(super) nodes: Vec<&'a str>,
    pub(super) open: Vec<bool>,
    pub(super) attempts: Vec<i32>,
}

impl<'a> Waits<'a> {
    /// Adds the waits that these changes open. A wait is inserted as closed if a later change closes it or if the run has
    /// `ended`.
    pub(super) fn open(&mut self, run: RunId, changes: &'a [WaitChange], ended: bool) {
        let first = self.tokens.len();
        for change in changes {
            match change {
                WaitChange::Open { node, attempt, token } => {
                    self.tokens.push(token);
                    self.runs.push(run.0);
                    self.nodes.push(node.as_str());
                    self.open.push(!ended);
                    self.attempts.push(small(*attempt));
                }
                WaitChange::Close { node } => {
                    for at in first..self.tokens.len() {
                        self.open[at] &= self.nodes[at] != node.as_str();
                    }
                }
                WaitChange::Limit { .. } | WaitChange::Offer { .. } => {}
            }
        }
    }
}

/// A wait that is put into the inbox.
#[derive(Debug)]
pub(super) struct OfferedWait<'a> {
    pub(super) run: RunId,
    pub(super) node: &'a str,
    pub(super) attempt: u32,
    pub(super) item: &'a InboxItem,
    pub(super) at: Timestamp,
}

/// An answered wait, with the sequence number of its run message.
#[derive(Debug)]
pub(super) struct AnsweredWait<'a> {
    pub(super) token: &'a str,
    pub(super) payload: &'a str,
    pub(super) seq: i64,
    pub(super) by: Option<&'a str>,
    pub(super) at: Timestamp,
}

/// The new values of a run's row.
#[derive(Debug, Clone)]
pub(super) struct RunUpdate<'a> {
    pub(super) run: Uuid,
    /// Fields that are `None` keep their values.
    pub(super) change: Option<&'a StatusChange>,
    /// Whether the lease is released.
    pub(super) released: bool,
    pub(super) wake_at: Option<i64>,
    pub(super) message_seq: i64,
    pub(super) messages_seen: i64,
    pub(super) takeovers: i32,
    pub(super) flow: Option<FlowColumns>,
}

impl RunUpdate<'_> {
    /// An update that changes nothing.
    pub(super) fn unchanged(run: RunId, row: &RunRow) -> Self {
        RunUpdate {
            run: run.0,
            change: None,
            released: false,
            wake_at: row.wake_at,
            message_seq: signed(row.facts.message_seq),
            messages_seen: signed(row.facts.messages_seen),
            takeovers: small(row.facts.takeovers),
            flow: row.flow.as_deref().map(FlowColumns::of),
        }
    }
}
