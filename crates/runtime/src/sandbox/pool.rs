//! The parent's side: starts children, sends them requests, kills them.
//!
//! What must stay true: a child handles one request at a time, and is reused only after its response to exactly that request.
//! In all other cases (the deadline, an invalid response, a caller that is dropped) it is killed.

use super::{
    SandboxError, SandboxSettings, Source,
    protocol::{Answered, Asked, Budget, EvaluationError, LONGEST_ANSWER, Op, frame},
};
use crate::{
    metrics::SandboxMetrics,
    slots::{Behalf, Slots},
};
use fermata_expr::{Limits, SandboxLanguage, cel};
use serde::Serialize;
use serde_json::Value;
use std::{
    io,
    path::PathBuf,
    process::Stdio,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::{Instant, sleep_until, timeout, timeout_at},
};

/// How long after its own interrupt a child is killed.
const MARGIN: Duration = Duration::from_millis(250);
/// How long a child whose pipes are closed may take to exit.
const EXIT_TIME: Duration = Duration::from_millis(100);
/// The time limit of a syntax check.
const CHECK_TIME: Duration = Duration::from_secs(2);

/// The sandbox processes. Cheap to clone; they are started when first needed.
///
/// They are shared fairly between tenants and between workflows ([`crate::slots`]): each handle belongs to one of each.
#[derive(Clone)]
pub struct Sandbox {
    pool: Arc<Pool>,
    tenant: Arc<str>,
    workflow: Arc<str>,
}

struct Pool {
    settings: SandboxSettings,
    slots: Arc<Slots>,
    idle: Mutex<Idle>,
    ids: AtomicU64,
    /// Whether failed steps of the confinement were logged.
    reported: AtomicBool,
    metrics: SandboxMetrics,
}

#[derive(Default)]
struct Idle {
    /// The most recently used child is taken first, so that the others become idle for long enough to end.
    children: Vec<Worker>,
    /// Whether the task that ends idle children is running.
    watched: bool,
}

impl Sandbox {
    /// A pool without children yet.
    pub fn new(settings: SandboxSettings) -> Sandbox {
        let pool = Pool {
            slots: Slots::new(settings.max_children, Arc::default()),
            settings,
            idle: Mutex::default(),
            ids: AtomicU64::new(1),
            reported: AtomicBool::new(false),
            metrics: SandboxMetrics::default(),
        };
        Sandbox {
            pool: Arc::new(pool),
            tenant: Arc::default(),
            workflow: Arc::default(),
        }
    }

    /// The same processes, used on behalf of this tenant and workflow.
    pub fn on_behalf_of(&self, tenant: &str, workflow: &str) -> Sandbox {
        Sandbox {
            pool: self.pool.clone(),
            tenant: tenant.into(),
            workflow: workflow.into(),
        }
    }

    /// The value of a source as JSON; `None` is `undefined`. The members of `data` are its names.
    pub async fn evaluate(
        &self,
        source: impl Into<Source<'_>>,
        data: &impl Serialize,
        limits: &Limits,
    ) -> Result<Option<Value>, SandboxError> {
        self.ask(Op::Evaluate, source.into(), data, limits).await.0
    }

    /// Whether the value of a source is truthy, and how long that took, without the wait for a process. In CEL a value that
    /// is not a boolean is an error.
    pub async fn test(
        &self,
        source: impl Into<Source<'_>>,
        data: &impl Serialize,
        limits: &Limits,
    ) -> (Result<bool, SandboxError>, Duration) {
        let (value, took) = self.ask(Op::Test, source.into(), data, limits).await;
        (value.map(|value| value == Some(Value::Bool(true))), took)
    }

    /// Checks the syntax of a source without running it.
    pub async fn check(&self, source: impl Into<Source<'_>>) -> Result<(), SandboxError> {
        let limits = Limits {
            timeout: CHECK_TIME,
            ..Limits::default()
        };
        let empty = serde_json::Map::new();
        match self.ask(Op::Check, source.into(), &empty, &limits).await.0 {
            // The source throws right after it was compiled.
            Ok(_) | Err(SandboxError::Failed(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Waits for a free process and sends it the request.
    async fn ask(
        &self,
        op: Op,
        source: Source<'_>,
        data: &impl Serialize,
        limits: &Limits,
    ) -> (Result<Option<Value>, SandboxError>, Duration) {
        // No process may parse CEL beyond these limits: it would overflow its stack.
        if source.language == SandboxLanguage::Cel
            && let Err(error) = cel::Expression::parse(source.text)
        {
            return (Err(SandboxError::Syntax(error)), Duration::ZERO);
        }
        let behalf = Behalf {
            tenant: &self.tenant,
            workflow: &self.workflow,
            priority: 0,
        };
        let _slot = match self.pool.slots.take(behalf) {
            Ok(slot) => slot,
            Err(waiter) => waiter.slot().await,
        };
        let started = Instant::now();
        let answer = self.pool.ask(op, source, data, limits).await;
        let took = started.elapsed();
        self.pool.metrics.durations.observe_time(took);
        let counter = match &answer {
            Ok(_) | Err(SandboxError::Syntax(_) | SandboxError::Failed(_)) => &self.pool.metrics.answered,
            Err(SandboxError::Killed(_)) => &self.pool.metrics.killed,
            Err(SandboxError::Crashed(_) | SandboxError::Unavailable(_)) => &self.pool.metrics.broken,
        };
        counter.inc();
        (answer, took)
    }

    pub(crate) fn metrics(&self) -> &SandboxMetrics {
        &self.pool.metrics
    }

    /// How many evaluations run now.
    pub(crate) fn used(&self) -> usize {
        self.pool.slots.used()
    }
}

/// Why there is no valid response.
enum Broken {
    /// The child ended.
    Gone(String),
    /// The response is invalid.
    Invalid(String),
}

impl Pool {
    async fn ask(
        self: &Arc<Self>,
        op: Op,
        source: Source<'_>,
        data: &impl Serialize,
        limits: &Limits,
    ) -> Result<Option<Value>, SandboxError> {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let question = frame(&Asked {
            id,
            language: source.language,
            op,
            source: source.text,
            data,
            limits: Budget::from(limits),
        });
        let question = question.map_err(|error| SandboxError::Unavailable(error.to_string()))?;
        let deadline = Instant::now() + limits.timeout + MARGIN;
        let mut died = None;
        for _ in 0..2 {
            let mut worker = self
                .take()
                .map_err(|error| SandboxError::Unavailable(error.to_string()))?;
            match timeout_at(deadline, worker.ask(id, &question)).await {
                Ok(Ok(answer)) => {
                    self.give_back(worker);
                    if !answer.missing.is_empty() && !self.reported.swap(true, Ordering::Relaxed) {
                        tracing::warn!(
                            missing = ?answer.missing,
                            "sandbox processes run with less protection than intended"
                        );
                    }
                    return match answer.error {
                        None => Ok(answer.value),
                        Some(EvaluationError::Syntax(error)) => Err(SandboxError::Syntax(error)),
                        Some(EvaluationError::Failed(error)) => Err(SandboxError::Failed(error)),
                    };
                }
                Ok(Err(Broken::Gone(how))) => died = Some(worker.exit_status(how).await),
                Ok(Err(Broken::Invalid(what))) => {
                    worker.end().await;
                    return Err(SandboxError::Crashed(what));
                }
                Err(_) => {
                    worker.end().await;
                    return Err(SandboxError::Killed(limits.timeout));
                }
            }
        }
        Err(SandboxError::Crashed(died.unwrap_or_default()))
    }

    fn take(&self) -> io::Result<Worker> {
        while let Some(mut worker) = self.idle().children.pop() {
            if worker.lives() {
                return Ok(worker);
            }
        }
        Worker::start(&self.settings)
    }

    fn give_back(self: &Arc<Self>, mut worker: Worker) {
        worker.idle_since = Instant::now();
        let mut idle = self.idle();
        idle.children.push(worker);
        if !std::mem::replace(&mut idle.watched, true) {
            tokio::spawn(watch(Arc::downgrade(self), self.settings.idle_timeout));
        }
    }

    /// Removes children that were idle for too long, and returns when to check again.
    fn expired(&self) -> (Vec<Worker>, Option<Instant>) {
        let limit = self.settings.idle_timeout;
        let now = Instant::now();
        let mut idle = self.idle();
        let (old, young) = std::mem::take(&mut idle.children)
            .into_iter()
            .partition(|worker| now.duration_since(worker.idle_since) >= limit);
        idle.children = young;
        let next = idle.children.iter().map(|worker| worker.idle_since + limit).min();
        idle.watched = next.is_some();
        (old, next)
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends idle children. Returns when there are none.
async fn watch(pool: Weak<Pool>, limit: Duration) {
    let mut next = Instant::now() + limit;
    loop {
        sleep_until(next).await;
        let Some(pool) = pool.upgrade() else { return };
        let (old, again) = pool.expired();
        for worker in old {
            worker.end().await;
        }
        match again {
            Some(again) => next = again,
            None => return,
        }
    }
}

/// One child.
struct Worker {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    idle_since: Instant,
}

impl Worker {
    fn start(settings: &SandboxSettings) -> io::Result<Worker> {
        let mut command = match &settings.command {
            Some((program, arguments)) => {
                let mut command = Command::new(program);
                command.args(arguments);
                command
            }
            None => {
                let mut command = Command::new(this_program()?);
                command.arg0("fermata").arg("sandbox");
                command
            }
        };
        let mut child = command
            .env_clear()
            .env("TZ", "UTC")
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let missing = || io::Error::other("a pipe to it is missing");
        Ok(Worker {
            input: child.stdin.take().ok_or_else(missing)?,
            output: BufReader::new(child.stdout.take().ok_or_else(missing)?),
            child,
            idle_since: Instant::now(),
        })
    }

    fn lives(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    async fn ask(&mut self, id: u64, question: &[u8]) -> Result<Answered, Broken> {
        let gone = |error: io::Error| Broken::Gone(error.to_string());
        self.input.write_all(question).await.map_err(gone)?;
        self.input.flush().await.map_err(gone)?;
        let length = self.output.read_u32().await.map_err(gone)? as usize;
        if length > LONGEST_ANSWER {
            return Err(Broken::Invalid("it did not send a response".to_owned()));
        }
        let mut text = vec![0; length];
        self.output.read_exact(&mut text).await.map_err(gone)?;
        match serde_json::from_slice::<Answered>(&text) {
            Ok(answer) if answer.id == id => Ok(answer),
            Ok(_) => Err(Broken::Invalid("its response is to another request".to_owned())),
            Err(error) => Err(Broken::Invalid(format!("its response cannot be parsed: {error}"))),
        }
    }

    /// Kills it.
    async fn end(mut self) {
        let _ = self.child.kill().await;
    }

    /// The exit status of a child that ended by itself; its pipes close shortly before that.
    async fn exit_status(mut self, how: String) -> String {
        match timeout(EXIT_TIME, self.child.wait()).await {
            Ok(Ok(status)) => status.to_string(),
            _ => {
                self.end().await;
                how
            }
        }
    }
}

/// The running program, even if its file was replaced meanwhile: parent and child must use the same protocol.
fn this_program() -> io::Result<PathBuf> {
    match cfg!(target_os = "linux") {
        true => Ok(PathBuf::from("/proc/self/exe")),
        false => std::env::current_exe(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pool(script: &str) -> Sandbox {
        Sandbox::new(SandboxSettings {
            command: Some(("/bin/sh".into(), vec!["-c".into(), script.into()])),
            max_children: 1,
            ..SandboxSettings::default()
        })
    }

    async fn ask(sandbox: &Sandbox, timeout_ms: u64) -> Result<Option<Value>, SandboxError> {
        let limits = Limits {
            timeout: Duration::from_millis(timeout_ms),
            ..Limits::default()
        };
        sandbox.evaluate("1", &json!({}), &limits).await
    }

    #[tokio::test]
    async fn missing_program_is_reported_as_unavailable() {
        let sandbox = Sandbox::new(SandboxSettings {
            command: Some(("/nonexistent/fermata".into(), Vec::new())),
            ..SandboxSettings::default()
        });
        assert!(matches!(ask(&sandbox, 100).await, Err(SandboxError::Unavailable(_))));
    }

    #[tokio::test]
    async fn invalid_response_is_an_error() {
        let invalid = ask(&pool("echo hello, is it me; sleep 60"), 5000).await;
        assert!(matches!(invalid, Err(SandboxError::Crashed(_))), "{invalid:?}");
        // A frame that is not JSON, and a response to another request.
        let invalid = ask(&pool(r"printf '\000\000\000\003abc'; sleep 60"), 5000).await;
        assert!(matches!(invalid, Err(SandboxError::Crashed(_))), "{invalid:?}");
        let invalid = ask(&pool(r#"printf '\000\000\000\010{"id":0}'; sleep 60"#), 5000).await;
        assert!(matches!(invalid, Err(SandboxError::Crashed(_))), "{invalid:?}");
    }

    #[tokio::test]
    async fn silent_child_is_killed_at_the_deadline() {
        let silent = ask(&pool("exec sleep 60"), 50).await;
        assert_eq!(silent, Err(SandboxError::Killed(Duration::from_millis(50))));
    }

    #[tokio::test]
    async fn request_is_sent_twice_if_its_child_dies() {
        let died = ask(&pool("exit 3"), 5000).await;
        assert!(matches!(died, Err(SandboxError::Crashed(_))), "{died:?}");
        let died = died.unwrap_err().to_string();
        assert!(died.contains("exit status: 3"), "{died}");
    }
}
