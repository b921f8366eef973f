//! Triggers, deliveries and events.
//!
//! What must stay true: a method is one transaction, so a schedule is never advanced without its deliveries, and an event is
//! never stored without its own.

use super::{
    SqliteStore,
    columns::{Col, get, key, maybe, run_id, uid_key},
    writer::Tx,
};
use crate::{
    Result,
    definitions::{Lifecycle, Workflow},
    reads::Page,
    triggers::{
        Delivered, DeliveryFilter, DueTrigger, Fire, LastDelivery, Recorded, Settled, StoredEvent, Trigger,
        TriggerDelivery, TriggerFilter, TriggerStore, TriggerWork, declared, first_id_at,
        statements::{self as sql, delivery_columns},
    },
};
use async_trait::async_trait;
use fermata_core::{RunId, Status, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, params};
use uuid::Uuid;

/// Writes nothing if the occurrence has a delivery.
const INSERT_DELIVERY: &str = concat!(
    "INSERT INTO trigger_deliveries (",
    delivery_columns!(),
    ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13) ON CONFLICT (trigger_id, occurrence) DO NOTHING"
);

/// The delivery of a run that was just stored. An earlier one of the occurrence, which started nothing, is replaced.
const STARTED: &str = concat!(
    "INSERT INTO trigger_deliveries (",
    delivery_columns!(),
    ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13) ON CONFLICT (trigger_id, occurrence) DO UPDATE SET
    id = excluded.id, state = excluded.state, run_id = excluded.run_id, reason = NULL, saw_json = NULL,
    payload_json = excluded.payload_json, request_json = excluded.request_json, retry_at = NULL WHERE state <> 'started'"
);

pub(super) const TAKE: &str = concat!(
    "SELECT ",
    delivery_columns!(),
    " FROM trigger_deliveries WHERE retry_at <= ?1 ORDER BY retry_at LIMIT ?2"
);

const TAKEN: &str = "UPDATE trigger_deliveries SET retry_at = ?3 WHERE trigger_id = ?1 AND occurrence = ?2";

const ADVANCE: &str = "UPDATE workflow_triggers SET fired_until = ?2, next_fire_at = ?3, last_occurrence = ?4,
    last_run_id = ?5, last_at = ?6 WHERE id = ?1";

const STATE_OF: &str = "SELECT state, run_id FROM trigger_deliveries WHERE trigger_id = ?1 AND occurrence = ?2";

const STATUS_OF: &str = "SELECT status FROM workflow_executions WHERE id = ?1";

pub(super) const PRUNE_DELIVERIES: &str = "DELETE FROM trigger_deliveries WHERE id IN
    (SELECT id FROM trigger_deliveries WHERE id < ?1 AND retry_at IS NULL ORDER BY id LIMIT ?2)";

pub(super) const PRUNE_EVENTS: &str = "DELETE FROM trigger_events WHERE (tenant_id, source, event_id) IN
    (SELECT tenant_id, source, event_id FROM trigger_events WHERE received_at < ?1 AND is_matched ORDER BY received_at LIMIT ?2)";

#[async_trait]
impl TriggerStore for SqliteStore {
    async fn create_trigger(&self, trigger: Trigger) -> Result<bool> {
        self.writer.write(move |tx| create(tx, &trigger)).await
    }

    async fn update_trigger(&self, trigger: Trigger) -> Result<bool> {
        self.writer.write(move |tx| update(tx, &trigger)).await
    }

    async fn delete_trigger(&self, id: Uuid) -> Result<bool> {
        self.writer
            .write(move |tx| Ok(tx.connection.prepare_cached(sql::DELETE)?.execute([uid_key(&id)])? > 0))
            .await
    }

    async fn rotate_segment(&self, id: Uuid, segment: Uuid, until: Timestamp, at: Timestamp) -> Result<bool> {
        let rotate = move |tx: &mut Tx<'_>| {
            let mut statement = tx.connection.prepare_cached(sql::ROTATE)?;
            Ok(statement.execute(params![uid_key(&id), uid_key(&segment), until.0, at.0])? > 0)
        };
        self.writer.write(rotate).await
    }

    async fn trigger(&self, id: Uuid) -> Result<Option<Trigger>> {
        self.readers
            .read(move |connection| one(connection, sql::TRIGGER, params![uid_key(&id)]))
            .await
    }

    async fn webhook(&self, segment: Uuid, now: Timestamp) -> Result<Option<Trigger>> {
        self.readers
            .look_up(move |connection| one(connection, sql::WEBHOOK, params![uid_key(&segment), now.0]))
            .await
    }

    async fn triggers(&self, filter: TriggerFilter) -> Result<Page<Trigger>> {
        self.readers.read(move |connection| list(connection, &filter)).await
    }

    async fn event_triggers(&self, tenant: &str, event_type: &str) -> Result<Vec<Trigger>> {
        let (tenant, event_type) = (tenant.to_owned(), event_type.to_owned());
        self.readers
            .read(move |connection| all(connection, sql::OF_EVENT, params![tenant, event_type]))
            .await
    }

    async fn fire_due(&self, now: Timestamp, limit: u32, fire: Fire) -> Result<Vec<Delivered>> {
        self.writer.write(move |tx| fire_due(tx, now, limit, &fire)).await
    }

    async fn add_delivery(&self, delivery: TriggerDelivery) -> Result<Option<TriggerDelivery>> {
        let add = move |tx: &mut Tx<'_>| match insert(tx, &delivery)? {
            true => Ok(None),
            false => occurrence(tx.connection, delivery.trigger, &delivery.occurrence),
        };
        self.writer.write(add).await
    }

    async fn take_deliveries(&self, now: Timestamp, until: Timestamp, limit: u32) -> Result<Vec<TriggerDelivery>> {
        let take = move |tx: &mut Tx<'_>| {
            let mut statement = tx.connection.prepare_cached(TAKE)?;
            let rows = statement.query_map(params![now.0, limit], delivery_row)?;
            let mut taken = rows.collect::<rusqlite::Result<Vec<_>>>()?;
            for delivery in &mut taken {
                delivery.retry_at = Some(until);
                tx.execute(TAKEN, params![uid_key(&delivery.trigger), delivery.occurrence, until.0])?;
            }
            Ok(taken)
        };
        self.writer.write(take).await
    }

    async fn settle_delivery(&self, trigger: Uuid, occurrence: &str, settled: Settled) -> Result<bool> {
        let occurrence = occurrence.to_owned();
        self.writer
            .write(move |tx| settle(tx, trigger, &occurrence, &settled))
            .await
    }

    async fn delivery(&self, id: Uuid) -> Result<Option<TriggerDelivery>> {
        let read = move |connection: &Connection| {
            let mut statement = connection.prepare_cached(sql::DELIVERY)?;
            statement.query_row([uid_key(&id)], delivery_row).optional()
        };
        self.readers.read(read).await
    }

    async fn occurrence(&self, trigger: Uuid, name: &str) -> Result<Option<TriggerDelivery>> {
        let name = name.to_owned();
        self.readers
            .read(move |connection| occurrence(connection, trigger, &name))
            .await
    }

    async fn deliveries(&self, filter: DeliveryFilter) -> Result<Page<TriggerDelivery>> {
        self.readers
            .read(move |connection| deliveries(connection, &filter))
            .await
    }

    async fn record_events(
        &self,
        events: Vec<(StoredEvent, Vec<TriggerDelivery>)>,
        duplicate_after: Timestamp,
    ) -> Result<Vec<Recorded>> {
        let record = move |tx: &mut Tx<'_>| {
            let mut answers = Vec::with_capacity(events.len());
            for (event, deliveries) in &events {
                let stored = tx.execute(
                    sql::INSERT_EVENT,
                    params![
                        event.tenant,
                        event.source,
                        event.id,
                        event.event_type,
                        event.received_at.0,
                        event.attributes,
                        duplicate_after.0,
                    ],
                )?;
                if stored == 0 {
                    answers.push(Recorded::Duplicate);
                    continue;
                }
                for delivery in deliveries {
                    insert(tx, delivery)?;
                }
                answers.push(Recorded::Stored);
            }
            Ok(answers)
        };
        self.writer.write(record).await
    }

    async fn unmatched_events(&self, limit: u32) -> Result<Vec<StoredEvent>> {
        let read = move |connection: &Connection| {
            let mut statement = connection.prepare_cached(sql::UNMATCHED)?;
            let rows = statement.query_map([limit], event_row)?;
            rows.collect()
        };
        self.readers.read(read).await
    }

    async fn match_event(&self, event: StoredEvent, deliveries: Vec<TriggerDelivery>) -> Result<bool> {
        let matched = move |tx: &mut Tx<'_>| {
            if tx.execute(sql::MATCH_EVENT, params![event.tenant, event.source, event.id])? == 0 {
                return Ok(false);
            }
            for delivery in &deliveries {
                insert(tx, delivery)?;
            }
            Ok(true)
        };
        self.writer.write(matched).await
    }

    async fn trigger_work(&self) -> Result<TriggerWork> {
        let read = |connection: &Connection| {
            let first = |sql: &str| -> rusqlite::Result<Option<Timestamp>> {
                connection
                    .prepare_cached(sql)?
                    .query_row([], |row| get(row, 0))
                    .optional()
            };
            Ok(TriggerWork {
                next_fire: first(sql::NEXT_FIRE)?,
                next_delivery: first(sql::NEXT_DELIVERY)?,
                has_unmatched: connection.prepare_cached(sql::UNMATCHED)?.exists([1])?,
            })
        };
        self.readers.read(read).await
    }

    async fn prune_triggers(&self, before: Timestamp, limit: u32) -> Result<u64> {
        let prune = move |tx: &mut Tx<'_>| {
            let deliveries = tx.execute(PRUNE_DELIVERIES, params![uid_key(&first_id_at(before)), limit])?;
            let events = tx.execute(PRUNE_EVENTS, params![before.0, limit])?;
            Ok((deliveries + events) as u64)
        };
        self.writer.write(prune).await
    }
}

fn create(tx: &mut Tx<'_>, trigger: &Trigger) -> rusqlite::Result<bool> {
    let stored = tx.connection.prepare_cached(sql::CREATE)?.execute(params![
        uid_key(&trigger.id),
        uid_key(&trigger.workflow_uid),
        trigger.workflow_id,
        trigger.tenant,
        trigger.kind.as_str(),
        trigger.name,
        trigger.enabled,
        trigger.disabled_by_archive,
        trigger.config,
        trigger.condition,
        trigger.segment.as_ref().map(uid_key),
        trigger.event_type,
        trigger.fired_until.map(|at| at.0),
        trigger.next_fire_at.map(|at| at.0),
        trigger.created_at.0,
        trigger.updated_at.0,
    ])?;
    Ok(stored > 0)
}

fn update(tx: &mut Tx<'_>, trigger: &Trigger) -> rusqlite::Result<bool> {
    let changed = tx.connection.prepare_cached(sql::UPDATE)?.execute(params![
        uid_key(&trigger.id),
        trigger.kind.as_str(),
        trigger.enabled,
        trigger.disabled_by_archive,
        trigger.config,
        trigger.condition,
        trigger.segment.as_ref().map(uid_key),
        trigger.event_type,
        trigger.fired_until.map(|at| at.0),
        trigger.next_fire_at.map(|at| at.0),
        trigger.updated_at.0,
    ])?;
    Ok(changed > 0)
}

/// Makes the declared triggers of a workflow those of this plan, which is current now. `before` is the plan that was current.
pub(super) fn reconcile(
    tx: &mut Tx<'_>,
    workflow: &Workflow,
    before: &str,
    plan: &str,
    at: Timestamp,
) -> rusqlite::Result<()> {
    let there = all(tx.connection, sql::OF_WORKFLOW, params![uid_key(&workflow.uid)])?;
    let changes = declared::reconcile(workflow, there, &declared::of_plan(before), declared::of_plan(plan), at);
    for id in &changes.removed {
        tx.connection.prepare_cached(sql::DELETE)?.execute([uid_key(id)])?;
    }
    for trigger in &changes.created {
        create(tx, trigger)?;
    }
    for trigger in &changes.changed {
        update(tx, trigger)?;
    }
    Ok(())
}

/// Disables or enables the triggers of a workflow whose state changed.
pub(super) fn follow(
    tx: &mut Tx<'_>,
    uid: Uuid,
    before: Lifecycle,
    after: Lifecycle,
    at: Timestamp,
) -> rusqlite::Result<()> {
    if before == after {
        return Ok(());
    }
    let there = all(tx.connection, sql::OF_WORKFLOW, params![uid_key(&uid)])?;
    for trigger in declared::follow(there, before, after, at) {
        update(tx, &trigger)?;
    }
    Ok(())
}

/// Stores the delivery of a run that was just stored.
pub(super) fn started(tx: &mut Tx<'_>, delivery: &TriggerDelivery) -> rusqlite::Result<()> {
    write_delivery(tx, STARTED, delivery)?;
    Ok(())
}

/// False if the occurrence has a delivery.
fn insert(tx: &mut Tx<'_>, delivery: &TriggerDelivery) -> rusqlite::Result<bool> {
    write_delivery(tx, INSERT_DELIVERY, delivery)
}

fn write_delivery(tx: &mut Tx<'_>, sql: &'static str, delivery: &TriggerDelivery) -> rusqlite::Result<bool> {
    let written = tx.execute(
        sql,
        params![
            uid_key(&delivery.id),
            uid_key(&delivery.trigger),
            delivery.occurrence,
            delivery.tenant,
            delivery.received_at.0,
            delivery.state.as_str(),
            key(&delivery.run),
            delivery.reason,
            delivery.saw,
            delivery.payload,
            delivery.request,
            delivery.after,
            delivery.retry_at.map(|at| at.0),
        ],
    )?;
    Ok(written > 0)
}

fn fire_due(tx: &mut Tx<'_>, now: Timestamp, limit: u32, fire: &Fire) -> rusqlite::Result<Vec<Delivered>> {
    let mut fired = Vec::new();
    for trigger in all(tx.connection, sql::DUE, params![now.0, limit])? {
        let (is_running, is_queued) = running(tx, &trigger)?;
        let mut due = DueTrigger {
            trigger,
            now,
            is_running,
            is_queued,
        };
        let firing = fire(&due);
        for delivery in firing.deliveries {
            if !insert(tx, &delivery)? {
                continue;
            }
            due.trigger.last = LastDelivery::of(&delivery).or(due.trigger.last);
            fired.push(Delivered {
                trigger: due.trigger.clone(),
                delivery,
            });
        }
        let (until, next) = (firing.fired_until.map(|at| at.0), firing.next_fire_at.map(|at| at.0));
        let last = due.trigger.last.as_ref();
        let advance = params![
            uid_key(&due.trigger.id),
            until,
            next,
            last.map(|last| last.occurrence.as_str()),
            last.map(|last| key(&last.run)),
            last.map(|last| last.at.0)
        ];
        tx.execute(ADVANCE, advance)?;
    }
    Ok(fired)
}

/// Whether the last delivery of a schedule, or its run, has not ended; and whether it is queued.
fn running(tx: &mut Tx<'_>, trigger: &Trigger) -> rusqlite::Result<(bool, bool)> {
    let Some(last) = &trigger.last else {
        return Ok((false, false));
    };
    let delivery = tx.query_row(STATE_OF, params![uid_key(&trigger.id), last.occurrence], |row| {
        Ok((get(row, 0)?, run_id(row, 1)?))
    })?;
    let run = delivery.map_or(last.run, |(_, run)| run);
    let status: Option<Status> = tx.query_row(STATUS_OF, [key(&run)], |row| get(row, 0))?;
    Ok(last.running(delivery.map(|(state, _)| state), status))
}

fn settle(tx: &mut Tx<'_>, trigger: Uuid, occurrence: &str, settled: &Settled) -> rusqlite::Result<bool> {
    let changed = match settled {
        Settled::Later(at) => tx.execute(sql::LATER, params![uid_key(&trigger), occurrence, at.0])?,
        Settled::Started { run, keeps_payload } => tx.execute(
            sql::SETTLE,
            params![
                uid_key(&trigger),
                occurrence,
                "started",
                key(run),
                None::<&str>,
                None::<&str>,
                !keeps_payload
            ],
        )?,
        Settled::Ended { state, reason, saw } => tx.execute(
            sql::SETTLE,
            params![
                uid_key(&trigger),
                occurrence,
                state.as_str(),
                None::<&[u8]>,
                reason,
                saw,
                false
            ],
        )?,
    };
    Ok(changed > 0)
}

fn one(connection: &Connection, sql: &str, params: impl rusqlite::Params) -> rusqlite::Result<Option<Trigger>> {
    connection
        .prepare_cached(sql)?
        .query_row(params, trigger_row)
        .optional()
}

fn all(connection: &Connection, sql: &str, params: impl rusqlite::Params) -> rusqlite::Result<Vec<Trigger>> {
    connection
        .prepare_cached(sql)?
        .query_map(params, trigger_row)?
        .collect()
}

/// The filter is applied here, as for lists of workflows.
fn list(connection: &Connection, filter: &TriggerFilter) -> rusqlite::Result<Page<Trigger>> {
    let after = filter.after.unwrap_or(Uuid::nil());
    let after = uid_key(&after);
    let every = i64::MAX;
    let (sql, of): (&str, rusqlite::types::Value) = match (&filter.workflow_uid, &filter.tenant) {
        (Some(uid), _) => (sql::LIST_OF_WORKFLOW, uid_key(uid).to_vec().into()),
        (None, Some(tenant)) => (sql::LIST_OF_TENANT, tenant.clone().into()),
        (None, None) => (sql::LIST, rusqlite::types::Value::Null),
    };
    let mut statement = connection.prepare_cached(sql)?;
    let rows = match of {
        rusqlite::types::Value::Null => statement.query_map(params![after, every], trigger_row)?,
        of => statement.query_map(params![after, every, of], trigger_row)?,
    };
    let fitting = rows.filter(|row| row.as_ref().map_or(true, |trigger| filter.fits(trigger)));
    let items = fitting
        .take(filter.limit as usize + 1)
        .collect::<rusqlite::Result<Vec<_>>>()?;
    Ok(Page::cut(items, filter.limit))
}

fn trigger_row(row: &Row<'_>) -> rusqlite::Result<Trigger> {
    let old: Option<Uuid> = maybe(row, 11)?;
    let old_until: Option<Timestamp> = maybe(row, 12)?;
    let (occurrence, run, at): (Option<String>, Option<Uuid>, Option<Timestamp>) =
        (row.get(16)?, maybe(row, 17)?, maybe(row, 18)?);
    Ok(Trigger {
        id: get(row, 0)?,
        workflow_uid: get(row, 1)?,
        workflow_id: row.get(2)?,
        tenant: row.get(3)?,
        kind: get(row, 4)?,
        name: row.get(5)?,
        enabled: row.get(6)?,
        disabled_by_archive: row.get(7)?,
        config: row.get(8)?,
        condition: row.get(9)?,
        segment: maybe(row, 10)?,
        old_segment: old.zip(old_until),
        event_type: row.get(13)?,
        fired_until: maybe(row, 14)?,
        next_fire_at: maybe(row, 15)?,
        last: LastDelivery::read(occurrence, run.map(RunId), at),
        created_at: get(row, 19)?,
        updated_at: get(row, 20)?,
    })
}

fn delivery_row(row: &Row<'_>) -> rusqlite::Result<TriggerDelivery> {
    let Col(trigger) = row.get::<_, Col<Uuid>>(1)?;
    Ok(TriggerDelivery {
        id: get(row, 0)?,
        trigger,
        occurrence: row.get(2)?,
        tenant: row.get(3)?,
        received_at: get(row, 4)?,
        state: get(row, 5)?,
        run: run_id(row, 6)?,
        reason: row.get(7)?,
        saw: row.get(8)?,
        payload: row.get(9)?,
        request: row.get(10)?,
        after: row.get(11)?,
        retry_at: maybe(row, 12)?,
    })
}

fn event_row(row: &Row<'_>) -> rusqlite::Result<StoredEvent> {
    Ok(StoredEvent {
        tenant: row.get(0)?,
        source: row.get(1)?,
        id: row.get(2)?,
        event_type: row.get(3)?,
        received_at: get(row, 4)?,
        attributes: row.get(5)?,
        data: row.get(6)?,
    })
}

fn occurrence(connection: &Connection, trigger: Uuid, name: &str) -> rusqlite::Result<Option<TriggerDelivery>> {
    let mut statement = connection.prepare_cached(sql::OCCURRENCE)?;
    statement
        .query_row(params![uid_key(&trigger), name], delivery_row)
        .optional()
}

fn deliveries(connection: &Connection, filter: &DeliveryFilter) -> rusqlite::Result<Page<TriggerDelivery>> {
    let before = filter.before.unwrap_or(Uuid::max());
    let mut statement = connection.prepare_cached(sql::DELIVERIES)?;
    let rows = statement.query_map(
        params![uid_key(&filter.trigger), uid_key(&before), i64::MAX],
        delivery_row,
    )?;
    let wanted = |delivery: &TriggerDelivery| filter.state.is_none_or(|state| state == delivery.state);
    let fitting = rows.filter(|row| row.as_ref().map_or(true, wanted));
    let items = fitting.take(filter.limit as usize + 1);
    Ok(Page::cut(items.collect::<rusqlite::Result<_>>()?, filter.limit))
}
