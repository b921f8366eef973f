//! The processes under test: three that work on runs and one that only serves requests. One of the three also serves requests,
//! so clients use two processes.
//!
//! What must stay true: one fault at a time affects a process. A process that exits without being killed is started again, as a
//! supervisor would do, and recorded.

use super::reaper::ProcessList;
use anyhow::{Context, anyhow};
use rustix::process::{Pid, Signal, kill_process_group};
use std::{
    fs::{self, File},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex as StdMutex, PoisonError, RwLock},
    time::{Duration, Instant},
};
use tokio::sync::{Mutex, MutexGuard};

/// The name and role of each process, and whether it serves requests.
const MEMBERS: [(&str, &str, bool); 4] = [
    ("api", "api", true),
    ("runner-1", "runner", false),
    ("runner-2", "runner", false),
    ("runner-3", "all", true),
];
/// How long a process may take to become ready while nothing prevents it.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

/// How to start a process.
pub struct Launch {
    pub program: PathBuf,
    /// Where logs go.
    pub folder: PathBuf,
    /// The database URL without options.
    pub database: String,
    pub environment: Vec<(String, String)>,
}

/// All processes.
pub struct Fleet {
    pub members: Vec<Arc<Member>>,
    fallen: Arc<StdMutex<Vec<String>>>,
}

/// A process that is restarted whenever it ends.
pub struct Member {
    pub name: &'static str,
    role: &'static str,
    pub answers: bool,
    launch: Arc<Launch>,
    processes: ProcessList,
    state: Mutex<State>,
    url: RwLock<Option<String>>,
    fallen: Arc<StdMutex<Vec<String>>>,
}

#[derive(Default)]
struct State {
    child: Option<Child>,
    starts: u32,
    log: PathBuf,
    ready: bool,
}

impl Fleet {
    /// Creates the members. None is started yet.
    pub fn new(launch: Launch, processes: &ProcessList) -> Fleet {
        let launch = Arc::new(launch);
        let fallen = Arc::default();
        let member = |(name, role, answers)| {
            Arc::new(Member {
                name,
                role,
                answers,
                launch: launch.clone(),
                processes: processes.clone(),
                state: Mutex::default(),
                url: RwLock::default(),
                fallen: Arc::clone(&fallen),
            })
        };
        Fleet {
            members: MEMBERS.into_iter().map(member).collect(),
            fallen,
        }
    }

    pub const SIZE: usize = MEMBERS.len();

    /// The process whose clock is an hour ahead. Only debug builds can be configured that way.
    pub const WRONG_CLOCK: Option<&'static str> = if cfg!(debug_assertions) { Some("runner-2") } else { None };

    /// The members that serve requests.
    pub fn answering(&self) -> Vec<Arc<Member>> {
        self.members.iter().filter(|member| member.answers).cloned().collect()
    }

    /// Processes that exited by themselves after they had been ready.
    pub fn fallen(&self) -> Vec<String> {
        self.fallen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Restarts members that exited. Never returns.
    pub async fn watch(&self) {
        loop {
            tokio::time::sleep(Duration::from_millis(200)).await;
            for member in &self.members {
                if let Some(mut state) = member.free() {
                    member.look_after(&mut state);
                }
            }
        }
    }

    /// Kills all members.
    pub async fn end(&self) {
        for member in &self.members {
            let state = member.state.lock().await;
            let mut held = Held { member, state };
            let _ = held.signal(Signal::KILL); // it may have exited
            if let Some(child) = held.state.child.as_mut() {
                let _ = child.wait();
            }
            member.gone(&mut held.state);
        }
    }

    /// Waits until all of them are ready.
    pub async fn all_ready(&self) -> anyhow::Result<()> {
        for member in &self.members {
            member.ready().await?;
        }
        Ok(())
    }
}

/// A member that is reserved for one fault.
pub struct Held<'a> {
    member: &'a Member,
    state: MutexGuard<'a, State>,
}

impl Member {
    /// Its URL, once it is ready.
    pub fn url(&self) -> Option<String> {
        self.url.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reserves it for a fault, if it runs and no other fault affects it.
    pub fn take(&self) -> Option<Held<'_>> {
        let state = self.free()?;
        (state.ready && state.child.is_some()).then_some(Held { member: self, state })
    }

    fn free(&self) -> Option<MutexGuard<'_, State>> {
        self.state.try_lock().ok()
    }

    /// Starts it, unless it runs.
    pub async fn start(&self) -> anyhow::Result<()> {
        let mut state = self.state.lock().await;
        match state.child {
            Some(_) => Ok(()),
            None => self.spawn(&mut state),
        }
    }

    fn spawn(&self, state: &mut State) -> anyhow::Result<()> {
        state.starts += 1;
        let this = life(self.name, state);
        state.log = self.launch.folder.join(format!("{this}.log"));
        let log = File::create(&state.log).with_context(|| state.log.display().to_string())?;
        let mut command = Command::new(&self.launch.program);
        command.args(["serve", "--listen", "127.0.0.1:0", "--role", self.role, "--database"]);
        // The application name identifies the process in the audit tables.
        command.arg(format!("{}&application_name={this}", self.launch.database));
        command.env_clear().envs(self.launch.environment.iter().cloned());
        if Fleet::WRONG_CLOCK == Some(self.name) {
            command.env("FERMATA_TEST_WRONG_CLOCK_S", "3600");
        }
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.process_group(0).spawn();
        let child = child.with_context(|| self.launch.program.display().to_string())?;
        self.processes.runs(child.id());
        state.child = Some(child);
        state.ready = false;
        Ok(())
    }

    /// Notices that the process is ready. Restarts it if it exited.
    fn look_after(&self, state: &mut State) {
        let ended = state.child.as_mut().map(Child::try_wait);
        match ended {
            Some(Ok(None)) if !state.ready => {
                let url = ready_at(&state.log);
                state.ready = url.is_some();
                *self.url.write().unwrap_or_else(PoisonError::into_inner) = url;
            }
            Some(Ok(Some(status))) => {
                self.gone(state);
                // A process may give up if the database cannot be reached at its start, but not later.
                if state.ready {
                    let what = format!("{}: {status}; the log is {}", self.name, state.log.display());
                    self.fallen.lock().unwrap_or_else(PoisonError::into_inner).push(what);
                }
                let _ = self.spawn(state); // tried again at the next check
            }
            None if state.starts > 0 => drop(self.spawn(state)),
            _ => {}
        }
    }

    fn gone(&self, state: &mut State) {
        if let Some(child) = state.child.take() {
            self.processes.ended(child.id());
        }
        *self.url.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Waits until it is ready, across restarts.
    pub async fn ready(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            {
                let mut state = self.state.lock().await;
                self.look_after(&mut state);
                if state.ready {
                    return Ok(());
                }
                if Instant::now() > deadline {
                    let log = fs::read_to_string(&state.log).unwrap_or_default();
                    return Err(anyhow!("{} does not become ready:\n{}", self.name, tail(&log)));
                }
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

impl Held<'_> {
    /// Its name with the number of its start. The database knows it by that name.
    pub fn life(&self) -> String {
        life(self.member.name, &self.state)
    }

    /// The same with its pid, for messages.
    pub fn name(&self) -> String {
        format!("{} (pid {})", self.life(), self.pid())
    }

    fn pid(&self) -> u32 {
        self.state.child.as_ref().map_or(0, Child::id)
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw);
        let pid = pid.context("it does not run")?;
        kill_process_group(pid, signal).with_context(|| format!("{} {pid:?}", self.member.name))
    }

    /// SIGKILL. It is started again after `down`.
    pub async fn kill(mut self, down: Duration) -> anyhow::Result<()> {
        self.signal(Signal::KILL)?;
        if let Some(child) = self.state.child.as_mut() {
            child.wait()?;
        }
        self.member.gone(&mut self.state);
        tokio::time::sleep(down).await;
        self.member.spawn(&mut self.state)
    }

    /// SIGSTOP, and SIGCONT after `pause`.
    pub async fn stop(self, pause: impl Future<Output = ()>) -> anyhow::Result<()> {
        self.signal(Signal::STOP)?;
        pause.await;
        self.signal(Signal::CONT)
    }
}

fn life(name: &str, state: &State) -> String {
    format!("{name}.{}", state.starts)
}

/// The URL in the log line that reports readiness.
fn ready_at(log: &Path) -> Option<String> {
    let log = fs::read_to_string(log).ok()?;
    let line = log.lines().find(|line| line.contains("ready in "))?;
    let (_, rest) = line.split_once("http://")?;
    let address = rest.split([',', ' ']).next()?;
    Some(format!("http://{address}"))
}

fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
