//! Schema migrations: embedded SQL files, applied in order, each once. The rules for them are in `schema.rs`.
//!
//! What must stay true:
//! * A database that needs a newer program is refused before anything is written to it.
//! * Processes that start at the same time wait for a lock on the version table, so each migration is applied once.
//! * A migration never blocks running processes for longer than [`SET_TABLE_LOCK_TIMEOUT`].
//! * The names of bookkeeping tables begin with `fermata_`: an application may have its own tables in the database.

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
        back: Back::None("it created the whole schema; to remove it, drop the database"),
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
                    what: "grants on `sp_` functions",
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
                what: "workflows that share their name with another workflow, which may be deleted",
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
                what: "grants on functions or views in the spec's spelling",
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
                what: "plans of published versions (the versions would be compiled again with the current limits)",
                count: "SELECT COUNT(*) FROM workflow_plans",
            }],
        },
        oldest_program: "0.1.0",
    },
    Migration {
        number: 7,
        name: "inbox",
        up: include_str!("migrations/0007_inbox.sql"),
        back: Back::Down {
            sql: include_str!("migrations/0007_inbox.down.sql"),
            unless: &[
                Loss {
                    what: "inbox items, which the older program cannot answer",
                    count: "SELECT COUNT(*) FROM run_waits WHERE item_id IS NOT NULL",
                },
                Loss {
                    what: "waits of a second or later attempt",
                    count: "SELECT COUNT(*) FROM run_waits WHERE attempt > 1",
                },
            ],
        },
        oldest_program: "0.1.0",
    },
    Migration {
        number: 8,
        name: "child runs",
        up: include_str!("migrations/0008_child_runs.sql"),
        back: Back::Down {
            sql: include_str!("migrations/0008_child_runs.down.sql"),
            unless: &[Loss {
                what: "child runs that a node started",
                count: "SELECT COUNT(*) FROM workflow_executions WHERE parent_node_id IS NOT NULL",
            }],
        },
        oldest_program: "0.1.0",
    },
    Migration {
        number: 9,
        name: "registered callbacks",
        up: include_str!("migrations/0009_registered_callbacks.sql"),
        back: Back::Down {
            sql: include_str!("migrations/0009_registered_callbacks.down.sql"),
            unless: &[Loss {
                what: "registered callbacks",
                count: "SELECT COUNT(*) FROM registered_callbacks",
            }],
        },
        oldest_program: "0.1.0",
    },
    Migration {
        number: 10,
        name: "API keys",
        up: include_str!("migrations/0010_api_keys.sql"),
        back: Back::Down {
            sql: include_str!("migrations/0010_api_keys.down.sql"),
            unless: &[Loss {
                what: "API keys",
                count: "SELECT COUNT(*) FROM api_keys",
            }],
        },
        oldest_program: "0.1.0",
    },
    Migration {
        number: 11,
        name: "tenants",
        up: include_str!("migrations/0011_tenants.sql"),
        back: Back::Down {
            sql: include_str!("migrations/0011_tenants.down.sql"),
            unless: &[
                Loss {
                    what: "workflows of tenants",
                    count: "SELECT COUNT(*) FROM workflows WHERE tenant_id <> ''",
                },
                Loss {
                    what: "workflows of tenants whose versions would be numbered from 1 again",
                    count: "SELECT COUNT(*) FROM workflow_version_marks WHERE tenant_id <> ''",
                },
                Loss {
                    what: "registered callbacks of tenants",
                    count: "SELECT COUNT(*) FROM registered_callbacks WHERE tenant_id <> ''",
                },
            ],
        },
        // An older program would find workflows of other tenants by their names.
        oldest_program: "0.2.0",
    },
    Migration {
        number: 12,
        name: "audit",
        up: include_str!("migrations/0012_audit.sql"),
        back: Back::Down {
            sql: include_str!("migrations/0012_audit.down.sql"),
            unless: &[Loss {
                what: "rows of the audit trail",
                count: "SELECT COUNT(*) FROM audit_log",
            }],
        },
        oldest_program: "0.2.0",
    },
    Migration {
        number: 13,
        name: "traceparent",
        up: include_str!("migrations/0013_traceparent.sql"),
        back: Back::Down {
            sql: include_str!("migrations/0013_traceparent.down.sql"),
            unless: &[Loss {
                what: "runs in flight that belong to the trace of their caller",
                count: "SELECT COUNT(*) FROM workflow_executions WHERE traceparent IS NOT NULL AND end_time IS NULL",
            }],
        },
        oldest_program: "0.2.0",
    },
    Migration {
        number: 14,
        name: "usage of tenants",
        up: include_str!("migrations/0014_usage.sql"),
        back: Back::Down {
            sql: include_str!("migrations/0014_usage.down.sql"),
            unless: &[Loss {
                what: "counted steps of tenants",
                count: "SELECT COUNT(*) FROM tenant_usage WHERE steps > 0",
            }],
        },
        oldest_program: "0.2.0",
    },
    Migration {
        number: 15,
        name: "flow control",
        up: include_str!("migrations/0015_flow.sql"),
        back: Back::Down {
            sql: include_str!("migrations/0015_flow.down.sql"),
            unless: &[Loss {
                what: "keys of runs that are limited",
                count: "SELECT COUNT(*) FROM flow_keys",
            }],
        },
        oldest_program: "0.2.0",
    },
    Migration {
        number: 16,
        name: "triggers",
        up: include_str!("migrations/0016_triggers.sql"),
        back: Back::Down {
            sql: include_str!("migrations/0016_triggers.down.sql"),
            unless: &[Loss {
                what: "triggers",
                count: "SELECT COUNT(*) FROM workflow_triggers",
            }],
        },
        oldest_program: "0.2.0",
    },
    Migration {
        number: 17,
        name: "states of runs",
        up: include_str!("migrations/0017_run_states.sql"),
        back: Back::Down {
            sql: include_str!("migrations/0017_run_states.down.sql"),
            unless: &[],
        },
        oldest_program: "0.2.0",
    },
    Migration {
        number: 18,
        name: "reruns",
        up: include_str!("migrations/0018_reruns.sql"),
        back: Back::Down {
            sql: include_str!("migrations/0018_reruns.down.sql"),
            unless: &[Loss {
                what: "runs that repeat others, whose kept nodes the older program would execute",
                count: "SELECT COUNT(*) FROM workflow_executions WHERE rerun_of IS NOT NULL AND end_time IS NULL",
            }],
        },
        // An older program would execute the nodes that such a run keeps.
        oldest_program: "0.2.0",
    },
    Migration {
        number: 19,
        name: "numbers of runs",
        up: include_str!("migrations/0019_run_stats.sql"),
        back: Back::Down {
            sql: include_str!("migrations/0019_run_stats.down.sql"),
            unless: &[],
        },
        oldest_program: "0.2.0",
    },
    Migration {
        number: 20,
        name: "paused runs and workflows",
        up: include_str!("migrations/0020_paused.sql"),
        back: Back::Down {
            sql: include_str!("migrations/0020_paused.down.sql"),
            unless: &[
                Loss {
                    what: "runs that are paused",
                    count: "SELECT COUNT(*) FROM workflow_executions WHERE paused_at IS NOT NULL AND end_time IS NULL",
                },
                Loss {
                    what: "workflows that are paused",
                    count: "SELECT COUNT(*) FROM workflows WHERE paused_at IS NOT NULL",
                },
            ],
        },
        oldest_program: "0.2.0",
    },
    Migration {
        number: 21,
        name: "searchable fields and tags",
        up: include_str!("migrations/0021_queries.sql"),
        back: Back::Down {
            sql: include_str!("migrations/0021_queries.down.sql"),
            unless: &[Loss {
                what: "searchable fields of runs",
                count: "SELECT COUNT(*) FROM run_fields",
            }],
        },
        oldest_program: "0.2.0",
    },
    Migration {
        number: 22,
        name: "bulk jobs",
        up: include_str!("migrations/0022_bulk.sql"),
        back: Back::Down {
            sql: include_str!("migrations/0022_bulk.down.sql"),
            unless: &[Loss {
                what: "bulk jobs that have not ended",
                count: "SELECT COUNT(*) FROM bulk_jobs WHERE ended_at IS NULL",
            }],
        },
        oldest_program: "0.2.0",
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

/// Other sessions may read the table, but no other process can migrate.
const LOCK: &str = "LOCK TABLE fermata_schema_version IN SHARE ROW EXCLUSIVE MODE";

const SET_OLDEST_PROGRAM: &str = "INSERT INTO fermata_meta (key, value) VALUES ('oldest_program', $1)
    ON CONFLICT (key) DO UPDATE SET value = excluded.value";

/// How often a step is tried if other transactions conflict with it.
const TRIES: usize = 20;
const PAUSE: Duration = Duration::from_millis(20);

/// How long a schema change may wait for a table lock. Later statements queue behind the waiting change, so it gives up
/// soon, pauses for longer than that (`RETRY_PAUSE`), and tries again.
const SET_TABLE_LOCK_TIMEOUT: &str = "SET LOCAL lock_timeout = '250ms'";
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The number of other connections of Fermata, and of runners with a heartbeat in the last 30 seconds. SQL sessions that
/// acquired runs are checked by the migration that introduced them.
const USERS: &str = "SELECT
    (SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
       AND application_name LIKE 'fermata%'),
    (SELECT COUNT(*) FROM runners WHERE role <> 'sql'
       AND heartbeat_at > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - 30000000)";
/// How often the check is repeated: processes that were just stopped may still be connected.
const IN_USE_CHECKS: u32 = 30;
const IN_USE_INTERVAL: Duration = Duration::from_millis(100);

/// Applies the missing migrations, or refuses the database.
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
    // Most starts find nothing to do. They need no privilege to change the schema.
    if version.is_some_and(|version| program.missing(version).next().is_none()) {
        return Ok(());
    }
    program.check_up_to_date(version.unwrap_or(0), migrate, place)?;
    create_bookkeeping_tables(client).await.map_err(opening)?;
    apply(program, client).await.map_err(opening)?;
    check_compatible(program, client, place).await
}

/// The applied migrations, and the oldest program that can use the schema.
pub(super) async fn schema(client: &Client, address: &Address) -> Result<Schema> {
    let opening = |error| address.unopenable(&PgError::Server(error));
    let exists = version(client).await.map_err(opening)?.is_some();
    let (oldest_program, applied) = match exists {
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

/// Undoes the newest migration, if the database is not in use and no data would be lost.
pub(super) async fn undo_newest(client: &mut Client, address: &Address) -> Result<Step> {
    let place = &address.place;
    let failed = |error| PgError::Server(error).explain(place);
    if version(client).await.map_err(failed)?.is_none() {
        return PROGRAM.way_back(&[], place).map(|way| way.step());
    }
    check_compatible(&PROGRAM, client, place).await?;
    check_unused(client, place).await?;
    let tx = client.transaction().await.map_err(failed)?;
    lock_versions(&tx).await.map_err(failed)?;
    tx.batch_execute(SET_TABLE_LOCK_TIMEOUT).await.map_err(failed)?;
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
        let delete = "DELETE FROM fermata_schema_version WHERE version = $1";
        tx.execute(delete, &[&signed(way.from.number)]).await?;
        tx.execute(SET_OLDEST_PROGRAM, &[&way.oldest_program]).await?;
        tx.commit().await
    };
    undo.await.map_err(failed)?;
    Ok(way.step())
}

/// Refuses a database that is in use. Waits a moment for processes that are just stopping.
async fn check_unused(client: &Client, place: &str) -> Result<()> {
    let failed = |error| PgError::Server(error).explain(place);
    let mut checks = 0;
    loop {
        let row = client.query_one(USERS, &[]).await.map_err(failed)?;
        let (connections, runners): (i64, i64) = (row.get(0), row.get(1));
        if connections + runners == 0 {
            return Ok(());
        }
        checks += 1;
        if checks > IN_USE_CHECKS {
            return Err(StoreError::NoWayBack {
                path: place.to_owned(),
                what: format!(
                    "it is in use by {connections} connections and {runners} runners with a heartbeat in the last 30 \
                     seconds; stop them first"
                ),
            });
        }
        tokio::time::sleep(IN_USE_INTERVAL).await;
    }
}

/// Refuses servers that the statements are not written for, and warns about settings that lose data.
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
            "PostgreSQL 13 or newer is required, but the server has version {}",
            version / 10_000
        )));
    }
    if encoding != "UTF8" {
        return Err(refuse(format!(
            "the encoding of the database is {encoding}; create it with ENCODING 'UTF8'"
        )));
    }
    if !durable {
        tracing::warn!(place = %address.place, "fsync or full_page_writes is off on this server: if its machine crashes, data is lost");
    }
    Ok(())
}

/// The newest applied migration; `None` if the database has no schema.
pub(super) async fn version(client: &Client) -> Result<Option<u32>, tokio_postgres::Error> {
    let exists = "SELECT to_regclass('fermata_schema_version') IS NOT NULL";
    if !client.query_one(exists, &[]).await?.get::<_, bool>(0) {
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
        // Another process is just creating the schema; `apply` waits for it.
        None => Ok(()),
    }
}

/// Creates the tables that record the applied migrations.
async fn create_bookkeeping_tables(client: &Client) -> Result<(), tokio_postgres::Error> {
    // `IF NOT EXISTS` does not see a table that another process is just creating.
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

/// Applies the missing migrations in one transaction, while other processes may keep working.
async fn apply(program: &Program<'_>, client: &mut Client) -> Result<(), tokio_postgres::Error> {
    let mut tries = 0;
    loop {
        let error = match apply_once(program, client).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        tries += 1;
        let conflicts = [SqlState::LOCK_NOT_AVAILABLE, SqlState::T_R_DEADLOCK_DETECTED];
        if tries > TRIES || !error.code().is_some_and(|code| conflicts.contains(code)) {
            return Err(error);
        }
        tracing::warn!(
            "another session, for instance a backup, locks a table that a migration changes; retrying in {} s",
            RETRY_PAUSE.as_secs()
        );
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

async fn apply_once(program: &Program<'_>, client: &mut Client) -> Result<(), tokio_postgres::Error> {
    let tx = client.transaction().await?;
    lock_versions(&tx).await?;
    let newest: i32 = tx.query_one(NEWEST, &[]).await?.get(0);
    tx.batch_execute(SET_TABLE_LOCK_TIMEOUT).await?;
    for migration in program.missing(newest.unsigned_abs()) {
        tx.batch_execute(migration.up).await?;
        let applied = "INSERT INTO fermata_schema_version (version, name) VALUES ($1, $2)";
        tx.execute(applied, &[&signed(migration.number), &migration.name])
            .await?;
        tx.execute(SET_OLDEST_PROGRAM, &[&migration.oldest_program]).await?;
    }
    tx.commit().await
}

/// Locks the version table. Waits without a timeout for another process that is migrating.
async fn lock_versions(tx: &Transaction<'_>) -> Result<(), tokio_postgres::Error> {
    tx.batch_execute("SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0; SET LOCAL enable_seqscan = on;")
        .await?;
    tx.batch_execute(LOCK).await
}

fn signed(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
