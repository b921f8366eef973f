//! The evidence: what clients received, what the service received, and what is in the database. The checks (`check.rs`) use nothing
//! else.

use fermata_core::Status;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    time::{SystemTime, UNIX_EPOCH},
};
use uuid::Uuid;

/// Microseconds since 1970, by the clock of this machine. The database uses the same clock.
pub type Micros = i64;

/// Now.
pub fn now() -> Micros {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// A call that a step made to the service.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Effect {
    /// The number of the call. The response contains it, so a recorded attempt shows which response it has.
    pub call: u64,
    pub at: Micros,
    pub run: String,
    pub node: String,
    /// The attempt in the headers of the call.
    pub attempt: u32,
    /// The idempotency key.
    pub key: String,
    pub body: Value,
    /// The status of the response.
    pub answered: u16,
}

/// Something that a client sent or received.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Note {
    /// A start was acknowledged.
    Started {
        at: Micros,
        request: String,
        tenant: String,
        workflow: String,
        run: String,
        /// The process that acknowledged it.
        by: String,
    },
    /// A cancel is about to be sent.
    Cancelling { run: String },
    /// A cancel was acknowledged, with this status of the run.
    Cancelled { at: Micros, run: String, status: String },
    /// A callback is about to be sent.
    Calling { run: String, node: String, payload: Value },
    /// A callback was acknowledged.
    Called {
        at: Micros,
        run: String,
        node: String,
        payload: Value,
    },
    /// A worker got a task.
    Claimed {
        at: Micros,
        /// The tenant that it asked for.
        tenant: Option<String>,
        item: Uuid,
        lease: Uuid,
        run: Uuid,
    },
    /// The answer of a worker is about to be sent.
    Completing { item: Uuid, lease: Uuid, payload: Value },
    /// The answer of a worker, sent at this time, was acknowledged.
    Completed {
        sent: Micros,
        item: Uuid,
        lease: Uuid,
        payload: Value,
    },
    /// A webhook or an event was acknowledged.
    Occurred {
        at: Micros,
        /// In the trigger of the runs that it starts.
        order: String,
        /// The workflows that it starts, one run of each.
        workflows: Vec<String>,
        /// The run that the response named.
        run: Option<Uuid>,
        /// The process that acknowledged it.
        by: String,
    },
    /// A valid request was refused for good.
    Refused { what: String },
}

/// A run according to its rows.
#[derive(Debug, Clone)]
pub struct RunRows {
    pub workflow: String,
    pub request: String,
    pub tenant: String,
    pub status: Status,
    pub trigger: Value,
    pub reason: Option<String>,
    pub end_time: Option<Micros>,
    pub owner: Option<Uuid>,
    pub epoch: i64,
    pub wake_at: Option<Micros>,
    pub unread: i64,
    /// (seq, text), by seq.
    pub journal: Vec<(i32, String)>,
    pub attempts: Vec<AttemptRow>,
    pub waits: Vec<WaitRow>,
    /// The run that started it, and the node.
    pub parent: Option<(Uuid, String)>,
    pub outputs: Option<Value>,
    /// Messages for it.
    pub messages: i64,
    pub dead_letters: i64,
}

#[derive(Debug, Clone)]
pub struct AttemptRow {
    pub node: String,
    pub attempt: u32,
    pub status: String,
    pub outputs: Option<Value>,
    pub error: Option<Value>,
    /// Whether it started. An attempt that waited for a slot when its run stopped did not.
    pub began: bool,
}

#[derive(Debug, Clone)]
pub struct WaitRow {
    pub node: String,
    pub attempt: u32,
    pub open: bool,
    pub payload: Option<Value>,
    /// Its id in the inbox, if it is there.
    pub item: Option<Uuid>,
    /// The newest lease of a worker.
    pub lease: Option<Uuid>,
}

/// An occurrence of a trigger, and what became of it.
#[derive(Debug, Clone)]
pub struct DeliveryRow {
    pub trigger: Uuid,
    pub occurrence: String,
    pub state: String,
    pub reason: Option<String>,
    pub run: Uuid,
    /// The instant, if the trigger is a schedule.
    pub instant: Option<Micros>,
}

/// A change of a run's row, recorded by a trigger.
#[derive(Debug, Clone)]
pub struct Change {
    pub at: Micros,
    /// The process that made the change.
    pub who: String,
    pub run: Uuid,
    /// `None` if the run was created.
    pub old_status: Option<String>,
    pub status: String,
    pub old_owner: Option<Uuid>,
    pub owner: Option<Uuid>,
    pub old_epoch: i64,
    pub epoch: i64,
    /// The start of the transaction.
    pub began: Micros,
}

impl Change {
    /// Whether the run was held and is held by another runner now.
    pub fn is_takeover(&self) -> bool {
        self.old_owner.is_some() && self.owner.is_some() && self.owner != self.old_owner
    }
}

/// A journal row, recorded by a trigger.
#[derive(Debug, Clone)]
pub struct Written {
    pub at: Micros,
    pub who: String,
    pub run: Uuid,
    pub seq: i32,
    /// The owner of the run and the epoch at that time.
    pub owner: Option<Uuid>,
    pub epoch: i64,
}

/// A heartbeat of a runner, recorded by a trigger.
#[derive(Debug, Clone, Copy)]
pub struct Heartbeat {
    pub at: Micros,
    /// The time that it reports.
    pub reported: Micros,
}

/// A new lease of an item of the inbox, or its answer, recorded by a trigger.
#[derive(Debug, Clone, Copy)]
pub struct Leased {
    pub at: Micros,
    pub item: Uuid,
    pub old_lease: Option<Uuid>,
    pub lease: Option<Uuid>,
    /// When the lease before lapses or lapsed.
    pub old_until: Micros,
    /// When this lease lapses.
    pub until: Micros,
    /// Whether this change stored the answer.
    pub answered: bool,
}

/// All evidence.
#[derive(Debug, Default)]
pub struct Evidence {
    pub notes: Vec<Note>,
    pub effects: Vec<Effect>,
    pub runs: BTreeMap<Uuid, RunRows>,
    pub changes: Vec<Change>,
    pub written: Vec<Written>,
    /// The process of each runner.
    pub runners: BTreeMap<Uuid, String>,
    /// The leases and answers of the inbox, in order.
    pub leased: Vec<Leased>,
    pub deliveries: Vec<DeliveryRow>,
    /// How many stops of processes there were.
    pub stops: usize,
    /// The heartbeats of each runner, in order.
    pub heartbeats: BTreeMap<Uuid, Vec<Heartbeat>>,
}

impl Evidence {
    /// Everything about one run, for finding the cause of a violation.
    pub fn of_run(&self, run: Uuid) -> Value {
        let name = run.to_string();
        let about = |note: &&Note| serde_json::to_string(note).is_ok_and(|text| text.contains(&name));
        let effects: Vec<&Effect> = self.effects.iter().filter(|effect| effect.run == name).collect();
        let notes: Vec<&Note> = self.notes.iter().filter(about).collect();
        let changes = self.changes.iter().filter(|change| change.run == run);
        let written = self.written.iter().filter(|row| row.run == run);
        json!({
            "row": self.runs.get(&run).map(|rows| format!("{rows:?}")),
            "effects": effects,
            "notes": notes,
            "changes": changes.map(|change| format!("{change:?}")).collect::<Vec<_>>(),
            "written": written.map(|row| format!("{row:?}")).collect::<Vec<_>>(),
        })
    }
}
