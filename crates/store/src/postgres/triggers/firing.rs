//! Fires due schedules: each is locked, its deliveries are inserted and it is advanced, in one transaction.

use super::{all, deliveries::insert};
use crate::{
    postgres::{
        columns::{maybe, plain},
        definitions::{execute, rows},
        error::PgError,
        sessions::commit,
    },
    triggers::{Delivered, DueTrigger, Fire, LastDelivery, Trigger, TriggerDelivery, statements as sql},
};
use deadpool_postgres::{Object, Transaction};
use fermata_core::Timestamp;
use std::collections::HashMap;
use uuid::Uuid;

/// The state of the last delivery of each schedule, and the status of its run.
pub(in crate::postgres) const LAST: &str = "SELECT u.id, d.state, COALESCE(
      (SELECT e.status FROM workflow_executions e WHERE e.id = d.run_id),
      (SELECT e.status FROM workflow_executions e WHERE e.id = u.run))
    FROM unnest($1::uuid[], $2::text[], $3::uuid[]) AS u (id, occurrence, run)
    LEFT JOIN LATERAL (SELECT state, run_id FROM trigger_deliveries
      WHERE trigger_id = u.id AND occurrence = u.occurrence LIMIT 1) d ON true";

const ADVANCE: &str = "UPDATE workflow_triggers t SET fired_until = u.fired_until, next_fire_at = u.next_fire_at,
      last_occurrence = u.occurrence, last_run_id = u.run, last_at = u.ts
    FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::text[], $5::uuid[], $6::bigint[])
      AS u (id, fired_until, next_fire_at, occurrence, run, ts)
    WHERE t.id = u.id";

pub(super) async fn fire_due(
    session: &mut Object,
    now: Timestamp,
    limit: u32,
    fire: &Fire,
) -> Result<Vec<Delivered>, PgError> {
    let tx = session.transaction().await?;
    let lock = format!("{} FOR UPDATE SKIP LOCKED", sql::DUE);
    let triggers = all(&tx, &lock, &[&now.0, &i64::from(limit)]).await?;
    if triggers.is_empty() {
        return Ok(Vec::new());
    }
    let running = running(&tx, &triggers).await?;
    let mut firings = Vec::with_capacity(triggers.len());
    for trigger in triggers {
        let (is_running, is_queued) = running.get(&trigger.id).copied().unwrap_or_default();
        let due = DueTrigger {
            trigger,
            now,
            is_running,
            is_queued,
        };
        firings.push((fire(&due), due.trigger));
    }
    let deliveries: Vec<&TriggerDelivery> = firings.iter().flat_map(|(firing, _)| &firing.deliveries).collect();
    let inserted = insert(&tx, &deliveries).await?;
    let is_new = |delivery: &TriggerDelivery| inserted.contains(&(delivery.trigger, delivery.occurrence.clone()));
    let mut fired = Vec::new();
    let mut advanced: Advanced = Default::default();
    for (firing, mut trigger) in firings {
        for delivery in firing.deliveries.into_iter().filter(|delivery| is_new(delivery)) {
            trigger.last = LastDelivery::of(&delivery).or(trigger.last);
            fired.push(Delivered {
                trigger: trigger.clone(),
                delivery,
            });
        }
        advanced.0.push(trigger.id);
        advanced.1.push(firing.fired_until.map(|at| at.0));
        advanced.2.push(firing.next_fire_at.map(|at| at.0));
        let last = trigger.last;
        advanced.3.push(last.as_ref().map(|last| last.occurrence.clone()));
        advanced.4.push(last.as_ref().map(|last| last.run.0));
        advanced.5.push(last.map(|last| last.at.0));
    }
    let (ids, untils, nexts, occurrences, runs, times) = &advanced;
    execute(&tx, ADVANCE, &[ids, untils, nexts, occurrences, runs, times]).await?;
    commit(tx).await?;
    Ok(fired)
}

/// The columns of [`ADVANCE`].
type Advanced = (
    Vec<Uuid>,
    Vec<Option<i64>>,
    Vec<Option<i64>>,
    Vec<Option<String>>,
    Vec<Option<Uuid>>,
    Vec<Option<i64>>,
);

/// Whether the last deliveries of schedules, or their runs, have not ended; and whether they are queued.
pub(super) async fn running(
    tx: &Transaction<'_>,
    triggers: &[Trigger],
) -> Result<HashMap<Uuid, (bool, bool)>, PgError> {
    let last: Vec<(Uuid, &LastDelivery)> = triggers
        .iter()
        .filter_map(|trigger| Some((trigger.id, trigger.last.as_ref()?)))
        .collect();
    if last.is_empty() {
        return Ok(HashMap::new());
    }
    let ids: Vec<Uuid> = last.iter().map(|(id, _)| *id).collect();
    let occurrences: Vec<&str> = last.iter().map(|(_, last)| last.occurrence.as_str()).collect();
    let runs: Vec<Uuid> = last.iter().map(|(_, last)| last.run.0).collect();
    let found = rows(tx, LAST, &[&ids, &occurrences, &runs]).await?;
    let by_id: HashMap<Uuid, &LastDelivery> = last.into_iter().collect();
    let mut running = HashMap::new();
    for row in &found {
        let id: Uuid = plain(row, 0)?;
        if let Some(last) = by_id.get(&id) {
            running.insert(id, last.running(maybe(row, 1)?, maybe(row, 2)?));
        }
    }
    Ok(running)
}
