//! PostgreSQL databases for tests: one server for each test process, a database for each test.
//!
//! What must stay true: a missing server is a failure that says what to do, never a skipped test.
//!
//! `FERMATA_TEST_POSTGRES=postgres://…` uses a server that is there already; its user must be allowed to create
//! databases.

pub use crate::cluster::{Cluster, Stop};

use crate::{
    Result, Store, StoreError,
    postgres::{PostgresSettings, PostgresStore},
};
use std::sync::OnceLock;
use tokio::sync::OnceCell;
use tokio_postgres::NoTls;
use uuid::Uuid;

/// The migrated database that others are copied from.
const TEMPLATE: &str = "fermata_template";

impl Cluster {
    /// A new server, for a test.
    ///
    /// # Panics
    /// If there is no PostgreSQL here, or it does not start.
    pub fn start(durable: bool, options: &[&str]) -> Cluster {
        let cluster = Cluster::create(&std::env::temp_dir(), durable, options);
        cluster.unwrap_or_else(|error| {
            panic!("{error}; or name a server with FERMATA_TEST_POSTGRES=postgres://…");
        })
    }

    /// Starts the server again, on the same port.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start_again(&self) {
        self.restart().unwrap_or_else(|error| panic!("{error}"));
    }
}

/// The server that all tests of this process share.
enum Shared {
    Ours(Cluster),
    Theirs(String),
}

impl Shared {
    fn get() -> &'static Shared {
        static SHARED: OnceLock<Shared> = OnceLock::new();
        SHARED.get_or_init(|| match std::env::var("FERMATA_TEST_POSTGRES") {
            Ok(url) if !url.is_empty() => Shared::Theirs(url),
            _ => Shared::Ours(Cluster::start(false, &[])),
        })
    }

    fn url(&self, database: &str) -> String {
        match self {
            Shared::Ours(cluster) => cluster.url(database),
            Shared::Theirs(url) => {
                let (address, options) = url.split_once('?').map_or((url.as_str(), None), |(a, b)| (a, Some(b)));
                let (scheme, rest) = address.split_once("://").unwrap_or(("postgres", address));
                let server = rest.split('/').next().unwrap_or(rest);
                let options = options.map_or(String::new(), |options| format!("?{options}"));
                format!("{scheme}://{server}/{database}{options}")
            }
        }
    }

    /// The database in which others are created and dropped.
    fn admin_url(&self) -> String {
        match self {
            Shared::Ours(cluster) => cluster.url("postgres"),
            Shared::Theirs(url) => url.clone(),
        }
    }
}

/// A database for one test, migrated and empty. It is dropped with this.
pub struct Database {
    name: String,
    /// Where it is.
    pub url: String,
}

impl Database {
    /// A new database on the server that the tests of this process share.
    ///
    /// # Panics
    /// If there is no server.
    pub async fn new() -> Database {
        static MIGRATED: OnceCell<()> = OnceCell::const_new();
        let shared = tokio::task::spawn_blocking(Shared::get).await.expect("a server");
        let name = format!("fermata_{}", Uuid::now_v7().simple());
        let url = shared.url(&name);
        let admin = shared.admin_url();
        if let Shared::Theirs(_) = shared {
            execute(&admin, &format!("CREATE DATABASE {name}")).await;
            return Database { name, url };
        }
        MIGRATED
            .get_or_init(|| async {
                execute(&admin, &format!("CREATE DATABASE {TEMPLATE}")).await;
                let store = connect(&shared.url(TEMPLATE)).await.expect("a migrated database");
                store.close().await.expect("a closed store");
            })
            .await;
        // A database with connections cannot be copied; connections take a moment to close.
        execute(&admin, &format!("CREATE DATABASE {name} TEMPLATE {TEMPLATE}")).await;
        Database { name, url }
    }

    /// A new store on it. Call it again for what another process would see.
    pub async fn store(&self) -> PostgresStore {
        connect(&self.url).await.expect("a store")
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let (admin, name) = (Shared::get().admin_url(), self.name.clone());
        // This may be dropped in a runtime that is shutting down.
        let dropped = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let drop = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
            runtime.expect("a runtime").block_on(execute(&admin, &drop));
        });
        if dropped.join().is_err() {
            tracing::warn!("a database of the tests could not be dropped");
        }
    }
}

async fn connect(url: &str) -> Result<PostgresStore, StoreError> {
    PostgresStore::connect(url, PostgresSettings::default()).await
}

/// Runs one statement on a connection of its own.
///
/// # Panics
/// If that fails.
pub async fn execute(url: &str, sql: &str) {
    let (client, connection) = tokio_postgres::connect(url, NoTls)
        .await
        .unwrap_or_else(|error| panic!("the PostgreSQL server for tests cannot be reached: {error:?}"));
    let connection = tokio::spawn(connection);
    let done = client.batch_execute(sql).await;
    drop(client);
    let _ = connection.await;
    done.unwrap_or_else(|error| panic!("`{sql}`: {error:?}"));
}
