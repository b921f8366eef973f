//! The schema and its migrations: embedded SQL files, applied in order, each once. `schema.rs` has their rules.
//!
//! What must stay true: a file that needs a newer program is refused before anything is written to it.

use crate::{
    Result, StoreError,
    schema::{Applied, Back, Loss, Migration, Program, Step},
};
use rusqlite::{Connection, OptionalExtension};

/// `Ferm`: the application id in the header of the file.
pub(super) const APPLICATION_ID: i32 = 0x4665_726d;

const ONLY_ONE: Back = Back::None("it created the whole schema; to remove that, delete the file");

const MIGRATIONS: &[Migration] = &[
    Migration {
        number: 1,
        name: "first",
        up: include_str!("migrations/0001_first.sql"),
        back: ONLY_ONE,
        oldest_program: "0.1.0",
    },
    Migration {
        number: 2,
        name: "lifecycle and lists",
        up: include_str!("migrations/0002_lifecycle_and_lists.sql"),
        back: Back::Down {
            sql: include_str!("migrations/0002_lifecycle_and_lists.down.sql"),
            unless: &[Loss {
                what: "workflows whose versions would be numbered from 1 again",
                count: "SELECT COUNT(*) FROM workflow_version_marks",
            }],
        },
        oldest_program: "0.1.0",
    },
    Migration {
        number: 3,
        name: "workflows without drafts",
        up: include_str!("migrations/0003_workflows_without_drafts.sql"),
        back: Back::Down {
            sql: include_str!("migrations/0003_workflows_without_drafts.down.sql"),
            unless: &[Loss {
                what: "workflows whose ids (`uid`) others may know",
                count: "SELECT COUNT(*) FROM workflows",
            }],
        },
        oldest_program: "0.1.0",
    },
    Migration {
        number: 4,
        name: "runners and dead letters",
        up: include_str!("migrations/0004_runners_and_dead_letters.sql"),
        back: Back::Down {
            sql: include_str!("migrations/0004_runners_and_dead_letters.down.sql"),
            unless: &[Loss {
                what: "dead letters",
                count: "SELECT COUNT(*) FROM dead_letters",
            }],
        },
        oldest_program: "0.1.0",
    },
    Migration {
        number: 5,
        name: "workflows by uid",
        up: include_str!("migrations/0005_workflows_by_uid.sql"),
        back: Back::Down {
            sql: include_str!("migrations/0005_workflows_by_uid.down.sql"),
            unless: &[Loss {
                what: "workflows whose name another one has, or had before it was deleted",
                count: "SELECT COUNT(*) - COUNT(DISTINCT id) FROM workflows",
            }],
        },
        oldest_program: "0.1.0",
    },
    Migration {
        number: 6,
        name: "public url",
        up: include_str!("migrations/0006_public_url.sql"),
        back: Back::Down {
            sql: include_str!("migrations/0006_public_url.down.sql"),
            unless: &[],
        },
        oldest_program: "0.1.0",
    },
    Migration {
        number: 7,
        name: "deadlines of waits",
        up: include_str!("migrations/0007_deadlines_of_waits.sql"),
        back: Back::Down {
            sql: include_str!("migrations/0007_deadlines_of_waits.down.sql"),
            unless: &[],
        },
        oldest_program: "0.1.0",
    },
    Migration {
        number: 8,
        name: "plans",
        up: include_str!("migrations/0008_plans.sql"),
        back: Back::Down {
            sql: include_str!("migrations/0008_plans.down.sql"),
            unless: &[Loss {
                what: "plans of published versions, whose policies would be computed again",
                count: "SELECT COUNT(*) FROM workflow_plans",
            }],
        },
        oldest_program: "0.1.0",
    },
    Migration {
        number: 9,
        name: "inbox",
        up: include_str!("migrations/0009_inbox.sql"),
        back: Back::Down {
            sql: include_str!("migrations/0009_inbox.down.sql"),
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
        number: 10,
        name: "child runs",
        up: include_str!("migrations/0010_child_runs.sql"),
        back: Back::Down {
            sql: include_str!("migrations/0010_child_runs.down.sql"),
            unless: &[Loss {
                what: "child runs that a node started",
                count: "SELECT COUNT(*) FROM workflow_executions WHERE parent_node_id IS NOT NULL",
            }],
        },
        oldest_program: "0.1.0",
    },
    Migration {
        number: 11,
        name: "registered callbacks",
        up: include_str!("migrations/0011_registered_callbacks.sql"),
        back: Back::Down {
            sql: include_str!("migrations/0011_registered_callbacks.down.sql"),
            unless: &[Loss {
                what: "registered callbacks",
                count: "SELECT COUNT(*) FROM registered_callbacks",
            }],
        },
        oldest_program: "0.1.0",
    },
    Migration {
        number: 12,
        name: "API keys",
        up: include_str!("migrations/0012_api_keys.sql"),
        back: Back::Down {
            sql: include_str!("migrations/0012_api_keys.down.sql"),
            unless: &[Loss {
                what: "API keys",
                count: "SELECT COUNT(*) FROM api_keys",
            }],
        },
        oldest_program: "0.1.0",
    },
    Migration {
        number: 13,
        name: "tenants",
        up: include_str!("migrations/0013_tenants.sql"),
        back: Back::Down {
            sql: include_str!("migrations/0013_tenants.down.sql"),
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
        number: 14,
        name: "audit",
        up: include_str!("migrations/0014_audit.sql"),
        back: Back::Down {
            sql: include_str!("migrations/0014_audit.down.sql"),
            unless: &[Loss {
                what: "rows of the audit trail",
                count: "SELECT COUNT(*) FROM audit_log",
            }],
        },
        oldest_program: "0.2.0",
    },
    Migration {
        number: 15,
        name: "traceparent",
        up: include_str!("migrations/0015_traceparent.sql"),
        back: Back::Down {
            sql: include_str!("migrations/0015_traceparent.down.sql"),
            unless: &[Loss {
                what: "runs in flight that belong to the trace of their caller",
                count: "SELECT COUNT(*) FROM workflow_executions WHERE traceparent IS NOT NULL AND end_time IS NULL",
            }],
        },
        oldest_program: "0.2.0",
    },
    Migration {
        number: 16,
        name: "usage of tenants",
        up: include_str!("migrations/0016_usage.sql"),
        back: Back::Down {
            sql: include_str!("migrations/0016_usage.down.sql"),
            unless: &[Loss {
                what: "counted steps of tenants",
                count: "SELECT COUNT(*) FROM tenant_usage WHERE steps > 0",
            }],
        },
        oldest_program: "0.2.0",
    },
    Migration {
        number: 17,
        name: "flow control",
        up: include_str!("migrations/0017_flow.sql"),
        back: Back::Down {
            sql: include_str!("migrations/0017_flow.down.sql"),
            unless: &[Loss {
                what: "keys of runs that are limited",
                count: "SELECT COUNT(*) FROM flow_keys",
            }],
        },
        oldest_program: "0.2.0",
    },
    Migration {
        number: 18,
        name: "triggers",
        up: include_str!("migrations/0018_triggers.sql"),
        back: Back::Down {
            sql: include_str!("migrations/0018_triggers.down.sql"),
            unless: &[Loss {
                what: "triggers",
                count: "SELECT COUNT(*) FROM workflow_triggers",
            }],
        },
        oldest_program: "0.2.0",
    },
    Migration {
        number: 19,
        name: "states of runs",
        up: include_str!("migrations/0019_run_states.sql"),
        back: Back::Down {
            sql: include_str!("migrations/0019_run_states.down.sql"),
            unless: &[],
        },
        oldest_program: "0.2.0",
    },
    Migration {
        number: 20,
        name: "reruns",
        up: include_str!("migrations/0020_reruns.sql"),
        back: Back::Down {
            sql: include_str!("migrations/0020_reruns.down.sql"),
            unless: &[Loss {
                what: "runs that repeat others, whose kept nodes the older program would execute",
                count: "SELECT COUNT(*) FROM workflow_executions WHERE rerun_of IS NOT NULL AND end_time IS NULL",
            }],
        },
        // An older program would execute the nodes that such a run keeps.
        oldest_program: "0.2.0",
    },
    Migration {
        number: 21,
        name: "numbers of runs",
        up: include_str!("migrations/0021_run_stats.sql"),
        back: Back::Down {
            sql: include_str!("migrations/0021_run_stats.down.sql"),
            unless: &[],
        },
        oldest_program: "0.2.0",
    },
    Migration {
        number: 22,
        name: "paused runs and workflows",
        up: include_str!("migrations/0022_paused.sql"),
        back: Back::Down {
            sql: include_str!("migrations/0022_paused.down.sql"),
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
        number: 23,
        name: "searchable fields and tags",
        up: include_str!("migrations/0023_queries.sql"),
        back: Back::Down {
            sql: include_str!("migrations/0023_queries.down.sql"),
            unless: &[Loss {
                what: "searchable fields of runs",
                count: "SELECT COUNT(*) FROM run_fields",
            }],
        },
        oldest_program: "0.2.0",
    },
    Migration {
        number: 24,
        name: "bulk jobs",
        up: include_str!("migrations/0024_bulk.sql"),
        back: Back::Down {
            sql: include_str!("migrations/0024_bulk.down.sql"),
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
    CREATE TABLE IF NOT EXISTS meta (key TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS schema_version (
      version INTEGER NOT NULL PRIMARY KEY,
      name TEXT NOT NULL,
      applied_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
    );";

/// The oldest program that may use a file. Reads only.
pub(super) fn oldest_program(connection: &Connection, path: &str) -> Result<String> {
    let needs = connection
        .query_row("SELECT value FROM meta WHERE key = 'oldest_program'", [], |row| {
            row.get(0)
        })
        .optional()
        .map_err(|error| damaged(path, &error))?;
    needs.ok_or_else(|| StoreError::Damaged {
        path: path.to_owned(),
        what: "it does not name the oldest program that may use it".to_owned(),
    })
}

/// The applied migrations, in order. Reads only.
pub(super) fn applied(connection: &Connection) -> rusqlite::Result<Vec<Applied>> {
    let sql = "SELECT version, name, strftime('%Y-%m-%dT%H:%M:%SZ', applied_at) FROM schema_version ORDER BY version";
    let mut statement = connection.prepare(sql)?;
    let rows = statement.query_map([], |row| {
        Ok(Applied {
            number: row.get(0)?,
            name: row.get(1)?,
            at: row.get(2)?,
        })
    })?;
    rows.collect()
}

/// The number of the newest applied migration. Reads only.
pub(super) fn number(connection: &Connection) -> rusqlite::Result<u32> {
    connection.query_row("SELECT COALESCE(MAX(version), 0) FROM schema_version", [], |row| {
        row.get(0)
    })
}

/// Applies the missing migrations. Runs inside the transaction of the caller.
pub(super) fn apply(connection: &Connection, program: &Program) -> rusqlite::Result<()> {
    connection.execute_batch(BOOKKEEPING)?;
    for migration in program.missing(number(connection)?) {
        connection.execute_batch(migration.up)?;
        connection.execute(
            "INSERT INTO schema_version (version, name) VALUES (?1, ?2)",
            (migration.number, migration.name),
        )?;
        set_oldest_program(connection, migration.oldest_program)?;
    }
    Ok(())
}

/// Undoes the newest migration, if no data is lost. Runs inside the transaction of the caller, which must be rolled
/// back after an error.
pub(super) fn take_back(connection: &Connection, program: &Program, path: &str) -> Result<Step> {
    let failed = |error: rusqlite::Error| StoreError::Failed(format!("{path}: {error}"));
    let way = program.way_back(&applied(connection).map_err(failed)?, path)?;
    let counts = way
        .questions()
        .map(|sql| connection.query_row(sql, [], |row| row.get(0)));
    let counts: rusqlite::Result<Vec<i64>> = counts.collect();
    way.check(&counts.map_err(failed)?, path)?;
    let gone = "DELETE FROM schema_version WHERE version = ?1";
    connection
        .execute_batch(way.sql)
        .and_then(|()| connection.execute(gone, [way.from.number]))
        .and_then(|_| set_oldest_program(connection, way.oldest_program))
        .map_err(failed)?;
    Ok(way.step())
}

fn set_oldest_program(connection: &Connection, program: &str) -> rusqlite::Result<()> {
    connection.execute(
        "INSERT INTO meta (key, value) VALUES ('oldest_program', ?1)
         ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        [program],
    )?;
    Ok(())
}

fn damaged(path: &str, error: &rusqlite::Error) -> StoreError {
    StoreError::Damaged {
        path: path.to_owned(),
        what: error.to_string(),
    }
}

#[cfg(test)]
mod tests;
