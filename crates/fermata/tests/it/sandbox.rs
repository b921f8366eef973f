//! The sandbox with its real processes: what hostile conditions do to it, and to others.

use crate::support::{Server, eventually};
use fermata_expr::{EvalErrorKind, Limits};
use fermata_runtime::sandbox::{Sandbox, SandboxError, SandboxSettings};
use futures::{StreamExt, future::join_all, stream};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::{
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// A pool of real children. `name` distinguishes them from the children of other tests in this process.
pub fn sandbox(name: &str, max_children: usize) -> Sandbox {
    let arguments = ["--config", name, "sandbox"].map(str::to_owned).to_vec();
    Sandbox::new(SandboxSettings {
        command: Some((env!("CARGO_BIN_EXE_fermata").into(), arguments)),
        max_children,
        ..SandboxSettings::default()
    })
}

pub fn quick() -> Limits {
    Limits {
        timeout: Duration::from_millis(300),
        ..Limits::default()
    }
}

/// Processes whose parent is `parent` and whose command line has `word` in it, and is of a sandbox.
pub fn children(parent: u32, word: &str) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").expect("/proc is there");
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        let read = |file: &str| std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let (stat, command) = (read("stat"), read("cmdline"));
        let stat = String::from_utf8_lossy(&stat);
        let above = stat
            .rsplit(") ")
            .next()
            .and_then(|rest| rest.split(' ').nth(1)?.parse().ok());
        let words: Vec<&[u8]> = command.split(|byte| *byte == 0).collect();
        above == Some(parent) && words.contains(&&b"sandbox"[..]) && words.contains(&word.as_bytes())
    })
    .collect()
}

fn lives(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ")
        .next()
        .is_some_and(|rest| !rest.starts_with('Z') && !rest.is_empty())
}

async fn value(sandbox: &Sandbox, source: &str, data: &Value) -> Value {
    let value = sandbox.evaluate(source, data, &Limits::default()).await;
    value
        .unwrap_or_else(|error| panic!("{source}: {error}"))
        .unwrap_or_else(|| json!("undefined"))
}

pub async fn works(sandbox: &Sandbox) {
    let data = json!({ "trigger": { "id": "A-12" } });
    assert_eq!(
        value(sandbox, r"/^A-(\d+)$/.exec(trigger.id)[1]", &data).await,
        json!("12")
    );
}

#[tokio::test]
async fn javascript_is_evaluated() {
    let sandbox = sandbox("speaks", 1);
    let data = json!({ "trigger": { "items": [3, 1, 2], "at": "2024-05-01T00:00:00Z", "é": null }, "vars": {} });
    for (source, expected) in [
        (
            "trigger.items.reduce((a, b) => { const c = a + b; return c }, 0)",
            json!(6),
        ),
        ("let n = 0; for (const i of trigger.items) n += i; n", json!(6)),
        ("new Date(trigger.at).getUTCMonth() + 1", json!(5)),
        ("new Date('2024-05-01T12:00').getTimezoneOffset()", json!(0)),
        ("trigger.items.sort().join()", json!("1,2,3")),
        ("({ a: undefined, b: NaN, c: -0 })", json!({ "b": null, "c": 0 })),
        ("trigger.é", Value::Null),
        ("undefined", json!("undefined")),
        ("'\\ud83d' + 'x'", json!("\u{fffd}x")),
        ("`${[1, [2, 3]]}`", json!("1,2,3")),
        (
            "trigger = 1; vars = 2; typeof trigger + typeof vars",
            json!("objectobject"),
        ),
        ("let trigger = 5; trigger", json!(5)),
        ("typeof spec", json!("undefined")),
    ] {
        assert_eq!(value(&sandbox, source, &data).await, expected, "{source}");
    }
    let test = async |source: &str| sandbox.test(source, &data, &Limits::default()).await.0;
    assert_eq!(test("''").await, Ok(false));
    assert_eq!(test("({})").await, Ok(true));
    assert_eq!(test("undefined").await, Ok(false));
    let thrown = test("null.x").await.unwrap_err().to_string();
    assert!(thrown.starts_with("TypeError: "), "{thrown}");
    let syntax = sandbox.check("trigger.é &&\n  (1 + )").await;
    let Err(SandboxError::Syntax(syntax)) = syntax else {
        panic!("{syntax:?}")
    };
    assert_eq!(syntax.offset, 21, "{syntax:?}");
    let syntax = sandbox.check("1 && /(/.test(1)").await;
    assert!(
        matches!(&syntax, Err(SandboxError::Syntax(error)) if error.length == 16),
        "{syntax:?}"
    );
    assert_eq!(sandbox.check("while (true) {}").await, Ok(()));
    assert_eq!(sandbox.check("throw new SyntaxError('no')").await, Ok(()));
}

#[tokio::test]
async fn context_has_only_the_listed_globals() {
    let sandbox = sandbox("globals", 1);
    let names = "Date && Reflect.ownKeys(globalThis).map(String).sort().join(' ')";
    let expected = "AggregateError Array BigInt Boolean Date Error EvalError Infinity InternalError Iterator JSON Map \
                    Math NaN Number Object RangeError ReferenceError Reflect RegExp Set String Symbol \
                    Symbol(Symbol.toStringTag) SyntaxError \
                    TypeError URIError WeakMap WeakSet decodeURI decodeURIComponent encodeURI encodeURIComponent \
                    escape globalThis isFinite isNaN parseFloat parseInt trigger undefined unescape";
    assert_eq!(value(&sandbox, names, &json!({ "trigger": 1 })).await, json!(expected));
    let computed = "typeof globalThis['Da' + 'te']";
    assert_eq!(value(&sandbox, computed, &json!({})).await, json!("undefined"));
    for source in [
        "eval('1')",
        "new Function('return 1')()",
        "(() => {}).constructor('return 1')()",
        "(function () {}).constructor('return 1')()",
        "(function* () {}).constructor('return 1')()",
        "Object.getPrototypeOf(function* () {}).constructor('yield 1')()",
        "(async () => {}).constructor('return 1')()",
        "Object.getPrototypeOf(async function* () {}).constructor('yield 1')()",
        "[].map.constructor('return 1')()",
        "class A {}; A.constructor('return 1')()",
        "Reflect.getPrototypeOf(class {}).constructor('return 1')()",
        "(class extends Date {}).constructor('return 1')()",
        "Date()",
        "Date.now()",
        "new Date()",
        "new (class extends Date {})()",
        "new Date(0).constructor.now()",
        "Math.random()",
        "import('os')",
        "(async () => 1)()",
        "new SharedArrayBuffer(8)",
        "new WeakRef({})",
        "new Proxy({}, {})",
        "require('fs')",
        "process.exit()",
        "std.exit(0)",
        "performance.now()",
    ] {
        let answer = sandbox.evaluate(source, &json!({}), &Limits::default()).await;
        // `constructor('return 1')` may be Object's, whose result cannot be called.
        let Err(SandboxError::Failed(error)) = &answer else {
            panic!("{source}: {answer:?}")
        };
        assert_eq!(error.kind, EvalErrorKind::Thrown, "{source}: {error:?}");
    }
}

#[tokio::test]
async fn no_state_survives_an_evaluation() {
    let sandbox = sandbox("survives", 1);
    for source in [
        "Object.prototype.polluted = 1; Array.prototype.map = () => 'mine'; String.prototype.trim = null; 1",
        "globalThis.left = 1; var over = 2; JSON.stringify = () => '0'; RegExp.prototype.exec = () => null; 1",
        "Object.defineProperty(Object.prototype, 'trigger', { get() { return 'mine' } }); Symbol.for('x'); 1",
    ] {
        value(&sandbox, source, &json!({ "trigger": { "secret": 1 } })).await;
        let after = "[typeof left, typeof over, ({}).polluted, [1].map(x => x)[0], typeof trigger].join()";
        assert_eq!(
            value(&sandbox, after, &json!({})).await,
            json!("undefined,undefined,,1,undefined")
        );
        works(&sandbox).await;
    }
    assert_eq!(
        children(std::process::id(), "survives").len(),
        1,
        "one child did all of it"
    );
}

#[tokio::test]
async fn hostile_conditions_do_not_affect_others() {
    let sandbox = sandbox("hostile", 3);
    let late = [
        "while (true) {}",
        "(function loop() { while (true) {} })()",
        "for (;;) try { for (;;); } catch (e) {}",
        "/(a+)+$/.test('a'.repeat(40) + 'b')",
        "Array(1e8).join()",
        "Array.prototype.join.call({ length: 1e9 })",
        "Array(1e8).toString()",
        "Array(1e8).sort()",
        "Array(1e8).flat()",
        "[].concat(Array(1e8), Array(1e8))",
        "Array.prototype.indexOf.call({ length: 2 ** 53 - 1 }, 1)",
        "({ toString() { while (true); } }) + ''",
        "throw { toString() { while (true); } }",
        "const e = new Error(); Object.defineProperty(e, 'message', { get() { while (true); } }); throw e",
        "({ toJSON() { while (true); } })",
        "const s = new Set([1]); for (const x of s) { s.delete(x); s.add(x) }",
    ];
    let full = [
        "'x'.repeat(1e9)",
        "'x'.repeat(2 ** 29)",
        "let a = [1]; while (true) a = a.concat(a)",
        "const a = []; while (true) a.push(a.slice())",
        "new Array(1e9).fill()",
        "Array.from({ length: 1e9 })",
        "let s = 'xy'; while (true) s = s.replace(/x/g, 'xx')",
        "JSON.stringify(Array(1e6).fill('xxxx'))",
        "const m = new Map(); for (let i = 0; ; i++) m.set(i, {})",
        "2n ** 100000000n",
    ];
    let deep = [
        "const f = () => f(); f()",
        "const f = (n) => [n].map(f); f(1)",
        "let a = []; for (let i = 0; i < 30000; i++) a = [a]; JSON.stringify(a)",
    ];
    let all = late.iter().chain(&full).chain(&deep).copied();
    let begun = Instant::now();
    let answers: Vec<_> = stream::iter(all)
        .map(|source| {
            let sandbox = &sandbox;
            async move {
                let answer = sandbox.evaluate(source, &json!({}), &quick()).await;
                works(sandbox).await;
                (source, answer)
            }
        })
        .buffer_unordered(3)
        .collect()
        .await;
    for (source, answer) in &answers {
        let Err(error) = answer else {
            panic!("{source}: {answer:?}")
        };
        if late.contains(source) {
            assert!(error.is_timeout(), "{source}: {error:?}");
        }
        assert!(
            !matches!(error, SandboxError::Unavailable(_) | SandboxError::Syntax(_)),
            "{source}: {error:?}"
        );
    }
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn results_and_inputs_have_limits() {
    let sandbox = sandbox("sizes", 1);
    let limits = Limits {
        memory_bytes: 1024 * 1024,
        ..Limits::default()
    };
    // Escaped it is longer than the memory it needs.
    let long = sandbox.evaluate("'\\x01'.repeat(300000)", &json!({}), &limits).await;
    assert!(
        matches!(&long, Err(SandboxError::Failed(error)) if error.kind == EvalErrorKind::OutputLimit
        || error.kind == EvalErrorKind::MemoryLimit),
        "{long:?}"
    );
    works(&sandbox).await;
    // The input does not count: 8 MiB of it, with a limit of 1.
    let input = json!({ "trigger": { "text": "x".repeat(8 << 20), "list": vec![json!({ "a": 1 }); 100_000] } });
    let read = sandbox
        .evaluate("trigger.text.length + trigger.list.length", &input, &limits)
        .await;
    assert_eq!(read, Ok(Some(json!((8 << 20) + 100_000))));
    let bomb = sandbox
        .evaluate("trigger.text + trigger.text + 'x'", &input, &limits)
        .await;
    assert!(bomb.is_err(), "{:?}", bomb.map(|_| "a value"));
    works(&sandbox).await;
}

#[tokio::test]
async fn dead_child_is_replaced() {
    let sandbox = sandbox("dies", 1);
    works(&sandbox).await;
    let child = || async { children(std::process::id(), "dies").first().copied() };
    let first = eventually("the child", child).await;
    // Idle: the next evaluation finds it gone.
    kill_process(Pid::from_raw(first).unwrap(), Signal::KILL).unwrap();
    works(&sandbox).await;
    // In the middle of one: it is done again by another child, which finds an end here.
    let second = eventually("another child", || async {
        children(std::process::id(), "dies")
            .into_iter()
            .find(|pid| *pid != first)
    })
    .await;
    let slow = "let n = 0; for (let i = 0; i < 3e6; i++) n += i; n";
    let kill = async {
        tokio::time::sleep(Duration::from_millis(30)).await;
        kill_process(Pid::from_raw(second).unwrap(), Signal::KILL).unwrap();
    };
    let limits = Limits {
        timeout: Duration::from_secs(20),
        ..Limits::default()
    };
    let data = json!({});
    let (answer, ()) = tokio::join!(sandbox.evaluate(slow, &data, &limits), kill);
    assert_eq!(answer, Ok(Some(json!(4499998500000_u64))));
}

#[tokio::test]
async fn idle_children_end() {
    let arguments = ["--config", "idle", "sandbox"].map(str::to_owned).to_vec();
    let sandbox = Sandbox::new(SandboxSettings {
        command: Some((env!("CARGO_BIN_EXE_fermata").into(), arguments)),
        max_children: 2,
        idle_timeout: Duration::from_millis(50),
    });
    join_all([works(&sandbox), works(&sandbox)]).await;
    eventually("the end of idle children", || async {
        children(std::process::id(), "idle").is_empty().then_some(())
    })
    .await;
    works(&sandbox).await;
}

#[tokio::test]
async fn slow_condition_does_not_delay_others() {
    let sandbox = sandbox("others", 2);
    works(&sandbox).await;
    let slow = async {
        let answer = sandbox
            .evaluate("Array(1e8).join()", &json!({}), &Limits::default())
            .await;
        assert!(answer.is_err_and(|error| error.is_timeout()));
        Instant::now()
    };
    let fast = async {
        for _ in 0..200 {
            works(&sandbox).await;
        }
        Instant::now()
    };
    let (slow, fast) = tokio::join!(slow, fast);
    assert!(fast < slow, "200 evaluations took longer than a hopeless one");
}

/// Two processes, and twenty evaluations of one tenant that never end by themselves.
#[tokio::test]
async fn slow_conditions_of_one_tenant_do_not_delay_another() {
    let sandbox = sandbox("fair", 2);
    let (large, small) = (
        sandbox.on_behalf_of("large", "endless"),
        sandbox.on_behalf_of("small", "quick"),
    );
    let ended = AtomicUsize::new(0);
    let slow = join_all((0..20).map(|_| async {
        let answer = large.evaluate("while (true) {}", &json!({}), &quick()).await;
        assert!(answer.is_err_and(|error| error.is_timeout()));
        ended.fetch_add(1, Relaxed);
    }));
    let fast = async {
        tokio::task::yield_now().await; // the others ask first
        for _ in 0..5 {
            works(&small).await;
        }
        ended.load(Relaxed)
    };
    let (_, before) = tokio::join!(slow, fast);
    assert!(before < 10, "{before} of 20 ended before five others had their answers");
}

#[tokio::test]
async fn child_has_no_privileges_and_a_filter() {
    let sandbox = sandbox("confined", 1);
    works(&sandbox).await;
    let child = children(std::process::id(), "confined")[0];
    let status = std::fs::read_to_string(format!("/proc/{child}/status")).unwrap();
    let field = |name: &str| {
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
        line.unwrap_or_else(|| panic!("no {name} in {status}"))
    };
    assert_eq!((field("Seccomp"), field("NoNewPrivs")), ("2", "1"));
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(field(set), "0000000000000000", "{set}");
    }
    assert!(!field("Uid").split('\t').any(|id| id == "0"), "{}", field("Uid"));
}

fn routing(id: &str, condition: &str) -> Value {
    json!({ "id": id, "displayName": id, "startNode": "look", "nodes": [
        { "id": "look", "actionType": "core.echo", "parameters": { "text": "{{ trigger.text }}" },
          "routePolicy": "firstMatch",
          "edges": [{ "targetNode": "yes", "condition": condition }, { "targetNode": "no" }] },
        { "id": "yes", "actionType": "core.echo", "parameters": { "answer": "yes" } },
        { "id": "no", "actionType": "core.echo", "parameters": { "answer": "no" } } ] })
}

async fn answer(server: &Server, workflow: &str, text: &str) -> (Value, String) {
    let body = json!({ "trigger": { "text": text } });
    let id = server.execute(workflow, &body).await;
    let run = server.ended(&id).await;
    (run["outputs"]["answer"].clone(), id)
}

#[tokio::test]
async fn runs_follow_the_verdicts_of_their_conditions() {
    let mut server = Server::start(&[]);
    server
        .publish(&routing("regex", r"/^\w+@\w+\.org$/i.test(context.data.look.text)"))
        .await;
    assert_eq!(answer(&server, "regex", "Ada@example.org").await.0, json!("yes"));
    assert_eq!(answer(&server, "regex", "Ada").await.0, json!("no"));

    // Native, until the data shows that it needs more.
    server
        .publish(&routing("method", "typeof trigger.text.localeCompare === 'function'"))
        .await;
    assert_eq!(answer(&server, "method", "x").await.0, json!("yes"));

    server.publish(&routing("endless", "while (true) {}")).await;
    let (went, id) = answer(&server, "endless", "x").await;
    assert_eq!(went, json!("no"));
    let (_, events) = server.get(&format!("/api/v1/executions/{id}?include=events")).await;
    let text = events.to_string();
    assert!(text.contains("Warn") && text.contains("took longer than 2s"), "{text}");

    // A condition that is not JavaScript is refused with its place when the document is saved.
    let (status, refused) = server
        .post("/api/v1/workflows", &routing("broken", "/(/.test(trigger.text)"))
        .await;
    assert_eq!(status, 400, "{refused}");
    assert!(refused.to_string().contains("CONDITION_SYNTAX"), "{refused}");
    assert_eq!(server.stop(), Some(0));
}

#[tokio::test]
async fn children_end_with_their_server() {
    let mut server = Server::start(&[]);
    server.publish(&routing("join", "Array(1e9).join()")).await;
    let parent = server.process().id();
    let _ = server.execute("join", &json!({ "trigger": { "text": "x" } })).await;
    // It is deep inside a builtin that no interrupt reaches.
    let child = eventually("the child", || async { children(parent, "sandbox").first().copied() }).await;
    server.kill9();
    eventually("the end of the child", || async { (!lives(child)).then_some(()) }).await;
}

/// A node whose conditions would take long, all of them together.
fn slow_conditions(id: &str, edges: usize) -> Value {
    let edge = |at: usize| json!({ "targetNode": "next", "condition": format!("/{at}/.test('x') || (() => {{ while (true) {{}} }})()") });
    json!({
        "id": id, "displayName": id, "startNode": "act",
        "nodes": [
            { "id": "act", "actionType": "core.echo", "parameters": { "done": true }, "edges": (0..edges).map(edge).collect::<Vec<_>>() },
            { "id": "next", "actionType": "core.echo" },
        ]
    })
}

#[tokio::test]
async fn step_result_is_durable_and_cancel_works_while_conditions_are_evaluated() {
    let server = Server::start(&[]);
    server.publish(&slow_conditions("ponder", 20)).await;
    let run = server.execute("ponder", &json!({})).await;
    let path = format!("/api/v1/executions/{run}?include=actions");
    let recorded = eventually("the recorded attempt", || async {
        let (_, view) = server.get(&path).await;
        view["actions"]
            .as_array()
            .is_some_and(|actions| !actions.is_empty())
            .then_some(view)
    })
    .await;
    assert_eq!(
        (&recorded["status"], &recorded["actions"][0]["status"]),
        (&json!("Running"), &json!("Succeeded"))
    );
    let (status, _) = server
        .post(&format!("/api/v1/executions/{run}/cancel"), &json!({}))
        .await;
    assert!(status < 300, "{status}");
    assert_eq!(server.ended(&run).await["status"], "Cancelled");
    let (_, view) = server.get(&format!("/api/v1/executions/{run}?include=events")).await;
    let routed = view["events"]
        .as_array()
        .expect("events")
        .iter()
        .any(|event| event["data"]["type"] == "routed");
    assert!(!routed, "it was cancelled before its conditions were answered: {view}");
}

#[tokio::test]
async fn each_failed_condition_is_recorded_and_their_total_time_is_limited() {
    let environment = [("FERMATA_CONDITIONS__SCRIPT_TIMEOUT_MS", "50")];
    let server = Server::start_with(&[], &environment);
    server.publish(&slow_conditions("many", 12)).await;
    let run = server.execute("many", &json!({})).await;
    assert_eq!(server.ended(&run).await["status"], "Succeeded");
    let (_, view) = server.get(&format!("/api/v1/executions/{run}?include=events")).await;
    let events = view["events"].as_array().expect("events");
    let warnings: Vec<&str> = events
        .iter()
        .filter(|event| event["level"] == "Warn")
        .filter_map(|event| event["message"].as_str())
        .collect();
    assert_eq!(warnings.len(), 12, "{warnings:#?}");
    assert!(warnings[11].contains("together took longer"), "{warnings:#?}");
}

#[tokio::test]
async fn workflows_that_were_slow_before_leave_children_for_others() {
    let server = Server::start(&[]);
    server.publish(&slow_conditions("stuck", 1)).await;
    server.publish(&routing("quick", "/yes/.test(trigger.text)")).await;
    let first = server.execute("stuck", &json!({})).await;
    server.ended(&first).await;
    for _ in 0..12 {
        server.execute("stuck", &json!({})).await;
    }
    answer(&server, "quick", "yes").await;
    // If they held all children, most of them would end before the quick one starts.
    let (_, running) = server.get("/api/v1/executions?workflowId=stuck&status=Running").await;
    let running = running["items"].as_array().expect("items").len();
    assert!(running > 6, "only {running} of 12 are still at it");
}
