//! The schema and its growth: embedded SQL files, applied in order, each once. `schema.rs` says what rules they keep.
//!
//! What must stay true: a database that needs a newer program is refused before anything is written to it; processes that
//! start together wait for each other at a lock on the table of versions, so each migration is applied once; a migration
//! never stops those who work for longer than [`TABLE_PATIENCE`]. The names of our bookkeeping begin with `fermata_`: an
//! application may keep its own tables in the same database.

use super::{address::Address, error::PgError, transfer};
use crate::{
    Result, StoreError,
    schema::{Applied, Back, Loss, Migrate, Migration, Program, Schema, Step},
};
use std::time::Duration;
use tokio_postgres::{Client, Transaction, error::SqlState};

const MIGRATIONS: &[Migration] = &[
    Migration {
        number: 1,
        name: "first",
        up: include_str!("migrations/0001_first.sql"),
        back: Back::None("it made all there is; to be rid of that, drop the database"),
        oldest_program: "0.1.0",
    },
    Migration {
        number: 2,
        name: "sql functions",
        up: include_str!("migrations/0002_sql_functions.sql"),
        back: Back::Down {
            sql: include_str!("migrations/0002_sql_functions.down.sql"),
            unless: &[
                Loss {
                    what: "runs that sessions hold (`sp_try_acquire_execution`)",
                    count: "SELECT COUNT(*) FROM workflow_executions e JOIN runners r ON r.id = e.lease_owner
                        WHERE r.role = 'sql'",
                },
                Loss {
                    what: "rights to call `sp_` functions",
                    count: "SELECT COUNT(*) FROM pg_proc p CROSS JOIN LATERAL aclexplode(p.proacl) a
                        WHERE p.pronamespace = (SELECT pronamespace FROM pg_proc
                            WHERE oid = 'sp_start_workflow_execution'::regproc)
                          AND starts_with(p.proname, 'sp_') AND a.grantee <> p.proowner",
                },
            ],
        },
        oldest_program: "0.1.0",
    },
    Migration {
        number: 3,
        name: "workflows by uid",
        up: include_str!("migrations/0003_workflows_by_uid.sql"),
        back: Back::Down {
            sql: include_str!("migrations/0003_workflows_by_uid.down.sql"),
            unless: &[Loss {
                what: "workflows whose name another one has, or had before it was deleted",
                count: "SELECT COUNT(*) - COUNT(DISTINCT id) FROM workflows",
            }],
        },
        oldest_program: "0.1.0",
    },
    Migration {
        number: 4,
        name: "the spec's spelling",
        up: include_str!("migrations/0004_spec_spelling.sql"),
        back: Back::Down {
            sql: include_str!("migrations/0004_spec_spelling.down.sql"),
            unless: &[Loss {
                what: "rights to call functions or read views in the spec's spelling",
                count: "SELECT (SELECT COUNT(*) FROM pg_proc p CROSS JOIN LATERAL aclexplode(p.proacl) a
                      WHERE p.oid IN ('sp_startworkflowexecution'::regproc, 'sp_tryacquireexecution'::regproc,
                          'sp_completeworkflow'::regproc, 'sp_linkexternalresource'::regproc,
                          'sp_checkresourceexists'::regproc) AND a.grantee <> p.proowner)
                    + (SELECT COUNT(*) FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a
                      WHERE c.oid IN ('workflowdefinitions'::regclass, 'workflowexecutions'::regclass,
                          'actionexecutions'::regclass, 'workflowresourcelinks'::regclass,
                          'workflowexecutionhierarchy'::regclass, 'executionevents'::regclass)
                        AND a.grantee <> c.relowner)",
            }],
        },
        oldest_program: "0.1.0",
    },
    Migration {
        number: 5,
        name: "deadlines of waits",
        up: include_str!("migrations/0005_deadlines_of_waits.sql"),
        back: Back::Down {
            sql: include_str!("migrations/0005_deadlines_of_waits.down.sql"),
            unless: &[],
        },
        oldest_program: "0.1.0",
    },
    Migration {
        number: 6,
        name: "plans",
        up: include_str!("migrations/0006_plans.sql"),
        back: Back::Down {
            sql: include_str!("migrations/0006_plans.down.sql"),
            unless: &[Loss {
                what: "plans of published versions, whose policies would be settled anew",
                count: "SELECT COUNT(*) FROM workflow_plans",
            }],
        },
        oldest_program: "0.1.0",
    },
];

/// This program.
pub(super) const PROGRAM: Program<'static> = Program::this(MIGRATIONS);

const BOOKKEEPING: &str = "
    CREATE TABLE IF NOT EXISTS fermata_meta (
      key text NOT NULL PRIMARY KEY, value text NOT NULL) WITH (fillfactor = 20);
    CREATE TABLE IF NOT EXISTS fermata_schema_version (
      version integer NOT NULL PRIMARY KEY,
      name text NOT NULL,
      applied_at timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP);";

/// Others may read meanwhile, but nobody else migrates.
const LOCK: &str = "LOCK TABLE fermata_schema_version IN SHARE ROW EXCLUSIVE MODE";

const SET_OLDEST_PROGRAM: &str = "INSERT INTO fermata_meta (key, value) VALUES ('oldest_program', $1)
    ON CONFLICT (key) DO UPDATE SET value = excluded.value";

/// How often something is tried when others are in the way at the same moment.
const TRIES: usize = 20;
const PAUSE: Duration = Duration::from_millis(20);

/// How long a change may wait for a table. Whoever comes later waits behind it, so it gives up soon, lets them pass for
/// longer than that, and comes again.
const TABLE_PATIENCE: &str = "SET LOCAL lock_timeout = '250ms'";
const LET_PASS: Duration = Duration::from_secs(1);

/// Others of this program that are connected, and runners that were heard of half a minute ago. Sessions that acquired
/// runs by SQL are asked for by the migration that brought them.
const USERS: &str = "SELECT
    (SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
       AND application_name LIKE 'fermata%'),
    (SELECT COUNT(*) FROM runners WHERE role <> 'sql'
       AND heartbeat_at > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - 30000000)";
/// How often it is looked whether those who were just stopped are gone.
const GLANCES: u32 = 30;
const GLANCE: Duration = Duration::from_millis(100);

/// Brings a database up to date, or refuses it.
pub(super) async fn migrate(
    program: &Program<'_>,
    client: &mut Client,
    address: &Address,
    migrate: Migrate,
) -> Result<()> {
    let place = &address.place;
    check_server(client, address).await?;
    let opening = |error| address.unopenable(&PgError::Server(error));
    let version = version(client).await.map_err(opening)?;
    if version.is_some() {
        check_compatible(program, client, place).await?;
    }
    // Most starts find nothing to do, and need no right to change the schema.
    if version.is_some_and(|version| program.missing(version).next().is_none()) {
        return Ok(());
    }
    program.check_up_to_date(version.unwrap_or(0), migrate, place)?;
    keep_books(client).await.map_err(opening)?;
    apply(program, client).await.map_err(opening)?;
    check_compatible(program, client, place).await
}

/// What was applied, and for whom.
pub(super) async fn schema(client: &Client, address: &Address) -> Result<Schema> {
    let opening = |error| address.unopenable(&PgError::Server(error));
    let there = version(client).await.map_err(opening)?.is_some();
    let (oldest_program, applied) = match there {
        true => (
            oldest_program(client, &address.place).await?,
            applied(client).await.map_err(opening)?,
        ),
        false => (None, Vec::new()),
    };
    Ok(Schema {
        place: address.place.clone(),
        oldest_program,
        steps: PROGRAM.steps(&applied),
    })
}

/// Undoes the newest migration, if nobody uses the database and nothing is lost.
pub(super) async fn take_back(client: &mut Client, address: &Address) -> Result<Step> {
    let place = &address.place;
    let failed = |error| PgError::Server(error).explain(place);
    if version(client).await.map_err(failed)?.is_none() {
        return PROGRAM.way_back(&[], place).map(|way| way.step());
    }
    check_compatible(&PROGRAM, client, place).await?;
    check_unused(client, place).await?;
    let tx = client.transaction().await.map_err(failed)?;
    patient(&tx).await.map_err(failed)?;
    tx.batch_execute(TABLE_PATIENCE).await.map_err(failed)?;
    let mark = transfer::mark_text(tx.client()).await;
    let mark = mark.map_err(|error| error.explain(place))?;
    transfer::refuse_marked(mark.as_deref(), place)?;
    let way = PROGRAM.way_back(&applied(tx.client()).await.map_err(failed)?, place)?;
    let mut counts = Vec::new();
    for question in way.questions() {
        counts.push(tx.query_one(question, &[]).await.map_err(failed)?.get(0));
    }
    way.check(&counts, place)?;
    let undo = async {
        tx.batch_execute(way.sql).await?;
        let gone = "DELETE FROM fermata_schema_version WHERE version = $1";
        tx.execute(gone, &[&signed(way.from.number)]).await?;
        tx.execute(SET_OLDEST_PROGRAM, &[&way.oldest_program]).await?;
        tx.commit().await
    };
    undo.await.map_err(failed)?;
    Ok(way.step())
}

/// Refuses a database that somebody uses; those who were just told to stop get a moment.
async fn check_unused(client: &Client, place: &str) -> Result<()> {
    let failed = |error| PgError::Server(error).explain(place);
    let mut glances = 0;
    loop {
        let row = client.query_one(USERS, &[]).await.map_err(failed)?;
        let (connections, runners): (i64, i64) = (row.get(0), row.get(1));
        if connections + runners == 0 {
            return Ok(());
        }
        glances += 1;
        if glances > GLANCES {
            return Err(StoreError::NoWayBack {
                path: place.to_owned(),
                what: format!(
                    "it is in use by {connections} connections and {runners} runners that were heard of half a minute \
                     ago; stop them first"
                ),
            });
        }
        tokio::time::sleep(GLANCE).await;
    }
}

/// Refuses what no statement here is written for.
async fn check_server(client: &Client, address: &Address) -> Result<()> {
    let opening = |error| address.unopenable(&PgError::Server(error));
    let sql = "SELECT current_setting('server_version_num')::integer, current_setting('server_encoding'),
        current_setting('fsync') = 'on' AND current_setting('full_page_writes') = 'on'";
    let row = client.query_one(sql, &[]).await.map_err(opening)?;
    let (version, encoding, durable): (i32, String, bool) = (row.get(0), row.get(1), row.get(2));
    let refuse = |what: String| StoreError::Unopenable {
        path: address.place.clone(),
        what,
    };
    if version < 130_000 {
        return Err(refuse(format!(
            "PostgreSQL 13 or newer is needed, this is {}",
            version / 10_000
        )));
    }
    if encoding != "UTF8" {
        return Err(refuse(format!(
            "its encoding is {encoding}; create it with ENCODING 'UTF8'"
        )));
    }
    if !durable {
        tracing::warn!(place = %address.place, "fsync or full_page_writes is off in this server: a crash of its machine loses data");
    }
    Ok(())
}

/// The newest version of the schema, if there is any.
async fn version(client: &Client) -> Result<Option<u32>, tokio_postgres::Error> {
    let there = "SELECT to_regclass('fermata_schema_version') IS NOT NULL";
    if !client.query_one(there, &[]).await?.get::<_, bool>(0) {
        return Ok(None);
    }
    let newest = client.query_one(NEWEST, &[]).await?;
    Ok(Some(newest.get::<_, i32>(0).unsigned_abs()))
}

const NEWEST: &str = "SELECT COALESCE(MAX(version), 0) FROM fermata_schema_version";

async fn applied(client: &Client) -> Result<Vec<Applied>, tokio_postgres::Error> {
    let sql = "SELECT version, name, to_char(applied_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')
        FROM fermata_schema_version ORDER BY version";
    let rows = client.query(sql, &[]).await?;
    let applied = rows.iter().map(|row| Applied {
        number: row.get::<_, i32>(0).unsigned_abs(),
        name: row.get(1),
        at: row.get(2),
    });
    Ok(applied.collect())
}

async fn oldest_program(client: &Client, place: &str) -> Result<Option<String>> {
    let sql = "SELECT value FROM fermata_meta WHERE key = 'oldest_program'";
    let row = client.query_opt(sql, &[]).await;
    let row = row.map_err(|error| StoreError::Damaged {
        path: place.to_owned(),
        what: PgError::Server(error).to_string(),
    })?;
    Ok(row.map(|row| row.get(0)))
}

/// Refuses a database that needs a newer program. Reads only.
async fn check_compatible(program: &Program<'_>, client: &Client, place: &str) -> Result<()> {
    match oldest_program(client, place).await? {
        Some(needs) => program.check(&needs, place),
        // Somebody is about to make the schema; so are we.
        None => Ok(()),
    }
}

/// Makes the tables that say what was applied.
async fn keep_books(client: &Client) -> Result<(), tokio_postgres::Error> {
    // `IF NOT EXISTS` does not see a table that another process is just making.
    const COLLISIONS: [SqlState; 3] = [
        SqlState::UNIQUE_VIOLATION,
        SqlState::DUPLICATE_TABLE,
        SqlState::DUPLICATE_OBJECT,
    ];
    let mut tries = 0;
    loop {
        let error = match client.batch_execute(BOOKKEEPING).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        tries += 1;
        if tries > TRIES || !error.code().is_some_and(|code| COLLISIONS.contains(code)) {
            return Err(error);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Applies what is missing, in one transaction, while others work.
async fn apply(program: &Program<'_>, client: &mut Client) -> Result<(), tokio_postgres::Error> {
    let mut tries = 0;
    loop {
        let error = match apply_once(program, client).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        tries += 1;
        let in_the_way = [SqlState::LOCK_NOT_AVAILABLE, SqlState::T_R_DEADLOCK_DETECTED];
        if tries > TRIES || !error.code().is_some_and(|code| in_the_way.contains(code)) {
            return Err(error);
        }
        tracing::warn!("somebody holds a table that a migration changes, such as a backup; trying again");
        tokio::time::sleep(LET_PASS).await;
    }
}

async fn apply_once(program: &Program<'_>, client: &mut Client) -> Result<(), tokio_postgres::Error> {
    let tx = client.transaction().await?;
    patient(&tx).await?;
    let newest: i32 = tx.query_one(NEWEST, &[]).await?.get(0);
    tx.batch_execute(TABLE_PATIENCE).await?;
    for migration in program.missing(newest.unsigned_abs()) {
        tx.batch_execute(migration.up).await?;
        let applied = "INSERT INTO fermata_schema_version (version, name) VALUES ($1, $2)";
        tx.execute(applied, &[&signed(migration.number), &migration.name])
            .await?;
        tx.execute(SET_OLDEST_PROGRAM, &[&migration.oldest_program]).await?;
    }
    tx.commit().await
}

/// Waits for whoever migrates at the same time, as long as that takes.
async fn patient(tx: &Transaction<'_>) -> Result<(), tokio_postgres::Error> {
    tx.batch_execute("SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0; SET LOCAL enable_seqscan = on;")
        .await?;
    tx.batch_execute(LOCK).await
}

fn signed(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
