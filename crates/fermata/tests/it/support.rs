//! Processes of the real binary. Each is killed when its test ends.
//!
//! [`Process`] is any call of `fermata`; [`Server`] is `fermata serve` with its address and a database of its own.
//! Every wait has a limit, and no test sleeps for a guessed time: it polls for the expected state.
//!
//! Databases are SQLite files; `FERMATA_TEST_DATABASE=postgres` makes them PostgreSQL databases. Some tests always use the
//! same database: SQLite for tests whose name begins with `sqlite_` and for those of `dev`; PostgreSQL for tests in
//! `postgres`, which use several processes; memory for `edge_cases/time.rs`, where time is simulated.

use fermata_store::conformance::home::{Home, Kind};
use rustix::process::{Pid, kill_process};
use serde_json::Value;
use std::{
    future::Future,
    io::{BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Condvar, Mutex},
    thread::JoinHandle,
    time::{Duration, Instant},
};

pub use rustix::process::Signal;

/// The lease of a killed process expires after this, where the database does not notice its end. Long enough for a busy
/// machine to write its heartbeats.
const QUICK_LEASES: (&str, &str) = ("FERMATA_ORCHESTRATION__LEASE_TTL_MS", "3s");

/// A database of the default kind.
pub fn home() -> Arc<Home> {
    Arc::new(Home::new(Kind::Sqlite))
}

/// A database that several processes share.
pub fn shared_home() -> Arc<Home> {
    Arc::new(Home::of(Kind::Postgres))
}

/// Longer than any step of a test takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// The time between two polls.
const GLANCE: Duration = Duration::from_millis(10);

/// The exit code and the output of a process that has ended.
#[derive(Debug)]
pub struct Output {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Output {
    /// Its stdout as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("stdout is not JSON ({error}): {self:?}"))
    }
}

/// A running `fermata`. Dropping it kills it.
pub struct Process {
    child: Child,
    stderr: Arc<Lines>,
    stdout: Option<JoinHandle<String>>,
    reader: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Lines {
    /// The lines so far, and whether there will be more.
    state: Mutex<(Vec<String>, bool)>,
    changed: Condvar,
}

impl Process {
    /// Starts the binary with these arguments and nothing of this process's environment but `environment`.
    pub fn start(arguments: &[&str], environment: &[(&str, &str)], stdin: &str) -> Process {
        Process::start_in(Path::new("."), arguments, environment, stdin)
    }

    /// The same, in a folder.
    pub fn start_in(folder: &Path, arguments: &[&str], environment: &[(&str, &str)], stdin: &str) -> Process {
        let mut child = Command::new(env!("CARGO_BIN_EXE_fermata"))
            .current_dir(folder)
            .args(arguments)
            .env_clear()
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        // A process that does not read its stdin closes it, which is not an error here.
        let _ = child.stdin.take().expect("stdin is piped").write_all(stdin.as_bytes());
        let mut out = child.stdout.take().expect("stdout is piped");
        let stdout = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = out.read_to_string(&mut text);
            text
        });
        let lines = Arc::new(Lines::default());
        let (writer, err) = (lines.clone(), child.stderr.take().expect("stderr is piped"));
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(err).lines().map_while(Result::ok) {
                writer.state.lock().unwrap().0.push(line);
                writer.changed.notify_all();
            }
            writer.state.lock().unwrap().1 = true;
            writer.changed.notify_all();
        });
        Process {
            child,
            stderr: lines,
            stdout: Some(stdout),
            reader: Some(reader),
        }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The first line on stderr with `text` in it. Panics if the process ends without it.
    pub fn wait_for_line(&self, text: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        let mut state = self.stderr.state.lock().unwrap();
        loop {
            if let Some(line) = state.0.iter().find(|line| line.contains(text)) {
                return line.clone();
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(
                !state.1 && !left.is_zero(),
                "`{text}` is not among these lines:\n{}",
                state.0.join("\n")
            );
            state = self.stderr.changed.wait_timeout(state, left).unwrap().0;
        }
    }

    /// Its stderr so far.
    pub fn log(&self) -> String {
        self.stderr.state.lock().unwrap().0.join("\n")
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.expect("a pid"), signal).expect("the process is there");
    }

    /// Waits for its end.
    pub fn output(&mut self) -> Output {
        self.output_within(PATIENCE)
    }

    /// The same, with another limit.
    pub fn output_within(&mut self, patience: Duration) -> Output {
        let deadline = Instant::now() + patience;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("its status can be asked") {
                break status;
            }
            assert!(Instant::now() < deadline, "it does not end:\n{}", self.log());
            std::thread::sleep(GLANCE);
        };
        if let Some(reader) = self.reader.take() {
            reader.join().expect("stderr can be read");
        }
        let stdout = self.stdout.take().map(|out| out.join().expect("stdout can be read"));
        Output {
            code: status.code(),
            stdout: stdout.unwrap_or_default(),
            stderr: self.log(),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs the binary to its end.
pub fn fermata(arguments: &[&str]) -> Output {
    Process::start(arguments, &[], "").output()
}

/// A running `fermata serve` and how to reach it.
pub struct Server {
    /// Such as `http://127.0.0.1:40123`.
    pub url: String,
    /// The line that said so.
    pub ready: String,
    process: Process,
    client: reqwest::Client,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    /// The database; deleted when it is dropped.
    home: Option<Arc<Home>>,
}

impl Server {
    /// Starts `fermata serve --listen 127.0.0.1:0` with these arguments, and a database of its own unless they name one,
    /// and waits until it is ready.
    pub fn start(arguments: &[&str]) -> Server {
        Server::start_with(arguments, &[])
    }

    /// The same, with variables in its environment.
    pub fn start_with(arguments: &[&str], environment: &[(&str, &str)]) -> Server {
        let home = (!arguments.contains(&"--database")).then(home);
        Server::launch_on(home, arguments, environment)
    }

    /// The same, on a database that is there.
    pub fn on(home: &Arc<Home>, arguments: &[&str], environment: &[(&str, &str)]) -> Server {
        Server::launch_on(Some(home.clone()), arguments, environment)
    }

    fn launch_on(home: Option<Arc<Home>>, arguments: &[&str], environment: &[(&str, &str)]) -> Server {
        let mut all = vec!["serve".to_owned()];
        let url = home.as_ref().map(|home| home.url());
        all.extend(url.into_iter().flat_map(|url| ["--database".to_owned(), url]));
        if !arguments.contains(&"--listen") {
            all.extend(["--listen".to_owned(), "127.0.0.1:0".to_owned()]);
        }
        all.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        // The services of tests are on loopback. Variables of the test come later and override these.
        let environment = [("FERMATA_HTTP__ALLOW_PRIVATE_NETWORKS", "true"), QUICK_LEASES]
            .iter()
            .chain(environment)
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        Server::launch(all, environment, home)
    }

    fn launch(arguments: Vec<String>, environment: Vec<(String, String)>, home: Option<Arc<Home>>) -> Server {
        let strings: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let variables: Vec<(&str, &str)> = environment
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let process = Process::start(&strings, &variables, "");
        Server::of(process, arguments, environment, home)
    }

    /// `fermata dev` in a folder, once it is ready.
    pub fn dev(folder: &Path, arguments: &[&str]) -> Server {
        Server::dev_with(folder, arguments, &[])
    }

    /// The same, with variables in its environment.
    pub fn dev_with(folder: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Server {
        let mut all = vec!["dev", "--listen", "127.0.0.1:0"];
        all.extend(arguments);
        let process = Process::start_in(folder, &all, environment, "");
        Server::of(process, Vec::new(), Vec::new(), None)
    }

    fn of(
        process: Process,
        arguments: Vec<String>,
        environment: Vec<(String, String)>,
        home: Option<Arc<Home>>,
    ) -> Server {
        let ready = process.wait_for_line("listening on http://");
        let url = ready
            .split_once("listening on ")
            .and_then(|(_, rest)| rest.split(',').next());
        Server {
            url: url.expect("the ready line has the address").to_owned(),
            ready,
            process,
            client: http_client(),
            arguments,
            environment,
            home,
        }
    }

    /// The process behind it.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Asks it to stop; its exit code.
    pub fn stop(&mut self) -> Option<i32> {
        self.process.signal(Signal::TERM);
        self.wait()
    }

    /// Waits for its end; its exit code.
    pub fn wait(&mut self) -> Option<i32> {
        self.process.output().code
    }

    /// Ends it as a crash would, and waits until it is gone.
    pub fn kill9(&mut self) {
        self.process.signal(Signal::KILL);
        self.process.output();
    }

    /// Starts the same again; if it still runs, it is killed first. The port may be another one.
    pub fn restart(&mut self) {
        if self
            .process
            .child
            .try_wait()
            .expect("its status can be asked")
            .is_none()
        {
            self.kill9();
        }
        *self = Server::launch(self.arguments.clone(), self.environment.clone(), self.home.clone());
    }

    /// The same, at this address. Its arguments must have `--listen`.
    pub fn restart_at(&mut self, address: &str) {
        let listen = self.arguments.iter().position(|argument| argument == "--listen");
        self.arguments[listen.expect("an address to listen on") + 1] = address.to_owned();
        self.restart();
    }

    /// GETs a path; status and JSON.
    pub async fn get(&self, path: &str) -> (u16, Value) {
        answer(self.client.get(format!("{}{path}", self.url))).await
    }

    /// POSTs JSON to a path; status and JSON.
    pub async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        answer(self.client.post(format!("{}{path}", self.url)).json(body)).await
    }

    /// Sends a body as it is, as JSON unless it is a callback; status and JSON.
    pub async fn send(&self, method: &str, path: &str, body: impl Into<reqwest::Body>) -> (u16, Value) {
        let method = method.parse().expect("a method");
        let mut request = self.client.request(method, format!("{}{path}", self.url));
        if !path.starts_with("/wh/") {
            request = request.header("content-type", "application/json");
        }
        answer(request.body(body)).await
    }

    /// Saves and publishes a document.
    pub async fn publish(&self, document: &Value) {
        let (status, saved) = self.post("/api/v1/workflows", document).await;
        assert!(status < 300, "{status}: {saved}");
        let id = document["id"].as_str().expect("the document has an id");
        let path = format!("/api/v1/workflows/{id}/publish?autoActivate=true");
        let (status, published) = self.post(&path, &Value::Null).await;
        assert!(status < 300, "{status}: {published}");
    }

    /// Starts a run; its id.
    pub async fn execute(&self, workflow: &str, body: &Value) -> String {
        let (status, accepted) = self.post(&format!("/api/v1/workflows/{workflow}/execute"), body).await;
        assert!(status == 202 || status == 200, "{status}: {accepted}");
        accepted["executionId"].as_str().expect("an id").to_owned()
    }

    /// A run as the API shows it.
    pub async fn execution(&self, id: &str) -> Value {
        let (status, run) = self.get(&format!("/api/v1/executions/{id}")).await;
        assert_eq!(status, 200, "{run}");
        run
    }

    /// A run once it is over.
    pub async fn ended(&self, id: &str) -> Value {
        eventually(&format!("the end of {id}"), || async {
            let run = self.execution(id).await;
            let over = matches!(run["status"].as_str(), Some("Succeeded" | "Failed" | "Cancelled"));
            over.then_some(run)
        })
        .await
    }
}

/// A client for loopback.
pub fn http_client() -> reqwest::Client {
    fermata_runtime::tls::install_provider();
    let client = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build();
    client.expect("an HTTP client")
}

async fn answer(request: reqwest::RequestBuilder) -> (u16, Value) {
    let response = request.send().await.expect("the server answers");
    let status = response.status().as_u16();
    let text = response.text().await.expect("the answer is whole");
    let json = serde_json::from_str(&text).unwrap_or(Value::String(text));
    (status, json)
}

/// Polls until there is a value.
pub async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut poll: impl FnMut() -> F) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = poll().await {
            return value;
        }
        assert!(Instant::now() < deadline, "{what} did not come");
        tokio::time::sleep(GLANCE).await;
    }
}

/// A folder that is deleted after the test.
pub fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder for the test")
}

/// Writes a file into a folder; its path.
pub fn write(folder: &tempfile::TempDir, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("the folder can be made");
    std::fs::write(&path, text).expect("the file can be written");
    path
}

/// A path as an argument.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("paths of tests are text")
}
