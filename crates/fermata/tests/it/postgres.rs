//! Several processes of the real binary on one PostgreSQL database, whatever the other tests run on.

mod hand_over;
mod mail;
mod outage;
mod public_url;
mod roles;
mod standby;

use crate::support::{Server, shared_home};
use fermata_store::conformance::home::Home;
use std::sync::Arc;

/// Callbacks come to the process that accepts requests; tests take the path of their address only.
const PUBLIC_URL: (&str, &str) = ("FERMATA_SERVER__PUBLIC_URL", "http://fermata.example");

/// A process of a role on a database.
fn process(home: &Arc<Home>, role: &str, environment: &[(&str, &str)]) -> Server {
    let environment = [&[PUBLIC_URL], environment].concat();
    Server::on(home, &["--role", role], &environment)
}

/// A process that accepts requests, one that works, and where their data is.
fn pair(environment: &[(&str, &str)]) -> (Server, Server, Arc<Home>) {
    let home = shared_home();
    let api = process(&home, "api", environment);
    let runner = process(&home, "runner", environment);
    (api, runner, home)
}
