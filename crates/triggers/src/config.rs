//! The `configJson` of a trigger, by its type. Unknown keys are refused, all problems are reported at once, each with the
//! JSON pointer of its place.
//!
//! | type | keys |
//! | --- | --- |
//! | `Webhook` | `signature`, `respond`, `timeout`, `dedupe` |
//! | `Schedule` | `cron`, `every` or `at`; `timeZone`, `overlap`, `catchUp`, `jitter`, `startAt`, `endAt` |
//! | `Event` | `type`, `source`, `match` |
//! | `Manual` | none |

pub(crate) mod fields;
#[cfg(test)]
mod tests;

use crate::{matching::EventConfig, request::DedupePath, schedule::Schedule, signature::SignatureConfig};
use fields::Fields;
use serde_json::Value;
use std::{fmt, str::FromStr, time::Duration};

/// How long a webhook with `respond: result` waits for the end of its run, unless its `timeout` says otherwise.
pub const DEFAULT_RESULT_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest such time. Providers give up long before.
pub const MAX_RESULT_TIMEOUT: Duration = Duration::from_secs(300);

/// One thing that is wrong with a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where, as a JSON pointer into the configuration.
    pub pointer: String,
    /// What, and what to write instead.
    pub message: String,
}

impl Problem {
    /// A problem at a place.
    pub fn new(pointer: &str, message: impl Into<String>) -> Self {
        Self {
            pointer: pointer.to_owned(),
            message: message.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pointer.as_str() {
            "" => write!(f, "the configuration {}", self.message),
            pointer => write!(f, "{pointer} {}", self.message),
        }
    }
}

/// The type of a trigger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TriggerType {
    /// A URL that starts a run for each request.
    Webhook,
    /// Fire times.
    Schedule,
    /// Published events.
    Event,
    /// Fired by a caller only.
    Manual,
}

impl TriggerType {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Webhook, Self::Schedule, Self::Event, Self::Manual];

    /// The name in the API and in the database.
    pub fn name(self) -> &'static str {
        match self {
            Self::Webhook => "Webhook",
            Self::Schedule => "Schedule",
            Self::Event => "Event",
            Self::Manual => "Manual",
        }
    }
}

impl fmt::Display for TriggerType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for TriggerType {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL
            .into_iter()
            .find(|kind| kind.name().eq_ignore_ascii_case(text));
        found.ok_or_else(|| "must be one of Webhook, Schedule, Event, Manual".to_owned())
    }
}

/// What a webhook answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Respond {
    /// 202 with the execution, at once.
    Accepted,
    /// The outputs of the run, or 202 when the time is up.
    Result {
        /// How long the request waits.
        timeout: Duration,
    },
}

/// The configuration of a webhook.
#[derive(Debug, Clone)]
pub struct WebhookConfig {
    /// How requests are signed. `None`: the URL is the only credential.
    pub signature: Option<SignatureConfig>,
    /// What the answer is.
    pub respond: Respond,
    /// Where the delivery id is. `None`: where the scheme puts it.
    pub dedupe: Option<DedupePath>,
}

/// A configuration that was checked.
#[derive(Debug, Clone)]
pub enum TriggerConfig {
    /// See [`WebhookConfig`].
    Webhook(WebhookConfig),
    /// See [`Schedule`].
    Schedule(Box<Schedule>),
    /// See [`EventConfig`].
    Event(EventConfig),
    /// Has no keys.
    Manual,
}

impl TriggerConfig {
    /// Reads the configuration of a trigger of this type.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn parse(kind: TriggerType, config: &Value) -> Result<Self, Vec<Problem>> {
        match kind {
            TriggerType::Webhook => webhook(config).map(Self::Webhook),
            TriggerType::Schedule => Schedule::parse(config, "").map(|schedule| Self::Schedule(Box::new(schedule))),
            TriggerType::Event => EventConfig::parse(config, "").map(Self::Event),
            TriggerType::Manual => Fields::of(config, "")?.finish().map(|()| Self::Manual),
        }
    }

    /// The type that it belongs to.
    pub fn kind(&self) -> TriggerType {
        match self {
            Self::Webhook(_) => TriggerType::Webhook,
            Self::Schedule(_) => TriggerType::Schedule,
            Self::Event(_) => TriggerType::Event,
            Self::Manual => TriggerType::Manual,
        }
    }

    /// The names of the secrets that it uses.
    pub fn secrets(&self) -> &[String] {
        match self {
            Self::Webhook(WebhookConfig {
                signature: Some(signature),
                ..
            }) => &signature.secrets,
            _ => &[],
        }
    }
}

fn webhook(config: &Value) -> Result<WebhookConfig, Vec<Problem>> {
    let mut fields = Fields::of(config, "")?;
    let signature = fields.part("signature", SignatureConfig::parse);
    let result = fields.one_of("respond", &[("accepted", false), ("result", true)]);
    let timeout = fields.duration("timeout", Duration::from_secs(1));
    let dedupe = fields.text("dedupe").map(DedupePath::parse);
    if timeout.is_some() && result != Some(true) {
        fields.wrong("timeout", "needs `respond: result`");
    }
    if timeout.is_some_and(|timeout| timeout > MAX_RESULT_TIMEOUT) {
        fields.wrong("timeout", "must be at most 5m");
    }
    if let Some(Err(why)) = &dedupe {
        fields.wrong("dedupe", why);
    }
    fields.finish()?;
    Ok(WebhookConfig {
        signature,
        respond: match result {
            Some(true) => Respond::Result {
                timeout: timeout.unwrap_or(DEFAULT_RESULT_TIMEOUT),
            },
            _ => Respond::Accepted,
        },
        dedupe: dedupe.and_then(Result::ok),
    })
}
