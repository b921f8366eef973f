//! `fermata transfer` from outside: a server is stopped, its data moved, and another one goes on with it.

mod goes_on;
mod large;
mod told;

use crate::support::{Output, fermata};
use fermata_store::conformance::home::{Home, Kind};
use std::sync::Arc;

/// A file and a server's database, whatever the other tests run on.
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

    /// The arguments of a transfer between them.
    fn arguments(&self, more: &[&str]) -> Vec<String> {
        let urls = [self.from.url(), self.to.url()];
        let all = ["transfer", "--from", &urls[0], "--to", &urls[1]];
        all.iter().chain(more).map(|text| (*text).to_owned()).collect()
    }

    /// Calls it, to its end.
    fn transfer(&self, more: &[&str]) -> Output {
        let arguments = self.arguments(more);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        fermata(&arguments)
    }
}
