//! Items of the inbox: lists, claims, heartbeats and answers.

use super::{
    SqliteStore,
    columns::{Col, get, key, maybe, run_id, uid_key},
    messages,
    writer::Tx,
};
use crate::{
    Result,
    inbox::{
        CLAIMABLE, CLAIMABLE_OF_TENANT, FoundWait, Heartbeat, ITEM, ITEM_COLUMNS, InboxItem, InboxStore, ItemAnswer,
        ItemClaim, ItemFilter, ItemHeartbeat, ItemLease, ItemPage, ItemWalk, StoredItem, WAIT_OF_ITEM, WAIT_OF_NODE,
        WAIT_OF_TOKEN, WaitRef, item_status,
    },
    rules::{self, ItemFacts},
    runs::Answer,
};
use async_trait::async_trait;
use fermata_core::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};
use uuid::Uuid;

/// The largest id.
const LAST: Uuid = Uuid::max();

const LEASE: &str = "UPDATE run_waits SET lease_id = ?2, worker = ?3, lease_until = ?4 WHERE token = ?1";

const EXTEND: &str = "UPDATE run_waits SET lease_until = ?2, progress_json = COALESCE(?3, progress_json)
    WHERE item_id = ?1";

/// What decides about an answer.
const FACTS: &str = "SELECT is_open, deadline, lease_id, lease_until, tenant_id FROM run_waits WHERE token = ?1";

#[async_trait]
impl InboxStore for SqliteStore {
    async fn items(&self, filter: ItemFilter) -> Result<ItemPage> {
        self.readers.read(move |connection| items(connection, &filter)).await
    }

    async fn find_wait(&self, of: &WaitRef) -> Result<Option<FoundWait>> {
        let of = of.clone();
        self.readers.read(move |connection| find(connection, &of)).await
    }

    async fn item(&self, id: Uuid) -> Result<Option<StoredItem>> {
        let read = move |connection: &Connection| {
            let mut statement = connection.prepare_cached(ITEM)?;
            statement.query_row([uid_key(&id)], item_row).optional()
        };
        self.readers.read(read).await
    }

    async fn claim_items(&self, claim: ItemClaim) -> Result<Vec<StoredItem>> {
        self.writer.write(move |tx| claim_items(tx, &claim)).await
    }

    async fn heartbeat_item(&self, heartbeat: ItemHeartbeat) -> Result<Heartbeat> {
        self.writer.write(move |tx| extend(tx, &heartbeat)).await
    }

    async fn answer_item(&self, answer: ItemAnswer) -> Result<Answer> {
        self.writer.write(move |tx| answer_item(tx, &answer)).await
    }
}

fn items(connection: &Connection, filter: &ItemFilter) -> rusqlite::Result<ItemPage> {
    let walk = filter.walk();
    let mut statement = connection.prepare_cached(walk.sql())?;
    let after = filter.after.map_or(Vec::new(), |after| uid_key(&after).to_vec());
    let (after, limit) = (&after, filter.examined());
    let rows: rusqlite::Result<Vec<StoredItem>> = match walk {
        ItemWalk::Run(run) => statement
            .query_map(params![after, limit, key(&run)], item_row)?
            .collect(),
        ItemWalk::Queue(word) | ItemWalk::Tenant(word) | ItemWalk::TenantItems(word) => {
            let row = params![after, limit, word, uid_key(&LAST)];
            statement.query_map(row, item_row)?.collect()
        }
        ItemWalk::Pending | ItemWalk::All => statement.query_map(params![after, limit], item_row)?.collect(),
    };
    Ok(filter.page(rows?))
}

fn item_row(row: &Row<'_>) -> rusqlite::Result<StoredItem> {
    let lease: Option<Uuid> = maybe(row, 13)?;
    let (worker, until): (Option<String>, Option<Timestamp>) = (row.get(14)?, maybe(row, 15)?);
    let answered_at = maybe(row, 19)?;
    Ok(StoredItem {
        item: InboxItem {
            id: get(row, 0)?,
            kind: get(row, 1)?,
            queue: row.get(2)?,
            tenant: row.get(3)?,
            workflow_id: row.get(4)?,
            details: row.get(5)?,
        },
        run: run_id(row, 6)?,
        node: get(row, 7)?,
        attempt: row.get(8)?,
        token: row.get(9)?,
        status: item_status(row.get(10)?, answered_at.is_some()),
        created_at: get(row, 11)?,
        deadline: maybe(row, 12)?,
        lease: lease.zip(until).map(|(id, until)| ItemLease {
            id,
            worker: worker.unwrap_or_default(),
            until,
        }),
        progress: row.get(16)?,
        payload: row.get(17)?,
        answered_by: row.get(18)?,
        answered_at,
    })
}

fn claim_items(tx: &mut Tx<'_>, claim: &ItemClaim) -> rusqlite::Result<Vec<StoredItem>> {
    let mut items: Vec<StoredItem> = match &claim.tenant {
        None => {
            let mut statement = tx.connection.prepare_cached(&claimable(CLAIMABLE))?;
            let rows = statement.query_map(params![claim.queue, claim.now.0, claim.limit], item_row)?;
            rows.collect::<rusqlite::Result<_>>()?
        }
        Some(tenant) => {
            let mut statement = tx.connection.prepare_cached(&claimable(CLAIMABLE_OF_TENANT))?;
            let rows = statement.query_map(params![claim.queue, claim.now.0, claim.limit, tenant], item_row)?;
            rows.collect::<rusqlite::Result<_>>()?
        }
    };
    let mut lease = tx.connection.prepare_cached(LEASE)?;
    for item in &mut items {
        let id = Uuid::now_v7();
        lease.execute(params![item.token, uid_key(&id), claim.worker, claim.until.0])?;
        item.lease = Some(ItemLease {
            id,
            worker: claim.worker.clone(),
            until: claim.until,
        });
    }
    Ok(items)
}

pub(super) fn claimable(from: &str) -> String {
    format!("SELECT {ITEM_COLUMNS} {from}")
}

fn find(connection: &Connection, of: &WaitRef) -> rusqlite::Result<Option<FoundWait>> {
    let found = |row: &Row<'_>| {
        Ok(FoundWait {
            token: row.get(0)?,
            run: run_id(row, 1)?,
            node: get(row, 2)?,
            attempt: row.get(3)?,
            tenant: row.get(4)?,
            details: row.get(5)?,
            payload: row.get(6)?,
            answered_by: row.get(7)?,
            answered_at: maybe(row, 8)?,
        })
    };
    let row = match of {
        WaitRef::Token(token) => connection.prepare_cached(WAIT_OF_TOKEN)?.query_row([token], found),
        WaitRef::Item(id) => connection.prepare_cached(WAIT_OF_ITEM)?.query_row([uid_key(id)], found),
        WaitRef::Node { run, node } => connection
            .prepare_cached(WAIT_OF_NODE)?
            .query_row(params![key(run), node.as_str()], found),
    };
    row.optional()
}

fn facts(tx: &Tx<'_>, token: &str) -> rusqlite::Result<Option<ItemFacts>> {
    let mut statement = tx.connection.prepare_cached(FACTS)?;
    statement
        .query_row([token], |row| {
            Ok(ItemFacts {
                open: row.get(0)?,
                deadline: maybe(row, 1)?,
                lease: row.get::<_, Option<Col<Uuid>>>(2)?.map(|Col(id)| id),
                lease_until: maybe(row, 3)?,
                tenant: row.get(4)?,
            })
        })
        .optional()
}

fn extend(tx: &mut Tx<'_>, heartbeat: &ItemHeartbeat) -> rusqlite::Result<Heartbeat> {
    let facts = match find(tx.connection, &WaitRef::Item(heartbeat.item))? {
        Some(wait) => facts(tx, &wait.token)?,
        None => None,
    };
    let tenant = heartbeat.tenant.as_deref();
    if let Some(refused) = rules::refused_heartbeat(facts.as_ref(), tenant, heartbeat.lease, heartbeat.now) {
        return Ok(refused);
    }
    let row = params![uid_key(&heartbeat.item), heartbeat.until.0, heartbeat.progress];
    tx.connection.prepare_cached(EXTEND)?.execute(row)?;
    Ok(Heartbeat::Extended)
}

fn answer_item(tx: &mut Tx<'_>, answer: &ItemAnswer) -> rusqlite::Result<Answer> {
    let Some(FoundWait { token, .. }) = find(tx.connection, &answer.of)? else {
        return Ok(Answer::NotFound);
    };
    let facts = facts(tx, &token)?;
    let tenant = answer.tenant.as_deref();
    if let Some(refused) = rules::refused_answer(facts.as_ref(), tenant, answer.lease, answer.at) {
        return Ok(refused);
    }
    messages::answer(tx, &token, &answer.payload, answer.by.as_deref(), answer.at)
}
