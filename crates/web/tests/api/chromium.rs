//! A browser for tests: Debian's chromium, driven over its debugging pipe. `scripts/test.sh` installs it; without it the tests fail.

use crate::harness::LONG;
use serde_json::{Value, json};
use std::{ops::RangeInclusive, path::Path, process::Stdio};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

/// One browser with one open page. It ends when it is dropped.
pub struct Browser {
    _process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    session: Option<String>,
    last_id: u64,
    /// Exceptions of scripts, and what the browser refused to load or run.
    pub problems: Vec<String>,
    _home: TempDir,
}

const FLAGS: &[&str] = &[
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
];

impl Browser {
    /// A browser with an empty profile.
    pub async fn start() -> Browser {
        let home = tempfile::tempdir().unwrap();
        let program = [
            "/usr/bin/chromium",
            "/usr/bin/chromium-browser",
            "/usr/bin/google-chrome",
        ];
        let program = program.into_iter().find(|path| Path::new(path).exists());
        let program = program.expect("chromium is missing: ./scripts/test.sh installs it");
        // The debugging pipe is the descriptors 3 and 4.
        let script = "program=$1; shift; exec \"$program\" \"$@\" 3<&0 4>&1 1>/dev/null";
        let mut process = Command::new("sh")
            .args(["-c", script, "sh", program])
            .args(FLAGS)
            .arg(format!("--user-data-dir={}", home.path().display()))
            .env("TMPDIR", home.path()) // what it leaves behind is removed with its home
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let (input, output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        let mut browser = Browser {
            _process: process,
            input,
            output: BufReader::new(output),
            session: None,
            last_id: 0,
            problems: Vec::new(),
            _home: home,
        };
        browser.new_page().await;
        browser
    }

    /// Goes on in a new page with its own cookies.
    pub async fn new_page(&mut self) {
        self.session = None;
        let context = self.call("Target.createBrowserContext", json!({})).await;
        let target = json!({ "url": "about:blank", "browserContextId": context["browserContextId"] });
        let target = self.call("Target.createTarget", target).await;
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = self.call("Target.attachToTarget", attach).await;
        self.session = Some(attached["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page", "Runtime", "Log"] {
            self.call(&format!("{domain}.enable"), json!({})).await;
        }
        self.size(1280, 900).await;
    }

    /// Sends a command and returns its result.
    pub async fn call(&mut self, method: &str, params: Value) -> Value {
        let answer = self.answer(method, params).await;
        assert!(answer.get("error").is_none(), "{method}: {answer}");
        answer["result"].clone()
    }

    /// Sends a command and returns what the browser answers. A page that goes away answers with an error.
    async fn answer(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        let mut message = json!({ "id": self.last_id, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.input.write_all(&bytes).await.unwrap();
        loop {
            let answer = self.next().await;
            if answer["id"] == self.last_id {
                return answer;
            }
            self.note(&answer);
        }
    }

    async fn next(&mut self) -> Value {
        let mut bytes = Vec::new();
        let read = timeout(3 * LONG, self.output.read_until(0, &mut bytes)).await;
        read.expect("the browser did not answer").unwrap();
        assert_eq!(bytes.pop(), Some(0), "the browser ended");
        serde_json::from_slice(&bytes).unwrap()
    }

    fn note(&mut self, event: &Value) {
        let text = match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => event["params"]["exceptionDetails"].to_string(),
            Some("Log.entryAdded") if event["params"]["entry"]["source"] == "security" => {
                event["params"]["entry"]["text"].to_string()
            }
            _ => return,
        };
        self.problems.push(text);
    }

    pub async fn size(&mut self, width: u32, height: u32) {
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", metrics).await;
    }

    pub async fn dark(&mut self, is_dark: bool) {
        self.prefers("color-scheme", if is_dark { "dark" } else { "light" })
            .await;
    }

    /// What the system of the person prefers, such as `reduced-motion`.
    pub async fn prefers(&mut self, feature: &str, value: &str) {
        let media = json!({ "features": [{ "name": format!("prefers-{feature}"), "value": value }] });
        self.call("Emulation.setEmulatedMedia", media).await;
    }

    /// Runs a script in each page before its own scripts.
    pub async fn before_pages(&mut self, script: &str) {
        let script = json!({ "source": script });
        self.call("Page.addScriptToEvaluateOnNewDocument", script).await;
    }

    /// Opens a page and waits until its scripts have run.
    pub async fn open(&mut self, address: &str) {
        self.call("Page.navigate", json!({ "url": address })).await;
        let path = address.split_once("//").map_or(address, |(_, rest)| rest);
        let path = path.find('/').map_or("/", |at| &path[at..]).to_owned();
        let condition = format!(
            "document.readyState === 'complete' && location.href.endsWith({}) && document.documentElement.classList.contains('has-js')",
            json!(path)
        );
        self.until(&condition).await;
    }

    /// The value of an expression.
    pub async fn eval(&mut self, expression: &str) -> Value {
        let params =
            json!({ "expression": expression, "awaitPromise": true, "returnByValue": true, "userGesture": true });
        let result = self.call("Runtime.evaluate", params).await;
        assert!(result.get("exceptionDetails").is_none(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// Waits until an expression is true in a page whose scripts have run. A page may be loading meanwhile, so each check is a command of its own.
    #[track_caller]
    pub fn until<'a>(&'a mut self, condition: &'a str) -> impl Future<Output = ()> + 'a {
        let place = std::panic::Location::caller();
        async move {
            let pause = "new Promise((go) => setTimeout(go, 25))";
            let wait = async {
                loop {
                    let params = json!({ "expression": format!("document.readyState === 'complete' && Boolean({condition})"), "returnByValue": true });
                    let answer = self.answer("Runtime.evaluate", params).await;
                    if answer["result"]["result"]["value"] == true {
                        break;
                    }
                    self.answer("Runtime.evaluate", json!({ "expression": pause, "awaitPromise": true }))
                        .await;
                }
            };
            if timeout(3 * LONG, wait).await.is_err() {
                let body = self.eval("document.body.innerText.slice(0, 3000)").await;
                panic!("{place}: never true: {condition}\n{body}");
            }
        }
    }

    /// The visible text of an element.
    pub async fn text(&mut self, selector: &str) -> String {
        let script = format!("document.querySelector({})?.innerText ?? ''", json!(selector));
        self.eval(&script).await.as_str().unwrap_or_default().to_owned()
    }

    /// Clicks an element with the mouse.
    pub async fn click(&mut self, selector: &str) {
        self.click_times(selector, 1).await;
    }

    pub async fn click_times(&mut self, selector: &str, times: u32) {
        self.clicks(selector, 1..=times).await;
    }

    /// The second click of a double click whose first click hit something else at this place.
    pub async fn click_second(&mut self, selector: &str) {
        self.clicks(selector, 2..=2).await;
    }

    async fn clicks(&mut self, selector: &str, counts: RangeInclusive<u32>) {
        let script = format!(
            "(() => {{ const e = document.querySelector({}); e.scrollIntoView({{ block: 'center' }}); const b = e.getBoundingClientRect(); \
             return [b.x + b.width / 2, b.y + b.height / 2]; }})()",
            json!(selector)
        );
        let at = self.eval(&script).await;
        for count in counts {
            for kind in ["mousePressed", "mouseReleased"] {
                let event = json!({ "type": kind, "x": at[0], "y": at[1], "button": "left", "clickCount": count });
                self.call("Input.dispatchMouseEvent", event).await;
            }
        }
    }

    /// Presses a key: a letter, `Enter`, `Tab`, `Escape` or `ArrowDown`.
    pub async fn press(&mut self, key: &str) {
        let (code, text) = match key {
            "Enter" => (13, "\r"),
            "Tab" => (9, ""),
            "Escape" => (27, ""),
            "ArrowDown" => (40, ""),
            letter => (0, letter),
        };
        for kind in ["keyDown", "keyUp"] {
            let mut event = json!({ "type": kind, "key": key, "windowsVirtualKeyCode": code });
            if kind == "keyDown" && !text.is_empty() {
                event["text"] = json!(text);
            }
            self.call("Input.dispatchKeyEvent", event).await;
        }
    }

    /// Types a text into the focused field.
    pub async fn type_text(&mut self, text: &str) {
        self.call("Input.insertText", json!({ "text": text })).await;
    }

    /// Whether the page is wider than the window.
    pub async fn overflows(&mut self) -> bool {
        self.eval("document.documentElement.scrollWidth > document.documentElement.clientWidth")
            .await
            == true
    }

    /// Writes a picture of the page, if `FERMATA_SCREENSHOTS` names a folder.
    pub async fn picture(&mut self, name: &str) {
        let Ok(folder) = std::env::var("FERMATA_SCREENSHOTS") else {
            return;
        };
        let shot = self.call("Page.captureScreenshot", json!({ "format": "png" })).await;
        let bytes = base64::Engine::decode(
            &base64::engine::general_purpose::STANDARD,
            shot["data"].as_str().unwrap(),
        );
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(Path::new(&folder).join(format!("{name}.png")), bytes.unwrap()).unwrap();
    }
}
