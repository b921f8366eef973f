//! Settings of features that are out of scope or not built yet: only their defaults are accepted.

use serde::{Deserialize, Serialize};

/// Keys of the specification whose feature is not built, with that feature. Remove the line when the feature is built.
const NOT_BUILT: &[(&str, &str)] = &[
    ("catalog.auto_register_actions_on_startup", "an editable catalog"),
    ("catalog.validate_action_schemas_on_startup", "an editable catalog"),
];

/// The feature that a key waits for, if it is not built.
pub fn waits_for(key: &str) -> Option<&'static str> {
    let found = NOT_BUILT.iter().find(|(name, _)| *name == key);
    found.map(|(_, feature)| *feature)
}

/// `false`, and nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "bool", into = "bool")]
pub struct NoDistributedLocks;

impl TryFrom<bool> for NoDistributedLocks {
    type Error = &'static str;

    fn try_from(on: bool) -> Result<Self, Self::Error> {
        match on {
            false => Ok(NoDistributedLocks),
            true => Err("locks in Redis are out of scope: the database holds the locks; remove this key"),
        }
    }
}

impl From<NoDistributedLocks> for bool {
    fn from(_: NoDistributedLocks) -> bool {
        false
    }
}

/// `false`, and nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "bool", into = "bool")]
pub struct NoDownstreamPermissions;

impl TryFrom<bool> for NoDownstreamPermissions {
    type Error = &'static str;

    fn try_from(on: bool) -> Result<Self, Self::Error> {
        match on {
            false => Ok(NoDownstreamPermissions),
            true => Err("permissions in other systems cannot be checked before there are connectors; remove this key"),
        }
    }
}

impl From<NoDownstreamPermissions> for bool {
    fn from(_: NoDownstreamPermissions) -> bool {
        false
    }
}

/// Nothing at all. Its message does not repeat the value, which may hold a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "serde::de::IgnoredAny")]
pub enum NoRedis {}

impl TryFrom<serde::de::IgnoredAny> for NoRedis {
    type Error = &'static str;

    fn try_from(_: serde::de::IgnoredAny) -> Result<Self, Self::Error> {
        Err("Redis is out of scope: the database is the queue and holds the locks; remove this key")
    }
}

/// The scheduler of this program. `Quartz` is what the spec calls the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Scheduler;

impl TryFrom<String> for Scheduler {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        match name.as_str() {
            "builtin" | "Quartz" => Ok(Scheduler),
            other => Err(format!(
                "the scheduler `{other}` is out of scope: schedules are kept in the database; write `builtin` or remove \
                 this key"
            )),
        }
    }
}

impl From<Scheduler> for String {
    fn from(_: Scheduler) -> String {
        "builtin".to_owned()
    }
}
