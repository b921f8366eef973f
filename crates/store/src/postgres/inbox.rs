//! Items of the inbox: lists, claims, heartbeats and answers. Answers are members of batches, as all messages to runs.

use super::{
    PostgresStore,
    columns::{get, maybe, plain, storable, text},
    error::PgError,
    lists::LAST,
    mistaken,
    sessions::{commit, patiently},
    work::{LeaseCheck, Outcome, Work},
};
use crate::{
    Result,
    inbox::{
        CLAIMABLE, CLAIMABLE_OF_TENANT, FoundWait, Heartbeat, ITEM, ITEM_COLUMNS, InboxItem, InboxStore, ItemAnswer,
        ItemClaim, ItemFilter, ItemHeartbeat, ItemLease, ItemPage, ItemWalk, StoredItem, WAIT_OF_ITEM, WAIT_OF_NODE,
        WAIT_OF_TOKEN, WaitRef, item_status,
    },
    rules::{self, ItemFacts},
    runs::{Answer, RunMessage, message_text},
    statements::dollars,
};
use async_trait::async_trait;
use deadpool_postgres::{GenericClient, Object};
use fermata_core::Timestamp;
use tokio_postgres::Row;
use uuid::Uuid;

/// What decides about a heartbeat. The lock orders it against claims and answers.
pub(super) const FACTS: &str = "SELECT is_open, deadline, lease_id, lease_until, tenant_id FROM run_waits
    WHERE item_id = $1 FOR NO KEY UPDATE";

pub(super) const EXTEND: &str = "UPDATE run_waits SET lease_until = $2, progress_json = COALESCE($3, progress_json)
    WHERE item_id = $1";

#[async_trait]
impl InboxStore for PostgresStore {
    async fn items(&self, filter: ItemFilter) -> Result<ItemPage> {
        patiently!(self.sessions, |session| items(&session, &filter))
    }

    async fn find_wait(&self, of: &WaitRef) -> Result<Option<FoundWait>> {
        patiently!(self.sessions, |session| find(&session, of))
    }

    async fn item(&self, id: Uuid) -> Result<Option<StoredItem>> {
        patiently!(self.sessions, |session| item(&session, id))
    }

    async fn claim_items(&self, claim: ItemClaim) -> Result<Vec<StoredItem>> {
        patiently!(self.sessions, |session| claim_items(&mut session, &claim))
    }

    async fn heartbeat_item(&self, heartbeat: ItemHeartbeat) -> Result<Heartbeat> {
        patiently!(self.sessions, |session| extend(&mut session, &heartbeat))
    }

    async fn answer_item(&self, answer: ItemAnswer) -> Result<Answer> {
        let found = patiently!(self.sessions, |session| find(&session, &answer.of))?;
        let Some(wait) = found else {
            return Ok(Answer::NotFound);
        };
        if wait.tenant.is_some() && answer.tenant.is_some() && wait.tenant != answer.tenant {
            return Ok(Answer::NotFound);
        }
        self.record_request().await?;
        let work = Work::Answer {
            token: wait.token,
            run: wait.run,
            message: message_text(&RunMessage::Callback {
                node: wait.node.clone(),
                attempt: wait.attempt,
            }),
            node: wait.node,
            payload: answer.payload,
            by: answer.by,
            at: answer.at,
            check: Some(LeaseCheck { lease: answer.lease }),
        };
        match self.write(work).await? {
            Outcome::Answered(answer) => Ok(answer),
            other => Err(mistaken(&other)),
        }
    }
}

async fn find(client: &impl GenericClient, of: &WaitRef) -> Result<Option<FoundWait>, PgError> {
    let row = match of {
        WaitRef::Token(token) if !storable(token) => None,
        WaitRef::Node { node, .. } if !storable(node.as_str()) => None,
        WaitRef::Token(token) => {
            let statement = client.prepare_cached(&dollars(WAIT_OF_TOKEN)).await?;
            client.query_opt(&statement, &[token]).await?
        }
        WaitRef::Item(id) => {
            let statement = client.prepare_cached(&dollars(WAIT_OF_ITEM)).await?;
            client.query_opt(&statement, &[id]).await?
        }
        WaitRef::Node { run, node } => {
            let statement = client.prepare_cached(&dollars(WAIT_OF_NODE)).await?;
            client.query_opt(&statement, &[&run.0, &node.as_str()]).await?
        }
    };
    let found = |row: Row| {
        Ok(FoundWait {
            token: plain(&row, 0)?,
            run: get(&row, 1)?,
            node: get(&row, 2)?,
            attempt: get(&row, 3)?,
            tenant: plain(&row, 4)?,
            details: plain(&row, 5)?,
            payload: plain(&row, 6)?,
            answered_by: plain(&row, 7)?,
            answered_at: maybe(&row, 8)?,
        })
    };
    row.map(found).transpose()
}

async fn items(client: &impl GenericClient, filter: &ItemFilter) -> Result<ItemPage, PgError> {
    let walk = filter.walk();
    let statement = client.prepare_cached(&dollars(walk.sql())).await?;
    let (after, limit) = (filter.after.unwrap_or(Uuid::nil()), i64::from(filter.examined()));
    let rows = match walk {
        ItemWalk::Run(run) => client.query(&statement, &[&after, &limit, &run.0]).await?,
        ItemWalk::Queue(word) | ItemWalk::Tenant(word) | ItemWalk::TenantItems(word) if !storable(word) => Vec::new(),
        ItemWalk::Queue(word) | ItemWalk::Tenant(word) | ItemWalk::TenantItems(word) => {
            client.query(&statement, &[&after, &limit, &word, &LAST]).await?
        }
        ItemWalk::Pending | ItemWalk::All => client.query(&statement, &[&after, &limit]).await?,
    };
    let rows: Result<Vec<StoredItem>, PgError> = rows.iter().map(item_row).collect();
    Ok(filter.page(rows?))
}

async fn item(client: &impl GenericClient, id: Uuid) -> Result<Option<StoredItem>, PgError> {
    let statement = client.prepare_cached(&dollars(ITEM)).await?;
    let row = client.query_opt(&statement, &[&id]).await?;
    row.as_ref().map(item_row).transpose()
}

fn item_row(row: &Row) -> Result<StoredItem, PgError> {
    let lease: Option<Uuid> = plain(row, 13)?;
    let (worker, until): (Option<String>, Option<Timestamp>) = (plain(row, 14)?, maybe(row, 15)?);
    let answered_at = maybe(row, 19)?;
    Ok(StoredItem {
        item: InboxItem {
            id: plain(row, 0)?,
            kind: get(row, 1)?,
            queue: plain(row, 2)?,
            tenant: plain(row, 3)?,
            workflow_id: plain(row, 4)?,
            details: plain(row, 5)?,
        },
        run: get(row, 6)?,
        node: get(row, 7)?,
        attempt: get(row, 8)?,
        token: plain(row, 9)?,
        status: item_status(plain(row, 10)?, answered_at.is_some()),
        created_at: get(row, 11)?,
        deadline: maybe(row, 12)?,
        lease: lease.zip(until).map(|(id, until)| ItemLease {
            id,
            worker: worker.unwrap_or_default(),
            until,
        }),
        progress: plain(row, 16)?,
        payload: plain(row, 17)?,
        answered_by: plain(row, 18)?,
        answered_at,
    })
}

/// Leases the rows that `from` finds. Rows that another claim has locked are skipped.
pub(super) fn claim_query(from: &str) -> String {
    let columns = ITEM_COLUMNS.split(',').map(|column| format!("w.{}", column.trim()));
    let columns: Vec<String> = columns.collect();
    let (worker, until) = match from == CLAIMABLE_OF_TENANT {
        true => ("$5", "$6"),
        false => ("$4", "$5"),
    };
    format!(
        "UPDATE run_waits w SET lease_id = gen_random_uuid(), worker = {worker}, lease_until = {until}
         FROM (SELECT ctid AS place, lease_until AS lapsed, item_id AS item {} FOR NO KEY UPDATE SKIP LOCKED) f
         WHERE w.ctid = f.place RETURNING {}, f.lapsed",
        dollars(from),
        columns.join(", ")
    )
}

async fn claim_items(session: &mut Object, claim: &ItemClaim) -> Result<Vec<StoredItem>, PgError> {
    let (queue, now, limit) = (text(&claim.queue), claim.now.0, i64::from(claim.limit));
    let (worker, until) = (text(&claim.worker), claim.until.0);
    let tx = session.transaction().await?;
    let rows = match &claim.tenant {
        None => {
            let statement = tx.prepare_cached(&claim_query(CLAIMABLE)).await?;
            tx.query(&statement, &[&queue, &now, &limit, &worker, &until]).await?
        }
        Some(tenant) => {
            let statement = tx.prepare_cached(&claim_query(CLAIMABLE_OF_TENANT)).await?;
            let tenant = text(tenant);
            tx.query(&statement, &[&queue, &now, &limit, &tenant, &worker, &until])
                .await?
        }
    };
    let items = rows.iter().map(|row| Ok((plain::<i64>(row, 20)?, item_row(row)?)));
    let mut items: Vec<(i64, StoredItem)> = items.collect::<Result<_, PgError>>()?;
    commit(tx).await?;
    items.sort_by_key(|(lapsed, item)| (*lapsed, item.item.id));
    Ok(items.into_iter().map(|(_, item)| item).collect())
}

async fn extend(session: &mut Object, heartbeat: &ItemHeartbeat) -> Result<Heartbeat, PgError> {
    let tx = session.transaction().await?;
    let facts = tx.prepare_cached(FACTS).await?;
    let facts = tx.query_opt(&facts, &[&heartbeat.item]).await?;
    let facts = facts.as_ref().map(|row| item_facts(row, 0)).transpose()?;
    let tenant = heartbeat.tenant.as_deref();
    if let Some(refused) = rules::refused_heartbeat(facts.as_ref(), tenant, heartbeat.lease, heartbeat.now) {
        return Ok(refused);
    }
    let extend = tx.prepare_cached(EXTEND).await?;
    let progress = heartbeat.progress.as_deref();
    tx.execute(&extend, &[&heartbeat.item, &heartbeat.until.0, &progress])
        .await?;
    commit(tx).await?;
    Ok(Heartbeat::Extended)
}

/// Five columns from `at`: is_open, deadline, lease_id, lease_until, tenant_id.
pub(super) fn item_facts(row: &Row, at: usize) -> Result<ItemFacts, PgError> {
    Ok(ItemFacts {
        open: plain(row, at)?,
        deadline: maybe(row, at + 1)?,
        lease: plain(row, at + 2)?,
        lease_until: maybe(row, at + 3)?,
        tenant: plain(row, at + 4)?,
    })
}
