//! Temporary PostgreSQL servers, for tests, benchmarks and the fault rig.
//!
//! What must stay true:
//! * A server ends with the process that started it, even if that process is killed. A shell reads a pipe from the
//!   process. When the pipe closes, the shell stops the server by its process id and removes its files.
//! * If PostgreSQL is not installed, the error explains what to do.
//! * Servers listen on the loopback address only.

mod place;
#[cfg(test)]
mod tests;

use place::{binary, chown, free_port, other_user};
use std::{
    ffi::OsStr,
    fs,
    io::Write,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use uuid::Uuid;

/// How long a server may take to start.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The `cluster_name` of a standby, which its primary uses in `synchronous_standby_names`.
pub const STANDBY: &str = "fermata_standby";
/// Reads the name of a signal from its input and sends it to the server. If the input ends without a signal, the owner
/// has ended: the files are removed, too.
const WATCHDOG: &str = r#"
folder=$1; shift
"$@" </dev/null >>"$folder/log" 2>&1 &
server=$!
how=
while read -r signal; do how=$signal; done
# A background process of a shell ignores these signals until it installs its handlers. So the signal is repeated.
while kill -s "${how:-QUIT}" "$server" 2>/dev/null; do sleep 0.05; done
wait "$server"
[ -n "$how" ] || rm -rf "$folder" 2>/dev/null
"#;

/// A server could not be created or controlled.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ClusterError(String);

type Result<T> = std::result::Result<T, ClusterError>;

/// How a server is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Fast shutdown: it closes all connections and writes a checkpoint.
    Fast,
    /// Immediate shutdown: it writes nothing more, as in a power failure.
    Immediate,
    /// The postmaster gets SIGKILL; its other processes end when they notice that.
    Kill,
}

/// A temporary server.
pub struct Cluster {
    folder: PathBuf,
    user: Option<(u32, u32)>,
    port: u16,
    options: Vec<String>,
    watchdog: Mutex<Option<Child>>,
}

impl Cluster {
    /// Creates and starts a server, with its files in a new folder in `root`. Without `durable` it does not wait for
    /// the disk; tests that kill it and benchmarks need `durable`. `options` are settings such as `max_connections=20`.
    pub fn create(root: &Path, durable: bool, options: &[&str]) -> Result<Cluster> {
        let cluster = Cluster::empty(root, durable, options)?;
        let data = cluster.folder.join("data");
        let mut initdb = cluster.command(binary("initdb")?);
        let arguments = ["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"];
        initdb
            .arg("--username=fermata")
            .args(arguments)
            .arg("--pgdata")
            .arg(data);
        run("initdb", initdb)?;
        cluster.start_on_free_port()
    }

    /// Creates and starts a standby of this server. It is read-only until it is promoted, and has its own settings.
    pub fn standby(&self, root: &Path, durable: bool, options: &[&str]) -> Result<Cluster> {
        let mut standby = Cluster::empty(root, durable, options)?;
        standby.options.push(format!("cluster_name={STANDBY}"));
        let mut copy = standby.command(binary("pg_basebackup")?);
        copy.args(["--host=127.0.0.1", "--username=fermata", "--write-recovery-conf"]);
        copy.args(["--wal-method=stream", "--checkpoint=fast", "--no-sync"]);
        copy.arg(format!("--port={}", self.port));
        copy.arg("--pgdata").arg(standby.folder.join("data"));
        run("pg_basebackup", copy)?;
        standby.start_on_free_port()
    }

    fn empty(root: &Path, durable: bool, options: &[&str]) -> Result<Cluster> {
        let folder = root.join(format!("fermata-pg-{}", Uuid::now_v7().simple()));
        fs::create_dir_all(&folder)
            .map_err(|error| failed(&format!("create the directory {}", folder.display()), &error))?;
        let mut all = vec![
            "listen_addresses=127.0.0.1".to_owned(),
            "unix_socket_directories=".to_owned(),
            "max_connections=200".to_owned(),
            "shared_buffers=64MB".to_owned(),
            // In the folder, so that a server that is killed leaves nothing elsewhere.
            "dynamic_shared_memory_type=mmap".to_owned(),
        ];
        if !durable {
            all.extend(["fsync=off", "full_page_writes=off", "jit=off"].map(str::to_owned));
        }
        all.extend(options.iter().map(|option| (*option).to_owned()));
        // From here on, dropping the cluster removes the folder.
        let mut cluster = Cluster {
            folder,
            user: None,
            port: 0,
            options: all,
            watchdog: Mutex::new(None),
        };
        cluster.user = other_user(&cluster.folder)?;
        if let Some(user) = cluster.user {
            chown(&cluster.folder, user)?;
        }
        Ok(cluster)
    }

    /// Tries several ports, because another process may use a free port before the server does.
    fn start_on_free_port(mut self) -> Result<Cluster> {
        for _ in 0..5 {
            self.port = free_port()?;
            if self.spawn()? {
                return Ok(self);
            }
        }
        Err(ClusterError(format!("PostgreSQL did not start:\n{}", self.log())))
    }

    /// The URL of a database of this server.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://fermata@127.0.0.1:{}/{database}", self.port)
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The folder with its files: the data directory `data` and the log file `log`.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Stops the server and keeps its files. Blocks until it has ended.
    pub fn stop(&self, how: Stop) {
        let Some(mut watchdog) = self.watchdog().take() else {
            return;
        };
        let signal = match how {
            Stop::Fast => "INT\n",
            Stop::Immediate => "QUIT\n",
            Stop::Kill => "KILL\n",
        };
        if let Some(mut input) = watchdog.stdin.take() {
            // A server that has ended already needs no signal.
            let _ = input.write_all(signal.as_bytes());
        }
        let _ = watchdog.wait();
    }

    /// Starts the server again on the same port. After [`Stop::Kill`] it waits until all of its processes have ended.
    pub fn restart(&self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !self.spawn()? {
            if Instant::now() > deadline {
                return Err(ClusterError(format!("PostgreSQL did not start again:\n{}", self.log())));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Promotes a standby. Blocks until it accepts writes.
    pub fn promote(&self) -> Result<()> {
        let mut promote = self.command(binary("pg_ctl")?);
        promote.args(["promote", "--wait", "--timeout=60", "--pgdata"]);
        promote.arg(self.folder.join("data"));
        run("pg_ctl promote", promote)
    }

    fn watchdog(&self) -> MutexGuard<'_, Option<Child>> {
        self.watchdog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.folder).env("LC_ALL", "C").process_group(0);
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        command
    }

    /// Starts the server. Returns whether it accepts connections.
    fn spawn(&self) -> Result<bool> {
        let data = self.folder.join("data");
        let mut command = self.command("sh");
        command.args(["-c", WATCHDOG, "sh"]).arg(&self.folder);
        command.arg(binary("postgres")?).arg("-D").arg(&data);
        for option in self.options.iter().cloned().chain([format!("port={}", self.port)]) {
            command.arg("-c").arg(option);
        }
        // The server writes its process id and its state to this file. A killed server does not remove it.
        let state = data.join("postmaster.pid");
        let before = fs::read_to_string(&state).unwrap_or_default();
        let log_start = self.log().len();
        let watchdog = command.stdin(Stdio::piped()).spawn();
        let mut watchdog = watchdog.map_err(|error| failed("start a shell", &error))?;
        let deadline = Instant::now() + PATIENCE;
        let started = loop {
            let now = fs::read_to_string(&state).unwrap_or_default();
            let accepts = matches!(now.lines().last().map(str::trim), Some("ready" | "standby"));
            if accepts && now.lines().next() != before.lines().next() {
                break true;
            }
            let gone = self.has_failed(log_start) || watchdog.try_wait().is_ok_and(|status| status.is_some());
            if gone || Instant::now() > deadline {
                break false;
            }
            std::thread::sleep(POLL_INTERVAL);
        };
        *self.watchdog() = Some(watchdog);
        if !started {
            self.stop(Stop::Immediate);
        }
        Ok(started)
    }

    /// Whether the log shows, from this position on, that the server could not start.
    fn has_failed(&self, log_start: usize) -> bool {
        let log = self.log();
        let end = log.get(log_start..).unwrap_or_default();
        let messages = [
            "could not create any TCP/IP sockets",
            "database system is shut down",
            "is still in use",
            "already exists",
        ];
        let is_failure = |line: &str| messages.iter().any(|message| line.contains(message));
        end.lines()
            .filter(|line| line.contains("FATAL") || line.contains("LOG"))
            .any(is_failure)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let watchdog = self.watchdog().take();
        if let Some(mut watchdog) = watchdog {
            // When its input ends, the watchdog stops the server and removes the files.
            drop(watchdog.stdin.take());
            let _ = watchdog.wait();
        }
        // The server's user may lack the permission to remove the folder from its parent.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn run(name: &str, mut command: Command) -> Result<()> {
    let output = command
        .output()
        .map_err(|error| failed(&format!("run {name}"), &error))?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let stderr = String::from_utf8_lossy(&output.stderr);
            Err(ClusterError(format!("{name} failed: {}", stderr.trim())))
        }
    }
}

fn failed(what: &str, error: &std::io::Error) -> ClusterError {
    ClusterError(format!("cannot {what}: {error}"))
}
