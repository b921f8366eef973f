//! How a run ended, as lines and as an exit code.

use super::clean;
use crate::{cli, duration};
use serde_json::Value;
use std::{process::ExitCode, time::Duration};

/// A run that has ended, in this process or on a server.
pub struct Outcome<'a> {
    pub workflow: &'a str,
    /// `Succeeded`, `Failed` or `Cancelled`.
    pub status: &'a str,
    pub reason: Option<&'a str>,
    /// `{"code", "message", "node"?}`, or null.
    pub error: &'a Value,
    pub outputs: &'a Value,
    pub took_ms: Option<u64>,
    /// How many of its steps failed.
    pub failed: usize,
}

impl Outcome<'_> {
    /// Writes a line to stderr, and the outputs of a run that succeeded to stdout.
    pub fn show(&self) {
        let took = self.took_ms.map_or(String::new(), |millis| {
            format!(" after {}", duration::show(Duration::from_millis(millis)))
        });
        let workflow = clean(self.workflow);
        let at = self.error["node"]
            .as_str()
            .map_or(String::new(), |node| format!(" at {}", clean(node)));
        let why = match (self.error["message"].as_str(), self.reason) {
            (Some(message), _) => format!("{at}: {}", clean(message)),
            (None, Some(reason)) => format!(": {}", clean(reason)),
            (None, None) => String::new(),
        };
        match self.status {
            "Succeeded" => {
                let failed = match self.failed {
                    0 => String::new(),
                    1 => "; 1 task failed".to_owned(),
                    count => format!("; {count} tasks failed"),
                };
                cli::say(format_args!("{workflow} succeeded{took}{failed}"));
                cli::print(format_args!("{:#}\n", self.outputs));
            }
            "Cancelled" => cli::say(format_args!("{workflow} was cancelled{took}{why}")),
            _ => cli::say(format_args!("{workflow} failed{took}{why}")),
        }
    }

    /// 0 if it succeeded, else 1.
    pub fn code(&self) -> ExitCode {
        match self.status {
            "Succeeded" => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
        }
    }
}
