//! `fermata transfer`, run as a process: a server is stopped, its data is moved, and another server continues with it.

mod cli_output;
mod large;
mod live_runs;

use crate::support::{Output, fermata};
use fermata_store::conformance::home::{Home, Kind};
use std::sync::Arc;

/// A SQLite file and a PostgreSQL database, whichever database the other tests use.
struct Ends {
    from: Arc<Home>,
    to: Arc<Home>,
}

impl Ends {
    fn new() -> Ends {
        Ends {
            from: Arc::new(Home::of(Kind::Sqlite)),
            to: Arc::new(Home::of(Kind::Postgres)),
        }
    }

    /// The arguments of a transfer from `from` to `to`.
    fn arguments(&self, more: &[&str]) -> Vec<String> {
        let urls = [self.from.url(), self.to.url()];
        let all = ["transfer", "--from", &urls[0], "--to", &urls[1]];
        all.iter().chain(more).map(|text| (*text).to_owned()).collect()
    }

    /// Runs the transfer to its end.
    fn transfer(&self, more: &[&str]) -> Output {
        let arguments = self.arguments(more);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        fermata(&arguments)
    }
}
