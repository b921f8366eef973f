//! The rows of flow control that a batch writes (see [`crate::flow`]).

use super::{InsertedRun, Returning, Writes};
use crate::{
    flow::{RunFlow, rules::KeyRow},
    postgres::{columns::small, pipeline::Query, sql::Statements},
    runs::NewRun,
};
use fermata_core::{RunId, Timestamp};

/// The columns of flow control.
#[derive(Debug, Clone)]
pub(in crate::postgres) struct FlowColumns {
    pub(in crate::postgres) text: String,
    pub(in crate::postgres) step: &'static str,
    pub(in crate::postgres) held: i32,
    pub(in crate::postgres) waiting: Option<String>,
}

impl FlowColumns {
    pub(in crate::postgres) fn of(flow: &RunFlow) -> FlowColumns {
        FlowColumns {
            text: flow.flow.text(),
            step: flow.step.as_str(),
            held: small(flow.held),
            waiting: flow.waiting.clone(),
        }
    }
}

/// A start whose payload another run takes.
#[derive(Debug)]
pub(in crate::postgres) struct Merge<'a> {
    /// The position of the member.
    pub(in crate::postgres) member: usize,
    pub(in crate::postgres) into: RunId,
    /// The start, or the run that was stored before it asked.
    pub(in crate::postgres) start: Option<&'a NewRun>,
    pub(in crate::postgres) source: Option<RunId>,
    pub(in crate::postgres) wake_at: Timestamp,
}

impl<'a> Writes<'a> {
    /// The new runs, or none if no run of the batch has flow control.
    pub(super) fn limited_runs(&self) -> &[InsertedRun<'a>] {
        match self.runs.iter().any(|run| run.flow.is_some()) {
            true => &self.runs,
            false => &[],
        }
    }

    /// Flow control. Places are given after everything that takes or frees them.
    pub(super) fn flow_queries(&self, sql: &'a Statements, queries: &mut Vec<Query<'a>>, returning: &mut Returning) {
        if !self.kept_requests.is_empty() {
            let kept = &self.kept_requests;
            let query = Query::new(&sql.keep_requests)
                .column(kept, |(run, _)| run.tenant.as_str())
                .column(kept, |(run, _)| run.request_id.as_str())
                .column(kept, |(_, owner)| owner.0)
                .column(kept, |(run, _)| run.created_at.0);
            queries.push(query);
        }
        if !self.merges.is_empty() {
            let merges = &self.merges;
            returning.merged = Some(queries.len());
            let query = Query::new(&sql.merge_runs)
                .column(merges, |merge| merge.into.0)
                .column(merges, |merge| merge.start.map(|run| run.trigger.as_str()))
                .column(merges, |merge| merge.start.and_then(|run| run.spec.as_deref()))
                .column(merges, |merge| merge.source.map(|run| run.0))
                .column(merges, |merge| merge.wake_at.0)
                .column(merges, |merge| merge.start.map(|run| run.tenant.as_str()))
                .column(merges, |merge| merge.start.map(|run| run.request_id.as_str()))
                .column(merges, |merge| merge.start.map(|run| run.created_at.0))
                .column(merges, |merge| merge.start.and_then(|run| run.request.as_deref()));
            queries.push(query);
        }
        if !self.taken_places.is_empty() {
            let taken = &self.taken_places;
            let query = Query::new(&sql.take_places)
                .column(taken, |place| place.0.clone())
                .column(taken, |place| place.1)
                .column(taken, |place| place.2)
                .column(taken, |place| place.3);
            queries.push(query);
        }
        if !self.put_keys.is_empty() {
            let rows: Vec<(&String, &KeyRow)> = self.put_keys.iter().collect();
            let query = Query::new(&sql.put_keys)
                .column(&rows, |(key, _)| (*key).clone())
                .column(&rows, |(_, row)| row.run.map(|run| run.0))
                .column(&rows, |(_, row)| row.begin.map(|at| at.0))
                .column(&rows, |(_, row)| small(row.counted))
                .column(&rows, |(_, row)| row.expires_at.map(|at| at.0));
            queries.push(query);
        }
        if !self.freed_places.is_empty() {
            returning.handed = Some(queries.len());
            let freed: Vec<(&String, &i32)> = self.freed_places.iter().collect();
            let query = Query::new(&sql.hand_over)
                .column(&freed, |(key, _)| (*key).clone())
                .column(&freed, |(_, count)| **count);
            queries.push(query.bind(self.handed_at.0));
        }
        if !self.touched_keys.is_empty() {
            let touched: Vec<String> = self.touched_keys.iter().cloned().collect();
            queries.push(Query::new(&sql.drop_keys).bind(touched));
        }
    }
}
