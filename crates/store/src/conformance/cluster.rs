//! Throw-away PostgreSQL servers for tests: one for each test process, a database for each test.
//!
//! What must stay true:
//! * A server ends with the process that started it, also when that is killed: a shell holds a pipe from us, and when
//!   the pipe closes it ends the server and removes its files. It is always ended by its process id.
//! * A missing server is a failure that says what to do, never a skipped test.
//! * Nothing is reachable from outside: servers listen on the loopback address only.
//!
//! `FERMATA_TEST_POSTGRES=postgres://…` uses a server that is there already; its user must be allowed to create
//! databases.

use crate::{
    Result, Store, StoreError,
    postgres::{PostgresSettings, PostgresStore},
};
use std::{
    fs,
    io::Write,
    net::TcpListener,
    os::unix::{fs::MetadataExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, OnceLock, PoisonError},
    time::{Duration, Instant},
};
use tokio::sync::OnceCell;
use tokio_postgres::NoTls;
use uuid::Uuid;

/// How long a server may take to start or to stop.
const PATIENCE: Duration = Duration::from_secs(60);
/// The migrated database that others are copied from.
const TEMPLATE: &str = "fermata_template";
/// Waits for words on its input, each a signal for the server. When the input ends without one, its owner is gone, and
/// so is the need for the files.
const WATCHDOG: &str = r#"
folder=$1; shift
"$@" </dev/null >>"$folder/log" 2>&1 &
server=$!
left=remove
while read -r signal; do left=keep; kill -s "$signal" "$server"; done
[ "$left" = keep ] || kill -s QUIT "$server" 2>/dev/null
wait "$server"
[ "$left" = keep ] || rm -rf "$folder"
"#;

/// How a server ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// It cuts all connections and writes everything down.
    Fast,
    /// It drops everything, as in a power cut.
    Immediate,
}

/// A server of our own.
pub struct Cluster {
    folder: PathBuf,
    user: Option<(u32, u32)>,
    port: u16,
    options: Vec<String>,
    watchdog: Mutex<Option<Child>>,
}

impl Cluster {
    /// A new server. `durable` is for tests that kill or measure it; others need not wait for the disk.
    /// `options` are settings such as `max_connections=20`.
    ///
    /// # Panics
    /// If there is no PostgreSQL here, or it does not start.
    pub fn start(durable: bool, options: &[&str]) -> Cluster {
        let folder = std::env::temp_dir().join(format!("fermata-pg-{}", Uuid::now_v7().simple()));
        fs::create_dir_all(&folder).expect("a temporary folder");
        let user = other_user(&folder);
        if let Some((uid, gid)) = user {
            std::os::unix::fs::chown(&folder, Some(uid), Some(gid)).expect("a folder for another user");
        }
        let mut all = vec![
            "listen_addresses=127.0.0.1".to_owned(),
            "unix_socket_directories=".to_owned(),
            "max_connections=200".to_owned(),
            "shared_buffers=64MB".to_owned(),
        ];
        if !durable {
            all.extend(["fsync=off", "full_page_writes=off"].map(str::to_owned));
        }
        all.extend(options.iter().map(|option| (*option).to_owned()));
        let mut cluster = Cluster {
            folder,
            user,
            port: 0,
            options: all,
            watchdog: Mutex::new(None),
        };
        cluster.initialise();
        // Somebody may take a free port before the server does.
        for _ in 0..5 {
            cluster.port = free_port();
            if cluster.spawn() {
                return cluster;
            }
        }
        panic!("PostgreSQL did not start:\n{}", cluster.log());
    }

    /// Where a database of this server is.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://fermata@127.0.0.1:{}/{database}", self.port)
    }

    /// The address it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where its files are; `data` in it is the server's.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Ends the server and keeps its files. Blocks until it is gone.
    pub fn stop(&self, how: Stop) {
        let Some(mut watchdog) = self.watchdog().take() else {
            return;
        };
        let signal = match how {
            Stop::Fast => "INT\n",
            Stop::Immediate => "QUIT\n",
        };
        if let Some(mut input) = watchdog.stdin.take() {
            // A server that is gone already needs no signal.
            let _ = input.write_all(signal.as_bytes());
        }
        let _ = watchdog.wait();
    }

    /// Starts the server again, on the same port.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start_again(&self) {
        assert!(self.spawn(), "PostgreSQL did not start again:\n{}", self.log());
    }

    fn watchdog(&self) -> std::sync::MutexGuard<'_, Option<Child>> {
        self.watchdog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.folder).env("LC_ALL", "C").process_group(0);
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        command
    }

    fn initialise(&self) {
        let output = self
            .command(binary("initdb"))
            .args([
                "--username=fermata",
                "--auth=trust",
                "--encoding=UTF8",
                "--locale=C",
                "--no-sync",
            ])
            .arg("--pgdata")
            .arg(self.folder.join("data"))
            .output()
            .expect("initdb");
        assert!(
            output.status.success(),
            "initdb failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    /// Whether the server accepts connections.
    fn spawn(&self) -> bool {
        let data = self.folder.join("data");
        let mut command = self.command("sh");
        command.args(["-c", WATCHDOG, "sh"]).arg(&self.folder);
        command.arg(binary("postgres")).arg("-D").arg(&data);
        for option in self.options.iter().cloned().chain([format!("port={}", self.port)]) {
            command.arg("-c").arg(option);
        }
        let mut watchdog = command.stdin(Stdio::piped()).spawn().expect("a shell");
        let deadline = Instant::now() + PATIENCE;
        let started = loop {
            // The server writes its state into the last line of this file.
            let state = fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
            if state.lines().last().is_some_and(|line| line.trim() == "ready") {
                break true;
            }
            let gone = self.log_ends_with_failure() || watchdog.try_wait().is_ok_and(|status| status.is_some());
            if gone || Instant::now() > deadline {
                break false;
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        *self.watchdog() = Some(watchdog);
        if !started {
            self.stop(Stop::Immediate);
        }
        started
    }

    fn log_ends_with_failure(&self) -> bool {
        let log = self.log();
        let end = log.trim_end().lines().last().unwrap_or_default();
        end.contains("could not create any TCP/IP sockets") || end.contains("database system is shut down")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let watchdog = self.watchdog().take();
        match watchdog {
            // The end of its input tells the watchdog to end the server and remove the files.
            Some(mut watchdog) => {
                drop(watchdog.stdin.take());
                let _ = watchdog.wait();
            }
            None => drop(fs::remove_dir_all(&self.folder)),
        }
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port of the loopback address");
    listener.local_addr().expect("its number").port()
}

/// The user and group to run as, if we are root: PostgreSQL refuses to run as root.
fn other_user(ours: &Path) -> Option<(u32, u32)> {
    if fs::metadata(ours).expect("our folder").uid() != 0 {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").expect("the list of users");
    let ids = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    let user = ["postgres", "nobody"].into_iter().find_map(ids);
    Some(user.expect("PostgreSQL does not run as root, and there is neither a user `postgres` nor `nobody` here"))
}

/// A program of PostgreSQL, in PATH or where Debian has it.
fn binary(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<PathBuf> = versions.map(|version| version.path()).collect();
    versions.sort_by_key(|version| {
        let number = version.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
        std::cmp::Reverse(number)
    });
    places.extend(versions.into_iter().map(|version| version.join("bin")));
    let found = places
        .into_iter()
        .map(|place| place.join(name))
        .find(|file| file.is_file());
    found.unwrap_or_else(|| {
        panic!(
            "there is no `{name}` in PATH or /usr/lib/postgresql/*/bin; install PostgreSQL (Debian: apt-get install \
             postgresql), or name a server with FERMATA_TEST_POSTGRES=postgres://…"
        )
    })
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

    /// Where databases are made and dropped.
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
        // A database that somebody is connected to cannot be copied; connections take a moment to go.
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
        // Whatever runtime this is dropped in, it may be on its way out.
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
