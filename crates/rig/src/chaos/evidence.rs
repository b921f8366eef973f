//! What is known about a run of the rig when it is over: what clients were told, what the service saw, and what is in
//! the database. The checks (`check.rs`) look at this and at nothing else.

use fermata_core::Status;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    time::{SystemTime, UNIX_EPOCH},
};
use uuid::Uuid;

/// Microseconds since 1970, by the clock of this machine, which the database has too.
pub type Micros = i64;

/// Now.
pub fn now() -> Micros {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// A call that a step made to the service.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Effect {
    /// Which call it was; the answer has it, so that the attempt that was recorded tells whose answer it is.
    pub call: u64,
    pub at: Micros,
    pub run: String,
    pub node: String,
    /// As the call says.
    pub attempt: u32,
    /// The idempotency key.
    pub key: String,
    pub body: Value,
    /// The status of the answer.
    pub answered: u16,
}

/// Something that a client sent, or was told.
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
        /// Which process said so.
        by: String,
    },
    /// A cancel is sent.
    Cancelling { run: String },
    /// A cancel was acknowledged, and the run was like this then.
    Cancelled { at: Micros, run: String, status: String },
    /// A callback is sent.
    Calling { run: String, node: String, payload: Value },
    /// A callback was acknowledged.
    Called {
        at: Micros,
        run: String,
        node: String,
        payload: Value,
    },
    /// A good request was refused for good.
    Refused { what: String },
}

/// A run, as its rows tell of it.
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
    /// Letters that are left.
    pub letters: i64,
    pub dead_letters: i64,
}

#[derive(Debug, Clone)]
pub struct AttemptRow {
    pub node: String,
    pub attempt: u32,
    pub status: String,
    pub outputs: Option<Value>,
    pub error: Option<Value>,
    /// Whether it ever ran: one that waited for its turn when its run stopped did not.
    pub began: bool,
}

#[derive(Debug, Clone)]
pub struct WaitRow {
    pub node: String,
    pub open: bool,
    pub payload: Option<Value>,
}

/// A change of a run's row, as the database saw it happen.
#[derive(Debug, Clone)]
pub struct Change {
    pub at: Micros,
    /// The process that wrote it.
    pub who: String,
    pub run: Uuid,
    /// Nothing if the run was made.
    pub old_status: Option<String>,
    pub status: String,
    pub old_owner: Option<Uuid>,
    pub owner: Option<Uuid>,
    pub old_epoch: i64,
    pub epoch: i64,
    /// When the transaction began that made it.
    pub began: Micros,
}

impl Change {
    /// Whether a run that somebody held became another's.
    pub fn is_takeover(&self) -> bool {
        self.old_owner.is_some() && self.owner.is_some() && self.owner != self.old_owner
    }
}

/// A journal row, as the database saw it come.
#[derive(Debug, Clone)]
pub struct Written {
    pub at: Micros,
    pub who: String,
    pub run: Uuid,
    pub seq: i32,
    /// Who held the run then, and under which epoch.
    pub owner: Option<Uuid>,
    pub epoch: i64,
}

/// A sign of life of a runner, as the database saw it come.
#[derive(Debug, Clone, Copy)]
pub struct Heartbeat {
    pub at: Micros,
    /// When it lived, as it said.
    pub heard: Micros,
}

/// Everything.
#[derive(Debug, Default)]
pub struct Evidence {
    pub notes: Vec<Note>,
    pub effects: Vec<Effect>,
    pub runs: BTreeMap<Uuid, RunRows>,
    pub changes: Vec<Change>,
    pub written: Vec<Written>,
    /// The processes behind runners.
    pub runners: BTreeMap<Uuid, String>,
    /// How often a process was stopped.
    pub stops: usize,
    /// Of each runner, in order.
    pub heartbeats: BTreeMap<Uuid, Vec<Heartbeat>>,
}

impl Evidence {
    /// All that is known about one run, for those who look for the cause of something.
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
