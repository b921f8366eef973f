//! Events. They are inserted in the order of their keys, so that two processes that store the same ones do not deadlock.

use super::deliveries::insert;
use crate::{
    postgres::{
        columns::{get, plain, text},
        definitions::{Params, execute, rows},
        error::PgError,
        sessions::commit,
    },
    triggers::{Recorded, StoredEvent, TriggerDelivery, statements as sql},
};
use deadpool_postgres::{GenericClient, Object};
use fermata_core::Timestamp;
use tokio_postgres::Row;

pub(super) async fn record(
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

pub(super) async fn unmatched(client: &impl GenericClient, limit: u32) -> Result<Vec<StoredEvent>, PgError> {
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

pub(super) async fn match_event(
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
