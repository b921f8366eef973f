//! Deliveries. Those that are due are locked with `SKIP LOCKED`: processes share them, and none waits for another.

use super::PAGE;
use crate::{
    postgres::{
        columns::{get, maybe, plain, text},
        definitions::{Params, execute, row, rows},
        error::PgError,
    },
    reads::Page,
    triggers::{
        DeliveryFilter, Settled, TriggerDelivery,
        statements::{self as sql, delivery_columns},
    },
};
use deadpool_postgres::GenericClient;
use fermata_core::Timestamp;
use std::collections::HashSet;
use tokio_postgres::Row;
use uuid::Uuid;

/// Returns the deliveries that were inserted. The arrays have one element for each.
const INSERT_DELIVERIES: &str = concat!(
    "INSERT INTO trigger_deliveries (",
    delivery_columns!(),
    ") SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::uuid[],
    $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::bigint[])
    ON CONFLICT DO NOTHING RETURNING trigger_id, occurrence"
);

pub(in crate::postgres) const TAKE: &str = concat!(
    "UPDATE trigger_deliveries SET retry_at = $2 WHERE ctid = ANY(ARRAY(SELECT ctid FROM trigger_deliveries
    WHERE retry_at <= $1 ORDER BY retry_at LIMIT $3 FOR UPDATE SKIP LOCKED)) RETURNING ",
    delivery_columns!()
);

/// Inserts deliveries; returns those that were inserted.
pub(super) async fn insert(
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

pub(super) async fn add(
    client: &impl GenericClient,
    delivery: &TriggerDelivery,
) -> Result<Option<TriggerDelivery>, PgError> {
    if !insert(client, &[delivery]).await?.is_empty() {
        return Ok(None);
    }
    one_delivery(client, sql::OCCURRENCE, &[&delivery.trigger, &delivery.occurrence]).await
}

pub(super) async fn take(
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

pub(super) async fn settle(
    client: &impl GenericClient,
    trigger: Uuid,
    occurrence: &str,
    settled: &Settled,
) -> Result<bool, PgError> {
    let none = None::<&str>;
    let changed = match settled {
        Settled::Later(at) => execute(client, sql::LATER, &[&trigger, &occurrence, &at.0]).await?,
        Settled::Started { run, keeps_payload } => {
            let row: Params<'_> = &[
                &trigger,
                &occurrence,
                &"started",
                &Some(run.0),
                &none,
                &none,
                &!keeps_payload,
            ];
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

pub(super) fn delivery_row(row: &Row) -> Result<TriggerDelivery, PgError> {
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

pub(super) async fn one_delivery(
    client: &impl GenericClient,
    sql: &str,
    params: Params<'_>,
) -> Result<Option<TriggerDelivery>, PgError> {
    let row = row(client, sql, params).await?;
    row.as_ref().map(delivery_row).transpose()
}

pub(super) async fn deliveries(
    client: &impl GenericClient,
    filter: &DeliveryFilter,
) -> Result<Page<TriggerDelivery>, PgError> {
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
