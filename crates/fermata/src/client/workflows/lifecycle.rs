//! `fermata workflows enable`, `disable`, `archive` and `reactivate`: one request each.

use super::super::{Client, print_json, text};
use crate::cli::{self, Format};

/// A change of a workflow's state.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step {
    Enable,
    Disable,
    Archive,
    Reactivate,
}

impl Step {
    fn path(self) -> &'static str {
        match self {
            Step::Enable => "enable",
            Step::Disable => "disable",
            Step::Archive => "archive",
            Step::Reactivate => "reactivate",
        }
    }

    /// Sends the request and prints the state that the workflow is in then.
    pub(super) async fn take(self, client: &Client, id: &str, format: Format) -> anyhow::Result<()> {
        let id = client.workflow_id(id).await?;
        let answer = client.post(&["workflows", &id, self.path()], None).await?;
        match (format, self) {
            (Format::Json, _) => print_json(&answer),
            (Format::Table, Step::Enable) => cli::print(format_args!("{id} is enabled\n")),
            (Format::Table, Step::Disable) => cli::print(format_args!("{id} is disabled\n")),
            (Format::Table, Step::Archive | Step::Reactivate) => {
                cli::print(format_args!("{id} is {}\n", text(&answer, "status")));
            }
        }
        Ok(())
    }
}
