//! Triggers, deliveries and events.
//!
//! What must stay true:
//! * A method that changes several rows is one transaction.
//! * Due schedules and due deliveries are locked with `SKIP LOCKED`: processes share them, and none waits for another.
//! * Events are inserted in the order of their keys, so that two processes that store the same ones do not deadlock. Their
//!   deliveries, and those of a schedule, are inserted under the lock of the event or of the schedule.

use super::{
    PostgresStore,
    columns::{get, maybe, plain, storable, text},
    definitions::{Params, execute, row, rows},
    error::PgError,
    sessions::{commit, patiently},
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
use deadpool_postgres::{GenericClient, Object, Transaction};
use fermata_core::{RunId, Timestamp};
use std::collections::{HashMap, HashSet};
use tokio_postgres::Row;
use uuid::Uuid;

/// How many triggers or deliveries a list reads per query while it applies the filter.
const PAGE: i64 = 500;

/// As in SQLite, with the types of the parameters.
const CREATE: &str = "INSERT INTO workflow_triggers (id, workflow_uid, workflow_id, tenant_id, trigger_type, name,
    is_enabled, disabled_by_archive, config_json, activation_condition, segment, event_type, fired_until, next_fire_at,
    created_at, updated_at)
    SELECT $1::uuid, uid, $3::text, $4::text, $5::text, $6::text, $7::boolean, $8::boolean, $9::text, $10::text, $11::uuid,
    $12::text, $13::bigint, $14::bigint, $15::bigint, $16::bigint
    FROM workflows WHERE uid = $2 AND deleted_at IS NULL ON CONFLICT DO NOTHING";

/// Returns the deliveries that were inserted. The arrays have one element for each.
pub(super) const INSERT_DELIVERIES: &str = concat!(
    "INSERT INTO trigger_deliveries (",
    delivery_columns!(),
    ") SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::uuid[],
    $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::bigint[])
    ON CONFLICT DO NOTHING RETURNING trigger_id, occurrence"
);

pub(super) const TAKE: &str = concat!(
    "UPDATE trigger_deliveries SET retry_at = $2 WHERE ctid = ANY(ARRAY(SELECT ctid FROM trigger_deliveries
    WHERE retry_at <= $1 ORDER BY retry_at LIMIT $3 FOR UPDATE SKIP LOCKED)) RETURNING ",
    delivery_columns!()
);

/// The state of the last delivery of each schedule, and the status of its run.
pub(super) const LAST: &str = "SELECT u.id, d.state, COALESCE(
      (SELECT e.status FROM workflow_executions e WHERE e.id = d.run_id),
      (SELECT e.status FROM workflow_executions e WHERE e.id = u.run))
    FROM unnest($1::uuid[], $2::text[], $3::uuid[]) AS u (id, occurrence, run)
    LEFT JOIN LATERAL (SELECT state, run_id FROM trigger_deliveries
      WHERE trigger_id = u.id AND occurrence = u.occurrence LIMIT 1) d ON true";

pub(super) const ADVANCE: &str =
    "UPDATE workflow_triggers t SET fired_until = u.fired_until, next_fire_at = u.next_fire_at,
      last_occurrence = u.occurrence, last_run_id = u.run, last_at = u.ts
    FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::text[], $5::uuid[], $6::bigint[])
      AS u (id, fired_until, next_fire_at, occurrence, run, ts)
    WHERE t.id = u.id";

pub(super) const PRUNE_DELIVERIES: &str = "DELETE FROM trigger_deliveries WHERE ctid = ANY(ARRAY(SELECT ctid
    FROM trigger_deliveries WHERE id < $1 AND retry_at IS NULL ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED))";

pub(super) const PRUNE_EVENTS: &str =
    "DELETE FROM trigger_events WHERE ctid = ANY(ARRAY(SELECT ctid FROM trigger_events
    WHERE received_at < $1 AND is_matched ORDER BY received_at LIMIT $2 FOR UPDATE SKIP LOCKED))";

pub(super) const WORK: &str = "SELECT
    (SELECT next_fire_at FROM workflow_triggers WHERE next_fire_at IS NOT NULL ORDER BY next_fire_at LIMIT 1),
    (SELECT retry_at FROM trigger_deliveries WHERE retry_at IS NOT NULL ORDER BY retry_at LIMIT 1),
    (SELECT received_at FROM trigger_events WHERE NOT is_matched ORDER BY received_at LIMIT 1)";

#[async_trait]
impl TriggerStore for PostgresStore {
    async fn create_trigger(&self, trigger: Trigger) -> Result<bool> {
        patiently!(self.sessions, |session| changed(&mut session, async |tx| create(
            tx, &trigger
        )
        .await))
    }

    async fn update_trigger(&self, trigger: Trigger) -> Result<bool> {
        patiently!(self.sessions, |session| changed(&mut session, async |tx| update(
            tx, &trigger
        )
        .await))
    }

    async fn delete_trigger(&self, id: Uuid) -> Result<bool> {
        patiently!(self.sessions, |session| changed(&mut session, async |tx| {
            Ok(execute(tx, sql::DELETE, &[&id]).await? > 0)
        }))
    }

    async fn rotate_segment(&self, id: Uuid, segment: Uuid, until: Timestamp, at: Timestamp) -> Result<bool> {
        patiently!(self.sessions, |session| changed(&mut session, async |tx| {
            Ok(execute(tx, sql::ROTATE, &[&id, &segment, &until.0, &at.0]).await? > 0)
        }))
    }

    async fn trigger(&self, id: Uuid) -> Result<Option<Trigger>> {
        patiently!(self.sessions, |session| one(&session, sql::TRIGGER, &[&id]))
    }

    async fn webhook(&self, segment: Uuid, now: Timestamp) -> Result<Option<Trigger>> {
        patiently!(self.sessions, |session| one(
            &session,
            sql::WEBHOOK,
            &[&segment, &now.0]
        ))
    }

    async fn triggers(&self, filter: TriggerFilter) -> Result<Page<Trigger>> {
        if !filter.tenant.as_deref().is_none_or(storable) {
            return Ok(Page::cut(Vec::new(), 0));
        }
        patiently!(self.sessions, |session| list(&session, &filter))
    }

    async fn event_triggers(&self, tenant: &str, event_type: &str) -> Result<Vec<Trigger>> {
        if !storable(tenant) || !storable(event_type) {
            return Ok(Vec::new());
        }
        patiently!(self.sessions, |session| all(
            &session,
            sql::OF_EVENT,
            &[&tenant, &event_type]
        ))
    }

    async fn fire_due(&self, now: Timestamp, limit: u32, fire: Fire) -> Result<Vec<Delivered>> {
        patiently!(self.sessions, |session| fire_due(&mut session, now, limit, &fire))
    }

    async fn add_delivery(&self, delivery: TriggerDelivery) -> Result<Option<TriggerDelivery>> {
        patiently!(self.sessions, |session| add(&session, &delivery))
    }

    async fn take_deliveries(&self, now: Timestamp, until: Timestamp, limit: u32) -> Result<Vec<TriggerDelivery>> {
        patiently!(self.sessions, |session| take(&session, now, until, limit))
    }

    async fn settle_delivery(&self, trigger: Uuid, occurrence: &str, settled: Settled) -> Result<bool> {
        patiently!(self.sessions, |session| settle(&session, trigger, occurrence, &settled))
    }

    async fn delivery(&self, id: Uuid) -> Result<Option<TriggerDelivery>> {
        patiently!(self.sessions, |session| one_delivery(&session, sql::DELIVERY, &[&id]))
    }

    async fn occurrence(&self, trigger: Uuid, occurrence: &str) -> Result<Option<TriggerDelivery>> {
        if !storable(occurrence) {
            return Ok(None);
        }
        patiently!(self.sessions, |session| one_delivery(
            &session,
            sql::OCCURRENCE,
            &[&trigger, &occurrence]
        ))
    }

    async fn deliveries(&self, filter: DeliveryFilter) -> Result<Page<TriggerDelivery>> {
        patiently!(self.sessions, |session| deliveries(&session, &filter))
    }

    async fn record_events(
        &self,
        events: Vec<(StoredEvent, Vec<TriggerDelivery>)>,
        duplicate_after: Timestamp,
    ) -> Result<Vec<Recorded>> {
        patiently!(self.sessions, |session| record(&mut session, &events, duplicate_after))
    }

    async fn unmatched_events(&self, limit: u32) -> Result<Vec<StoredEvent>> {
        patiently!(self.sessions, |session| unmatched(&session, limit))
    }

    async fn match_event(&self, event: StoredEvent, deliveries: Vec<TriggerDelivery>) -> Result<bool> {
        patiently!(self.sessions, |session| match_event(&mut session, &event, &deliveries))
    }

    async fn trigger_work(&self) -> Result<TriggerWork> {
        patiently!(self.sessions, |session| work(&session))
    }

    async fn prune_triggers(&self, before: Timestamp, limit: u32) -> Result<u64> {
        patiently!(self.sessions, |session| prune(&session, before, limit))
    }
}

/// Commits a change, if there was one, with the row of the audit trail.
async fn changed(
    session: &mut Object,
    change: impl AsyncFnOnce(&Transaction<'_>) -> Result<bool, PgError>,
) -> Result<bool, PgError> {
    let tx = session.transaction().await?;
    let is_changed = change(&tx).await?;
    if is_changed {
        commit(tx).await?;
    }
    Ok(is_changed)
}

async fn create(tx: &impl GenericClient, trigger: &Trigger) -> Result<bool, PgError> {
    let row: Params<'_> = &[
        &trigger.id,
        &trigger.workflow_uid,
        &trigger.workflow_id,
        &trigger.tenant,
        &trigger.kind.as_str(),
        &trigger.name,
        &trigger.enabled,
        &trigger.disabled_by_archive,
        &text(&trigger.config),
        &trigger.condition.as_deref().map(text),
        &trigger.segment,
        &trigger.event_type,
        &trigger.fired_until.map(|at| at.0),
        &trigger.next_fire_at.map(|at| at.0),
        &trigger.created_at.0,
        &trigger.updated_at.0,
    ];
    Ok(execute(tx, CREATE, row).await? > 0)
}

async fn update(tx: &impl GenericClient, trigger: &Trigger) -> Result<bool, PgError> {
    let row: Params<'_> = &[
        &trigger.id,
        &trigger.kind.as_str(),
        &trigger.enabled,
        &trigger.disabled_by_archive,
        &text(&trigger.config),
        &trigger.condition.as_deref().map(text),
        &trigger.segment,
        &trigger.event_type,
        &trigger.fired_until.map(|at| at.0),
        &trigger.next_fire_at.map(|at| at.0),
        &trigger.updated_at.0,
    ];
    Ok(execute(tx, sql::UPDATE, row).await? > 0)
}

/// Makes the declared triggers of a workflow those of this plan, which is current now. The workflow is locked.
pub(super) async fn reconcile(
    tx: &Transaction<'_>,
    workflow: &Workflow,
    plan: &str,
    at: Timestamp,
) -> Result<(), PgError> {
    let there = all(tx, sql::OF_WORKFLOW, &[&workflow.uid]).await?;
    let changes = declared::reconcile(workflow, there, declared::of_plan(plan), at);
    for id in &changes.removed {
        execute(tx, sql::DELETE, &[id]).await?;
    }
    for trigger in &changes.created {
        create(tx, trigger).await?;
    }
    for trigger in &changes.changed {
        update(tx, trigger).await?;
    }
    Ok(())
}

/// Disables or enables the triggers of a workflow whose state changed. The workflow is locked.
pub(super) async fn follow(
    tx: &Transaction<'_>,
    uid: Uuid,
    before: Lifecycle,
    after: Lifecycle,
    at: Timestamp,
) -> Result<(), PgError> {
    if before == after {
        return Ok(());
    }
    let there = all(tx, sql::OF_WORKFLOW, &[&uid]).await?;
    for trigger in declared::follow(there, before, after, at) {
        update(tx, &trigger).await?;
    }
    Ok(())
}

/// Inserts deliveries; returns those that were inserted.
async fn insert(
    client: &impl GenericClient,
    deliveries: &[&TriggerDelivery],
) -> Result<HashSet<(Uuid, String)>, PgError> {
    if deliveries.is_empty() {
        return Ok(HashSet::new());
    }
    fn column<'a, T>(all: &[&'a TriggerDelivery], value: impl Fn(&'a TriggerDelivery) -> T) -> Vec<T> {
        all.iter().map(|delivery| value(delivery)).collect()
    }
    let optional = |value: &'static dyn Fn(&TriggerDelivery) -> Option<&String>| {
        let texts = deliveries
            .iter()
            .map(|delivery| value(delivery).map(|value| text(value)));
        texts.collect::<Vec<_>>()
    };
    let row: Params<'_> = &[
        &column(deliveries, |delivery| delivery.id),
        &column(deliveries, |delivery| delivery.trigger),
        &column(deliveries, |delivery| delivery.occurrence.as_str()),
        &column(deliveries, |delivery| delivery.tenant.as_str()),
        &column(deliveries, |delivery| delivery.received_at.0),
        &column(deliveries, |delivery| delivery.state.as_str()),
        &column(deliveries, |delivery| delivery.run.0),
        &optional(&|delivery| delivery.reason.as_ref()),
        &optional(&|delivery| delivery.saw.as_ref()),
        &optional(&|delivery| delivery.payload.as_ref()),
        &optional(&|delivery| delivery.request.as_ref()),
        &optional(&|delivery| delivery.after.as_ref()),
        &column(deliveries, |delivery| delivery.retry_at.map(|at| at.0)),
    ];
    let inserted = rows(client, INSERT_DELIVERIES, row).await?;
    inserted
        .iter()
        .map(|row| Ok((plain(row, 0)?, plain(row, 1)?)))
        .collect()
}

async fn fire_due(session: &mut Object, now: Timestamp, limit: u32, fire: &Fire) -> Result<Vec<Delivered>, PgError> {
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
async fn running(tx: &Transaction<'_>, triggers: &[Trigger]) -> Result<HashMap<Uuid, (bool, bool)>, PgError> {
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

async fn add(client: &impl GenericClient, delivery: &TriggerDelivery) -> Result<Option<TriggerDelivery>, PgError> {
    if !insert(client, &[delivery]).await?.is_empty() {
        return Ok(None);
    }
    one_delivery(client, sql::OCCURRENCE, &[&delivery.trigger, &delivery.occurrence]).await
}

async fn take(
    client: &impl GenericClient,
    now: Timestamp,
    until: Timestamp,
    limit: u32,
) -> Result<Vec<TriggerDelivery>, PgError> {
    let rows = rows(client, TAKE, &[&now.0, &until.0, &i64::from(limit)]).await?;
    let mut taken = rows.iter().map(delivery_row).collect::<Result<Vec<_>, _>>()?;
    taken.sort_by_key(|delivery| delivery.id);
    Ok(taken)
}

async fn settle(
    client: &impl GenericClient,
    trigger: Uuid,
    occurrence: &str,
    settled: &Settled,
) -> Result<bool, PgError> {
    let none = None::<&str>;
    let changed = match settled {
        Settled::Later(at) => execute(client, sql::LATER, &[&trigger, &occurrence, &at.0]).await?,
        Settled::Started(run) => {
            let row: Params<'_> = &[&trigger, &occurrence, &"started", &Some(run.0), &none, &none, &true];
            execute(client, sql::SETTLE, row).await?
        }
        Settled::Ended { state, reason, saw } => {
            let (reason, saw) = (reason.as_deref().map(text), saw.as_deref().map(text));
            let run = None::<Uuid>;
            let row: Params<'_> = &[&trigger, &occurrence, &state.as_str(), &run, &reason, &saw, &false];
            execute(client, sql::SETTLE, row).await?
        }
    };
    Ok(changed > 0)
}

async fn one(client: &impl GenericClient, sql: &str, params: Params<'_>) -> Result<Option<Trigger>, PgError> {
    let row = row(client, sql, params).await?;
    row.as_ref().map(trigger_row).transpose()
}

async fn all(client: &impl GenericClient, sql: &str, params: Params<'_>) -> Result<Vec<Trigger>, PgError> {
    rows(client, sql, params).await?.iter().map(trigger_row).collect()
}

/// The filter is applied here, as for lists of workflows.
async fn list(client: &impl GenericClient, filter: &TriggerFilter) -> Result<Page<Trigger>, PgError> {
    let wanted = filter.limit as usize + 1;
    let mut after = filter.after.unwrap_or(Uuid::nil());
    let mut items = Vec::new();
    loop {
        let page = match (&filter.workflow_uid, &filter.tenant) {
            (Some(uid), _) => all(client, sql::LIST_OF_WORKFLOW, &[&after, &PAGE, uid]).await?,
            (None, Some(tenant)) => all(client, sql::LIST_OF_TENANT, &[&after, &PAGE, tenant]).await?,
            (None, None) => all(client, sql::LIST, &[&after, &PAGE]).await?,
        };
        let is_last = (page.len() as i64) < PAGE;
        after = page.last().map_or(after, |trigger| trigger.id);
        items.extend(page.into_iter().filter(|trigger| filter.fits(trigger)));
        if items.len() >= wanted || is_last {
            items.truncate(wanted);
            return Ok(Page::cut(items, filter.limit));
        }
    }
}

fn trigger_row(row: &Row) -> Result<Trigger, PgError> {
    let old: Option<Uuid> = plain(row, 11)?;
    let run: Option<RunId> = maybe(row, 17)?;
    Ok(Trigger {
        id: plain(row, 0)?,
        workflow_uid: plain(row, 1)?,
        workflow_id: plain(row, 2)?,
        tenant: plain(row, 3)?,
        kind: get(row, 4)?,
        name: plain(row, 5)?,
        enabled: plain(row, 6)?,
        disabled_by_archive: plain(row, 7)?,
        config: plain(row, 8)?,
        condition: plain(row, 9)?,
        segment: plain(row, 10)?,
        old_segment: old.zip(maybe(row, 12)?),
        event_type: plain(row, 13)?,
        fired_until: maybe(row, 14)?,
        next_fire_at: maybe(row, 15)?,
        last: LastDelivery::read(plain(row, 16)?, run, maybe(row, 18)?),
        created_at: get(row, 19)?,
        updated_at: get(row, 20)?,
    })
}

fn delivery_row(row: &Row) -> Result<TriggerDelivery, PgError> {
    Ok(TriggerDelivery {
        id: plain(row, 0)?,
        trigger: plain(row, 1)?,
        occurrence: plain(row, 2)?,
        tenant: plain(row, 3)?,
        received_at: get(row, 4)?,
        state: get(row, 5)?,
        run: get(row, 6)?,
        reason: plain(row, 7)?,
        saw: plain(row, 8)?,
        payload: plain(row, 9)?,
        request: plain(row, 10)?,
        after: plain(row, 11)?,
        retry_at: maybe(row, 12)?,
    })
}

async fn one_delivery(
    client: &impl GenericClient,
    sql: &str,
    params: Params<'_>,
) -> Result<Option<TriggerDelivery>, PgError> {
    let row = row(client, sql, params).await?;
    row.as_ref().map(delivery_row).transpose()
}

async fn deliveries(client: &impl GenericClient, filter: &DeliveryFilter) -> Result<Page<TriggerDelivery>, PgError> {
    let wanted = filter.limit as usize + 1;
    let mut before = filter.before.unwrap_or(Uuid::max());
    let mut items = Vec::new();
    loop {
        let page = rows(client, sql::DELIVERIES, &[&filter.trigger, &before, &PAGE]).await?;
        for row in &page {
            let delivery = delivery_row(row)?;
            before = delivery.id;
            if filter.state.is_none_or(|state| state == delivery.state) {
                items.push(delivery);
            }
        }
        if items.len() >= wanted || (page.len() as i64) < PAGE {
            items.truncate(wanted);
            return Ok(Page::cut(items, filter.limit));
        }
    }
}

async fn record(
    session: &mut Object,
    events: &[(StoredEvent, Vec<TriggerDelivery>)],
    duplicate_after: Timestamp,
) -> Result<Vec<Recorded>, PgError> {
    let tx = session.transaction().await?;
    let mut order: Vec<usize> = (0..events.len()).collect();
    order.sort_by(|a, b| {
        let key = |at: &usize| (&events[*at].0.tenant, &events[*at].0.source, &events[*at].0.id);
        key(a).cmp(&key(b)).then(a.cmp(b))
    });
    let mut answers = vec![Recorded::Duplicate; events.len()];
    let mut stored: Vec<&TriggerDelivery> = Vec::new();
    for at in order {
        let (event, deliveries) = &events[at];
        let row: Params<'_> = &[
            &event.tenant,
            &event.source,
            &event.id,
            &event.event_type,
            &event.received_at.0,
            &text(&event.attributes),
            &duplicate_after.0,
        ];
        if execute(&tx, sql::INSERT_EVENT, row).await? > 0 {
            stored.extend(deliveries);
            answers[at] = Recorded::Stored;
        }
    }
    insert(&tx, &stored).await?;
    commit(tx).await?;
    Ok(answers)
}

async fn unmatched(client: &impl GenericClient, limit: u32) -> Result<Vec<StoredEvent>, PgError> {
    let rows = rows(client, sql::UNMATCHED, &[&i64::from(limit)]).await?;
    let event = |row: &Row| {
        Ok(StoredEvent {
            tenant: plain(row, 0)?,
            source: plain(row, 1)?,
            id: plain(row, 2)?,
            event_type: plain(row, 3)?,
            received_at: get(row, 4)?,
            attributes: plain(row, 5)?,
            data: plain(row, 6)?,
        })
    };
    rows.iter().map(event).collect()
}

async fn match_event(
    session: &mut Object,
    event: &StoredEvent,
    deliveries: &[TriggerDelivery],
) -> Result<bool, PgError> {
    let tx = session.transaction().await?;
    let key: Params<'_> = &[&event.tenant, &event.source, &event.id];
    if execute(&tx, sql::MATCH_EVENT, key).await? == 0 {
        return Ok(false);
    }
    insert(&tx, &deliveries.iter().collect::<Vec<_>>()).await?;
    commit(tx).await?;
    Ok(true)
}

async fn work(client: &impl GenericClient) -> Result<TriggerWork, PgError> {
    let Some(row) = row(client, WORK, &[]).await? else {
        return Ok(TriggerWork::default());
    };
    let unmatched: Option<i64> = plain(&row, 2)?;
    Ok(TriggerWork {
        next_fire: maybe(&row, 0)?,
        next_delivery: maybe(&row, 1)?,
        has_unmatched: unmatched.is_some(),
    })
}

async fn prune(client: &impl GenericClient, before: Timestamp, limit: u32) -> Result<u64, PgError> {
    let limit = i64::from(limit);
    let deliveries = execute(client, PRUNE_DELIVERIES, &[&first_id_at(before), &limit]).await?;
    let events = execute(client, PRUNE_EVENTS, &[&before.0, &limit]).await?;
    Ok(deliveries + events)
}
