//! Database time counts: no sleep or wait ends before its time by the clock of the database, and no event has a time in the
//! future, although the clock of one runner is wrong.

use super::{Found, Rule};
use crate::chaos::evidence::{Evidence, Micros};
use fermata_core::{Event, Outcome, code, decode};
use std::collections::BTreeMap;
use uuid::Uuid;

/// The accuracy with which processes know the database's time.
const TOLERANCE: Micros = 1_000_000;

/// When a node is due, and whether a callback may end it earlier.
type Until = BTreeMap<String, (Micros, bool)>;

pub(super) fn check(evidence: &Evidence, found: &mut Found) {
    let written = evidence.written.iter();
    let written: BTreeMap<(Uuid, i32), Micros> = written.map(|row| ((row.run, row.seq), row.at)).collect();
    for (id, rows) in &evidence.runs {
        let mut until = Until::new();
        for (seq, text) in &rows.journal {
            let (Some(at), Ok(events)) = (written.get(&(*id, *seq)), decode(text)) else {
                continue; // reported by another rule
            };
            for event in events {
                event_at(*id, &event, *at, &mut until, found);
            }
        }
    }
}

fn event_at(id: Uuid, event: &Event, at: Micros, until: &mut Until, found: &mut Found) {
    let dated = match event {
        Event::Started { at, .. } | Event::Opened { at, .. } | Event::Ended { at, .. } => Some(at.0),
        _ => None,
    };
    found.ensure(
        dated.is_none_or(|dated| dated <= at + TOLERANCE),
        Rule::Clock,
        id,
        || format!("{event:?} was written at {at}"),
    );
    let node = event.node().map(|node| node.to_string()).unwrap_or_default();
    let end = match event {
        Event::Slept { until: end, .. } | Event::Opened { until: Some(end), .. } => {
            let answers = matches!(event, Event::Opened { .. });
            until.insert(node, (end.0, answers));
            return;
        }
        Event::Finished { outcome, .. } => match (until.remove(&node), outcome) {
            // A sleep may also time out. Every other failure of a sleep is a stop of its run.
            (Some((end, false)), Outcome::Succeeded(_)) => end,
            (Some((end, true)), Outcome::Failed(failure)) if failure.code == code::WAIT_TIMEOUT => end,
            _ => return,
        },
        _ => return,
    };
    found.ensure(end <= at + TOLERANCE, Rule::Clock, id, || {
        format!("{node} was to last until {end} and ended at {at}")
    });
}
