//! Triggers, deliveries and events.
//!
//! What must stay true:
//! * A method that changes several rows is one transaction.
//! * Deliveries of an event or of a schedule are inserted under the lock of the event or of the schedule.

mod deliveries;
mod events;
mod firing;

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
        Delivered, DeliveryFilter, Fire, LastDelivery, Recorded, Settled, StoredEvent, Trigger, TriggerDelivery,
        TriggerFilter, TriggerStore, TriggerWork, declared, first_id_at, statements as sql,
    },
};
use async_trait::async_trait;
use deadpool_postgres::{GenericClient, Object, Transaction};
#[cfg(test)]
pub(super) use deliveries::TAKE;
use fermata_core::{RunId, Timestamp};
#[cfg(test)]
pub(super) use firing::LAST;
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
        patiently!(self.sessions, |session| firing::fire_due(
            &mut session,
            now,
            limit,
            &fire
        ))
    }

    async fn add_delivery(&self, delivery: TriggerDelivery) -> Result<Option<TriggerDelivery>> {
        patiently!(self.sessions, |session| deliveries::add(&session, &delivery))
    }

    async fn take_deliveries(&self, now: Timestamp, until: Timestamp, limit: u32) -> Result<Vec<TriggerDelivery>> {
        patiently!(self.sessions, |session| deliveries::take(&session, now, until, limit))
    }

    async fn settle_delivery(&self, trigger: Uuid, occurrence: &str, settled: Settled) -> Result<bool> {
        patiently!(self.sessions, |session| deliveries::settle(
            &session, trigger, occurrence, &settled
        ))
    }

    async fn delivery(&self, id: Uuid) -> Result<Option<TriggerDelivery>> {
        patiently!(self.sessions, |session| deliveries::one_delivery(
            &session,
            sql::DELIVERY,
            &[&id]
        ))
    }

    async fn occurrence(&self, trigger: Uuid, occurrence: &str) -> Result<Option<TriggerDelivery>> {
        if !storable(occurrence) {
            return Ok(None);
        }
        patiently!(self.sessions, |session| deliveries::one_delivery(
            &session,
            sql::OCCURRENCE,
            &[&trigger, &occurrence]
        ))
    }

    async fn deliveries(&self, filter: DeliveryFilter) -> Result<Page<TriggerDelivery>> {
        patiently!(self.sessions, |session| deliveries::deliveries(&session, &filter))
    }

    async fn record_events(
        &self,
        events: Vec<(StoredEvent, Vec<TriggerDelivery>)>,
        duplicate_after: Timestamp,
    ) -> Result<Vec<Recorded>> {
        patiently!(self.sessions, |session| events::record(
            &mut session,
            &events,
            duplicate_after
        ))
    }

    async fn unmatched_events(&self, limit: u32) -> Result<Vec<StoredEvent>> {
        patiently!(self.sessions, |session| events::unmatched(&session, limit))
    }

    async fn match_event(&self, event: StoredEvent, deliveries: Vec<TriggerDelivery>) -> Result<bool> {
        patiently!(self.sessions, |session| events::match_event(
            &mut session,
            &event,
            &deliveries
        ))
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

/// Makes the declared triggers of a workflow those of this plan, which is current now. `before` is the plan that was current. The
/// workflow is locked.
pub(super) async fn reconcile(
    tx: &Transaction<'_>,
    workflow: &Workflow,
    before: &str,
    plan: &str,
    at: Timestamp,
) -> Result<(), PgError> {
    let there = all(tx, sql::OF_WORKFLOW, &[&workflow.uid]).await?;
    let changes = declared::reconcile(workflow, there, &declared::of_plan(before), declared::of_plan(plan), at);
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
