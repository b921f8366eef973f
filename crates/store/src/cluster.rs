//! Throw-away PostgreSQL servers, for tests, benchmarks and the fault rig.
//!
//! What must stay true:
//! * A server ends with the process that started it, also when that is killed: a shell holds a pipe from us, and when
//!   the pipe closes it ends the server and removes its files. It is always ended by its process id.
//! * A missing server is an error that says what to do.
//! * Nothing is reachable from outside: servers listen on the loopback address only.

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
const GLANCE: Duration = Duration::from_millis(20);
/// What a standby is called by the server that it follows.
pub const STANDBY: &str = "fermata_standby";
/// Waits for words on its input, each a signal for the server. When the input ends without one, its owner is gone, and
/// so is the need for the files.
const WATCHDOG: &str = r#"
folder=$1; shift
"$@" </dev/null >>"$folder/log" 2>&1 &
server=$!
how=
while read -r signal; do how=$signal; done
# What a shell starts beside itself ignores these signals until it handles them: one that is young is told again.
while kill -s "${how:-QUIT}" "$server" 2>/dev/null; do sleep 0.05; done
wait "$server"
[ -n "$how" ] || rm -rf "$folder" 2>/dev/null
"#;

/// A server that cannot be had.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ClusterError(String);

type Result<T> = std::result::Result<T, ClusterError>;

/// How a server ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// It cuts all connections and writes everything down.
    Fast,
    /// It drops everything, as in a power cut.
    Immediate,
    /// Its first process is killed, and the others find out.
    Kill,
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
    /// A new server, with its files in a folder of its own below `root`. `durable` is for those who kill or measure it;
    /// others need not wait for the disk. `options` are settings such as `max_connections=20`.
    pub fn create(root: &Path, durable: bool, options: &[&str]) -> Result<Cluster> {
        let cluster = Cluster::empty(root, durable, options)?;
        let data = cluster.folder.join("data");
        let mut initdb = cluster.command(binary("initdb")?);
        let words = ["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"];
        initdb.arg("--username=fermata").args(words).arg("--pgdata").arg(data);
        done("initdb", initdb)?;
        cluster.on_some_port()
    }

    /// A server that follows this one, and takes reads only until it is promoted. Its settings are its own.
    pub fn standby(&self, root: &Path, durable: bool, options: &[&str]) -> Result<Cluster> {
        let mut standby = Cluster::empty(root, durable, options)?;
        standby.options.push(format!("cluster_name={STANDBY}"));
        let mut copy = standby.command(binary("pg_basebackup")?);
        copy.args(["--host=127.0.0.1", "--username=fermata", "--write-recovery-conf"]);
        copy.args(["--wal-method=stream", "--checkpoint=fast", "--no-sync"]);
        copy.arg(format!("--port={}", self.port));
        copy.arg("--pgdata").arg(standby.folder.join("data"));
        done("pg_basebackup", copy)?;
        standby.on_some_port()
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
        ];
        if !durable {
            all.extend(["fsync=off", "full_page_writes=off"].map(str::to_owned));
        }
        all.extend(options.iter().map(|option| (*option).to_owned()));
        // From here on the folder is removed with this.
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

    /// Somebody may take a free port before the server does.
    fn on_some_port(mut self) -> Result<Cluster> {
        for _ in 0..5 {
            self.port = free_port()?;
            if self.spawn()? {
                return Ok(self);
            }
        }
        Err(ClusterError(format!("PostgreSQL did not start:\n{}", self.log())))
    }

    /// Where a database of this server is.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://fermata@127.0.0.1:{}/{database}", self.port)
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where its files are; `data` in it is the server's, and `log` is what it says.
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
            Stop::Kill => "KILL\n",
        };
        if let Some(mut input) = watchdog.stdin.take() {
            // A server that is gone already needs no signal.
            let _ = input.write_all(signal.as_bytes());
        }
        let _ = watchdog.wait();
    }

    /// Starts the server again, on the same port. After [`Stop::Kill`] it waits until the last of its processes is gone.
    pub fn restart(&self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !self.spawn()? {
            if Instant::now() > deadline {
                return Err(ClusterError(format!("PostgreSQL did not start again:\n{}", self.log())));
            }
            std::thread::sleep(GLANCE);
        }
        Ok(())
    }

    /// Makes a standby take writes. Blocks until it does.
    pub fn promote(&self) -> Result<()> {
        let mut promote = self.command(binary("pg_ctl")?);
        promote.args(["promote", "--wait", "--timeout=60", "--pgdata"]);
        promote.arg(self.folder.join("data"));
        done("pg_ctl promote", promote)
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

    /// Whether the server accepts connections.
    fn spawn(&self) -> Result<bool> {
        let data = self.folder.join("data");
        let mut command = self.command("sh");
        command.args(["-c", WATCHDOG, "sh"]).arg(&self.folder);
        command.arg(binary("postgres")?).arg("-D").arg(&data);
        for option in self.options.iter().cloned().chain([format!("port={}", self.port)]) {
            command.arg("-c").arg(option);
        }
        // The server writes its process id and its state into this file. One that was killed leaves it behind.
        let state = data.join("postmaster.pid");
        let before = fs::read_to_string(&state).unwrap_or_default();
        let said = self.log().len();
        let watchdog = command.stdin(Stdio::piped()).spawn();
        let mut watchdog = watchdog.map_err(|error| failed("start a shell", &error))?;
        let deadline = Instant::now() + PATIENCE;
        let started = loop {
            let now = fs::read_to_string(&state).unwrap_or_default();
            let accepts = matches!(now.lines().last().map(str::trim), Some("ready" | "standby"));
            if accepts && now.lines().next() != before.lines().next() {
                break true;
            }
            let gone = self.gave_up(said) || watchdog.try_wait().is_ok_and(|status| status.is_some());
            if gone || Instant::now() > deadline {
                break false;
            }
            std::thread::sleep(GLANCE);
        };
        *self.watchdog() = Some(watchdog);
        if !started {
            self.stop(Stop::Immediate);
        }
        Ok(started)
    }

    /// Whether the server ended by itself, by what it said after so many bytes.
    fn gave_up(&self, said: usize) -> bool {
        let log = self.log();
        let end = log.get(said..).unwrap_or_default();
        let last_words = [
            "could not create any TCP/IP sockets",
            "database system is shut down",
            "is still in use",
            "already exists",
        ];
        let gave_up = |line: &str| last_words.iter().any(|words| line.contains(words));
        end.lines()
            .filter(|line| line.contains("FATAL") || line.contains("LOG"))
            .any(gave_up)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let watchdog = self.watchdog().take();
        if let Some(mut watchdog) = watchdog {
            // The end of its input tells the watchdog to end the server and remove the files.
            drop(watchdog.stdin.take());
            let _ = watchdog.wait();
        }
        // The server's user may not be allowed to remove the folder itself from where it stands.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn done(name: &str, mut command: Command) -> Result<()> {
    let output = command
        .output()
        .map_err(|error| failed(&format!("run {name}"), &error))?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(ClusterError(format!("{name} failed: {}", said.trim())))
        }
    }
}

fn failed(what: &str, error: &std::io::Error) -> ClusterError {
    ClusterError(format!("cannot {what}: {error}"))
}
