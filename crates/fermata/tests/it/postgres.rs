//! Several processes of the real binary share one PostgreSQL database, whichever database the other tests use.

mod clock;
mod hand_over;
mod messages;
mod outage;
mod public_url;
mod roles;
mod standby;
mod triggers;

use crate::support::{Server, shared_home};
use fermata_store::conformance::home::Home;
use std::sync::Arc;

/// Tests use only the path of a callback URL and send callbacks to the API process.
const PUBLIC_URL: (&str, &str) = ("FERMATA_SERVER__PUBLIC_URL", "http://fermata.example");

/// Starts a process with this role on a database.
fn process(home: &Arc<Home>, role: &str, environment: &[(&str, &str)]) -> Server {
    let environment = [&[PUBLIC_URL], environment].concat();
    Server::on(home, &["--role", role], &environment)
}

/// An API process, a runner process and their database.
fn pair(environment: &[(&str, &str)]) -> (Server, Server, Arc<Home>) {
    let home = shared_home();
    let api = process(&home, "api", environment);
    let runner = process(&home, "runner", environment);
    (api, runner, home)
}
