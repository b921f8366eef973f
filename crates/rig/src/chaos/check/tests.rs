//! Each rule holds for a correct run, and is reported for a run that breaks it.

use super::*;
use crate::chaos::{
    evidence::{AttemptRow, Change, Effect, Heartbeat, Leased, Note, WaitRow, Written},
    workflows,
};
use fermata_core::{Failure, Outcome, Output, Status, Timestamp, code, encode};
use serde_json::{Value, json};

const LEASE: Duration = Duration::from_secs(2);
const SECOND: Micros = 1_000_000;

fn id(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

const RUN: u128 = 7;
const ONE: u128 = 101;
const TWO: u128 = 102;

fn rules() -> Rules {
    Rules::new(&workflows::all("http://127.0.0.1:1"), LEASE)
}

fn opened(node: &str) -> Event {
    Event::Opened {
        node: node.into(),
        at: Timestamp(0),
        until: None,
        verdict: None,
    }
}

fn finished(node: &str) -> [Event; 2] {
    let outcome = Outcome::Succeeded(Output::EMPTY);
    let (attempt, taken, verdicts) = (1, vec![0], Vec::new());
    let node = || node.into();
    [
        Event::Finished {
            node: node(),
            attempt,
            outcome,
            chosen: None,
            skipped: None,
            queued_ms: None,
        },
        Event::Routed {
            node: node(),
            taken,
            verdicts,
        },
    ]
}

/// The journal of a run of `chain`, row by row.
fn journal() -> Vec<Vec<Event>> {
    let started = Event::Started {
        at: Timestamp(0),
        deadline: None,
        vars: json!({}),
    };
    let ended = Event::Ended {
        at: Timestamp(0),
        status: Status::Succeeded,
        reason: None,
        missing_outputs: Vec::new(),
    };
    let mut rows = vec![vec![started, opened("one")]];
    for (node, next) in [("one", "two"), ("two", "three")] {
        rows.push(finished(node).into_iter().chain([opened(next)]).collect());
    }
    rows.push(finished("three").into_iter().chain([ended]).collect());
    rows
}

fn attempt(node: &str, call: u64) -> AttemptRow {
    AttemptRow {
        node: node.to_owned(),
        attempt: 1,
        status: "Succeeded".to_owned(),
        outputs: Some(json!({ "status": 200, "body": { "call": call } })),
        error: None,
        began: true,
    }
}

/// A recorded attempt with the response to a call.
pub(super) fn attempt_of(node: &str, call: u64) -> AttemptRow {
    attempt(node, call)
}

/// A call at this time.
pub(super) fn effect_at(call: u64, at: Micros) -> Effect {
    Effect {
        at,
        ..effect("one", call)
    }
}

/// The rows of a run that succeeded.
pub(super) fn finished_run(workflow: &str) -> RunRows {
    let mut runs = good().runs;
    let rows = runs.pop_first().map(|(_, rows)| rows);
    RunRows {
        workflow: workflow.to_owned(),
        ..rows.expect("a run")
    }
}

fn effect(node: &str, call: u64) -> Effect {
    let key = match node {
        "two" => format!("{}:two:1", id(RUN)),
        _ => format!("{}:{node}", id(RUN)),
    };
    Effect {
        call,
        at: call as Micros * SECOND,
        run: id(RUN).to_string(),
        node: node.to_owned(),
        attempt: 1,
        key,
        body: json!({ "order": 1, "from": node }),
        answered: 200,
    }
}

/// A change of the run's row by the process `who`, this many milliseconds after the start.
fn change(millis: Micros, who: &str, from: (Option<&str>, Option<u128>, i64), to: (&str, Option<u128>, i64)) -> Change {
    Change {
        at: millis * 1000,
        who: who.to_owned(),
        run: id(RUN),
        old_status: from.0.map(str::to_owned),
        status: to.0.to_owned(),
        old_owner: from.1.map(id),
        owner: to.1.map(id),
        old_epoch: from.2,
        epoch: to.2,
        began: millis * 1000,
    }
}

/// A run that was created by `api`, claimed by `one`, and taken over by `two`, which ended it.
fn good() -> Evidence {
    let rows = journal();
    let run = RunRows {
        workflow: "chain".to_owned(),
        request: "order-1".to_owned(),
        tenant: String::new(),
        status: Status::Succeeded,
        trigger: json!({ "order": 1 }),
        reason: None,
        end_time: Some(20 * SECOND),
        owner: None,
        epoch: 2,
        wake_at: None,
        unread: 0,
        journal: (1..).zip(rows.iter().map(|row| encode(row))).collect(),
        attempts: vec![attempt("one", 1), attempt("three", 4), attempt("two", 3)],
        waits: Vec::new(),
        parent: None,
        outputs: None,
        messages: 0,
        dead_letters: 0,
    };
    let written = |who: &str, seq, owner, epoch| Written {
        at: Micros::from(seq) * SECOND,
        who: who.to_owned(),
        run: id(RUN),
        seq,
        owner: Some(id(owner)),
        epoch,
    };
    Evidence {
        notes: vec![started("order-1", RUN), started("order-1", RUN)],
        // The response to the second call was lost with `one`.
        effects: [("one", 1), ("two", 2), ("two", 3), ("three", 4)]
            .map(|(node, call)| effect(node, call))
            .into(),
        runs: [(id(RUN), run)].into(),
        changes: vec![
            change(0, "api", (None, None, 0), ("Pending", None, 0)),
            change(100, "one", (Some("Pending"), None, 0), ("Pending", Some(ONE), 1)),
            change(200, "one", (Some("Pending"), Some(ONE), 1), ("Running", Some(ONE), 1)),
            change(2900, "two", (Some("Running"), Some(ONE), 1), ("Running", Some(TWO), 2)),
            change(4900, "two", (Some("Running"), Some(TWO), 2), ("Succeeded", None, 2)),
        ],
        written: vec![
            written("one", 1, ONE, 1),
            written("one", 2, ONE, 1),
            written("two", 3, TWO, 2),
            written("two", 4, TWO, 2),
        ],
        runners: [(id(ONE), "one".to_owned()), (id(TWO), "two".to_owned())].into(),
        heartbeats: [(id(ONE), heartbeats(&[0]))].into(),
        leased: Vec::new(),
        deliveries: Vec::new(),
        stops: 0,
    }
}

/// A closed wait.
fn wait(node: &str) -> WaitRow {
    WaitRow {
        node: node.to_owned(),
        attempt: 1,
        open: false,
        payload: None,
        item: None,
        lease: None,
    }
}

/// The database recorded them when they were sent.
fn heartbeats(millis: &[Micros]) -> Vec<Heartbeat> {
    let beat = |millis: &Micros| Heartbeat {
        at: millis * 1000,
        reported: millis * 1000,
    };
    millis.iter().map(beat).collect()
}

fn started(request: &str, run: u128) -> Note {
    Note::Started {
        at: 0,
        request: request.to_owned(),
        tenant: String::new(),
        workflow: "chain".to_owned(),
        run: id(run).to_string(),
        by: "api".to_owned(),
    }
}

/// The rules that are broken after a change of the evidence.
fn broken(breaks: impl FnOnce(&mut Evidence)) -> Vec<Rule> {
    let mut evidence = good();
    breaks(&mut evidence);
    let mut rules: Vec<Rule> = rules().check(&evidence).iter().map(|found| found.rule).collect();
    rules.dedup();
    rules
}

/// Rules for workflows of one node each: `parent` waits for a child run, `child` does nothing, `worked` waits for a worker.
fn small_rules() -> Rules {
    let workflow = |name, dialect, node: Value| workflows::Workflow {
        name,
        dialect,
        document: json!({ "nodes": [node] }),
        ends: &[Status::Succeeded],
        weight: 1,
    };
    use workflows::Dialect::*;
    let parent = json!({ "id": "call", "nodeType": "subworkflow" });
    let child = json!({ "id": "say", "actionType": "core.echo" });
    let all = [
        workflow("parent", DataWorkflows, parent),
        workflow("child", DataWorkflows, child),
        workflow("worked", Jsondagapi, json!({ "id": "do" })),
    ];
    Rules::new(&all, LEASE)
}

/// The rules that are broken in the evidence of runs of these workflows.
pub(super) fn broken_in(evidence: &Evidence) -> Vec<Rule> {
    let mut rules: Vec<Rule> = small_rules().check(evidence).iter().map(|found| found.rule).collect();
    rules.dedup();
    rules
}

/// Adds a run of a workflow with one node, which succeeded with these outputs.
fn add_run(evidence: &mut Evidence, run: Uuid, workflow: &str, node: &str, outputs: Value) {
    let mut journal = journal();
    let mut events: Vec<Event> = vec![journal[0].remove(0), opened(node)];
    events.extend(finished(node));
    events.extend(journal[3].pop());
    let rows = RunRows {
        workflow: workflow.to_owned(),
        request: run.to_string(),
        epoch: 1,
        journal: vec![(1, encode(&events))],
        attempts: vec![AttemptRow {
            outputs: Some(outputs.clone()),
            ..attempt(node, 0)
        }],
        outputs: Some(outputs),
        ..good().runs[&id(RUN)].clone()
    };
    evidence.runs.insert(run, rows);
    evidence.written.push(Written {
        at: SECOND,
        who: "one".to_owned(),
        run,
        seq: 1,
        owner: Some(id(ONE)),
        epoch: 1,
    });
    let changes = [
        change(0, "api", (None, None, 0), ("Pending", None, 0)),
        change(100, "one", (Some("Pending"), None, 0), ("Pending", Some(ONE), 1)),
        change(200, "one", (Some("Pending"), Some(ONE), 1), ("Running", Some(ONE), 1)),
        change(4900, "one", (Some("Running"), Some(ONE), 1), ("Succeeded", None, 1)),
    ];
    evidence
        .changes
        .extend(changes.into_iter().map(|change| Change { run, ..change }));
    evidence.runners.insert(id(ONE), "one".to_owned());
}

/// A run that waited for its child, and the child.
pub(super) fn parent_and_child() -> (Evidence, Uuid, Uuid) {
    let (mut evidence, parent, child) = (Evidence::default(), id(20), id(21));
    add_run(&mut evidence, child, "child", "say", json!({ "n": 1 }));
    let outputs = json!({ "executionId": child.to_string(), "outputs": { "n": 1 } });
    add_run(&mut evidence, parent, "parent", "call", outputs);
    let row = evidence.runs.get_mut(&child).expect("the child");
    row.request = format!("fermata:child:{parent}:call:1");
    row.parent = Some((parent, "call".to_owned()));
    (evidence, parent, child)
}

pub(super) const ITEM: u128 = 31;
pub(super) const LEASE_ID: u128 = 32;

/// A run whose task a worker claimed and completed.
pub(super) fn worked() -> Evidence {
    let (mut evidence, run) = (Evidence::default(), id(30));
    let payload = json!({ "state": { "mark": "a" } });
    add_run(&mut evidence, run, "worked", "do", json!({ "mark": "a" }));
    let (item, lease) = (id(ITEM), id(LEASE_ID));
    evidence.runs.get_mut(&run).expect("the run").waits = vec![WaitRow {
        payload: Some(payload.clone()),
        item: Some(item),
        lease: Some(lease),
        ..wait("do")
    }];
    let sent = 3 * SECOND;
    evidence.notes = vec![
        Note::Claimed {
            at: SECOND,
            tenant: None,
            item,
            lease,
            run,
        },
        Note::Completing {
            item,
            lease,
            payload: payload.clone(),
        },
        Note::Completed {
            sent,
            item,
            lease,
            payload,
        },
    ];
    let claimed = Leased {
        at: SECOND,
        item,
        old_lease: None,
        lease: Some(lease),
        old_until: 0,
        until: 10 * SECOND,
        answered: false,
    };
    let answered = Leased {
        at: sent,
        old_lease: Some(lease),
        old_until: 10 * SECOND,
        answered: true,
        ..claimed
    };
    evidence.leased = vec![claimed, answered];
    evidence
}

fn run_of(evidence: &mut Evidence) -> &mut RunRows {
    evidence.runs.get_mut(&id(RUN)).expect("the run")
}

#[test]
fn a_good_run_is_good() {
    assert_eq!(rules().check(&good()), []);
    assert_eq!(lost_calls(&good()), 1);
}

#[test]
fn starts() {
    assert_eq!(broken(|all| all.notes.push(started("order-2", 8))), [Rule::Lost]);
    assert_eq!(broken(|all| all.notes.push(started("order-2", RUN))), [Rule::Lost]);
    assert!(broken(|all| all.notes.push(started("order-1", 8))).contains(&Rule::SecondRun));
    let twice = broken(|all| {
        let copy = run_of(all).clone();
        all.runs.insert(id(8), copy);
    });
    assert!(twice.contains(&Rule::SecondRun), "{twice:?}");
    let refused = Note::Refused {
        what: "order-3: 404".to_owned(),
    };
    assert_eq!(broken(|all| all.notes.push(refused)), [Rule::Refused]);
}

#[test]
fn ends() {
    let unfinished = |all: &mut Evidence| {
        run_of(all).status = Status::Running;
        run_of(all).journal.pop();
        run_of(all).attempts.remove(1);
        all.changes.pop();
        run_of(all).owner = Some(id(TWO));
    };
    assert!(broken(unfinished).contains(&Rule::Stuck));
    assert_eq!(broken(|all| run_of(all).wake_at = Some(1)), [Rule::Stuck]);
    assert_eq!(broken(|all| run_of(all).messages = 1), [Rule::Stuck]);
    assert_eq!(broken(|all| run_of(all).dead_letters = 1), [Rule::Stuck]);
    let open = WaitRow {
        open: true,
        ..wait("w")
    };
    assert_eq!(broken(|all| run_of(all).waits.push(open)), [Rule::Stuck]);
    assert!(broken(|all| run_of(all).status = Status::Failed).contains(&Rule::WrongEnd));
}

/// The journal with one of its rows changed.
fn with_row(row: usize, change: impl FnOnce(&mut Vec<Event>)) -> Vec<Rule> {
    let mut rows = journal();
    change(&mut rows[row]);
    broken(|all| run_of(all).journal[row].1 = encode(&rows[row]))
}

#[test]
fn histories() {
    assert_eq!(broken(|all| run_of(all).journal[2].0 = 4), [Rule::History]);
    assert!(broken(|all| drop(run_of(all).journal.remove(1))).contains(&Rule::History));
    assert!(broken(|all| run_of(all).journal[1].1 = "{}".to_owned()).contains(&Rule::History));
    assert!(with_row(1, |row| row.extend(finished("one"))).contains(&Rule::History));
    assert!(with_row(3, |row| drop(row.pop())).contains(&Rule::History));
    assert!(with_row(3, |row| row.push(opened("one"))).contains(&Rule::History));
    assert!(with_row(3, |row| drop(row.remove(1))).contains(&Rule::Outcome));
    let back = change(5000, "two", (Some("Succeeded"), None, 2), ("Running", None, 2));
    assert!(broken(|all| all.changes.push(back)).contains(&Rule::History));
}

#[test]
fn outcomes() {
    let twice = |all: &mut Evidence| {
        let again = AttemptRow {
            attempt: 2,
            ..attempt("one", 2)
        };
        run_of(all).attempts.insert(1, again);
    };
    assert!(broken(twice).contains(&Rule::Outcome));
    assert!(broken(|all| drop(run_of(all).attempts.remove(0))).contains(&Rule::Outcome));
    assert!(broken(|all| run_of(all).attempts[0].status = "Failed".to_owned()).contains(&Rule::Outcome));
}

#[test]
fn joins() {
    assert!(with_row(2, |row| row.push(opened("three"))).contains(&Rule::Join));
    assert!(with_row(0, |row| row.push(opened("three"))).contains(&Rule::Join));
}

#[test]
fn leases() {
    assert!(broken(|all| all.changes[3].epoch = 1).contains(&Rule::Epoch));
    assert!(broken(|all| all.changes[4].epoch = 1).contains(&Rule::Epoch));
    assert!(broken(|all| drop(all.changes.remove(2))).contains(&Rule::Epoch));
    assert_eq!(broken(|all| run_of(all).epoch = 1), [Rule::Epoch]);
    // A journal row of a process that had lost its lease.
    assert_eq!(broken(|all| all.written[3].who = "one".to_owned()), [Rule::Zombie]);
    // A terminal status from such a process.
    assert_eq!(broken(|all| all.changes[4].who = "one".to_owned()), [Rule::Zombie]);
    // A claim in the name of another runner.
    assert_eq!(broken(|all| all.changes[1].who = "api".to_owned()), [Rule::Zombie]);
    // The claim began at 2900 and a lease lasts 2000, so a runner with a heartbeat at 900 may keep its runs.
    let lived = |millis: &'static [Micros]| {
        broken(|all| {
            all.heartbeats.insert(id(ONE), heartbeats(millis));
        })
    };
    assert_eq!(lived(&[]), [], "it never sent a heartbeat");
    assert_eq!(lived(&[0, 300, 800]), []);
    assert_eq!(lived(&[0, 900, 1500]), [Rule::Takeover]);
    assert_eq!(lived(&[0, 1500]), [], "who knows when the last one was seen");
    assert_eq!(lived(&[0, 700, 2950]), [], "it came too late");
    assert_eq!(lived(&[0, 1000, 1700, 2950]), [Rule::Takeover]);
}

#[test]
fn clocks() {
    let dated = |seconds: Micros| {
        with_row(2, |row| {
            if let Some(Event::Opened { at, .. }) = row.last_mut() {
                *at = Timestamp(seconds * SECOND);
            }
        })
    };
    assert_eq!(dated(3), []);
    assert_eq!(dated(3600), [Rule::Clock], "a clock that is ahead");
    let mut rows = journal();
    let ends = |rows: &mut Vec<Vec<Event>>, until: Micros| {
        let node = || "one".into();
        let until = Timestamp(until * SECOND);
        rows[0].truncate(2);
        rows[0].push(Event::Slept {
            node: node(),
            until,
            times_out: false,
        });
        let first = encode(&rows[0]);
        broken(|all| run_of(all).journal[0].1 = first)
    };
    assert_eq!(ends(&mut rows, 2), []);
    assert_eq!(ends(&mut rows, 600), [Rule::Clock], "a sleep that ended early");
}

/// A callback may end a wait before its time, a timeout may not.
#[test]
fn clocks_of_waits() {
    let waits = |until: Micros, timed_out: bool| {
        let mut rows = journal();
        if let Some(Event::Opened { until: end, .. }) = rows[0].last_mut() {
            *end = Some(Timestamp(until * SECOND));
        }
        if let (true, Event::Finished { outcome, .. }) = (timed_out, &mut rows[1][0]) {
            *outcome = Outcome::Failed(Failure::permanent(code::WAIT_TIMEOUT, "too late"));
        }
        let found = broken(|all| {
            for (stored, row) in run_of(all).journal.iter_mut().zip(&rows) {
                stored.1 = encode(row);
            }
        });
        found.contains(&Rule::Clock)
    };
    assert!(!waits(600, false), "a callback");
    assert!(!waits(2, true), "a timeout at its time");
    assert!(waits(600, true), "a timeout before its time");
}

/// Calls of a process that was stopped and had lost its runs: a few that were in flight are allowed, more are not.
#[test]
fn late_calls() {
    let late = |all: &mut Evidence| {
        let copies = (1..=LATE_CALLS as u128 + 1).map(|number| id(1000 + number));
        let (run, changes, written) = (run_of(all).clone(), all.changes.clone(), all.written.clone());
        // The lost call came after `two` had taken over.
        let mut effects = all.effects.clone();
        effects[1].at = 3 * SECOND;
        for (place, copy) in copies.enumerate() {
            let mut run = run.clone();
            run.request = format!("order-{place}-late");
            all.runs.insert(copy, run);
            all.changes
                .extend(changes.iter().cloned().map(|change| Change { run: copy, ..change }));
            all.written
                .extend(written.iter().cloned().map(|row| Written { run: copy, ..row }));
            all.effects.extend(effects.iter().cloned().map(|effect| Effect {
                run: copy.to_string(),
                key: effect.key.replace(&id(RUN).to_string(), &copy.to_string()),
                ..effect
            }));
        }
    };
    let stopped = |stops: usize| {
        broken(|all| {
            late(all);
            all.stops = stops;
        })
    };
    assert!(stopped(1).contains(&Rule::Late), "{:?}", stopped(1));
    assert!(!stopped(2).contains(&Rule::Late), "{:?}", stopped(2));
}

#[test]
fn effects() {
    assert_eq!(broken(|all| all.effects[2].body["from"] = "x".into()), [Rule::Effect]);
    assert_eq!(broken(|all| all.effects[0].body["order"] = 2.into()), [Rule::Effect]);
    assert_eq!(broken(|all| all.effects[0].run = id(9).to_string()), [Rule::Effect]);
    assert_eq!(broken(|all| drop(all.effects.remove(0))), [Rule::Effect]);
    assert_eq!(broken(|all| all.effects[3].answered = 503), [Rule::Effect]);
    assert_eq!(
        broken(|all| all.effects.push(effect("two", 5))),
        [Rule::Effect],
        "one too many"
    );
    assert_eq!(
        broken(|all| all.effects.push(effect("three", 5))),
        [Rule::Effect],
        "it opened after the crash"
    );
    assert_eq!(
        broken(|all| all.effects.push(effect("one", 2))),
        [Rule::Effect],
        "its end was recorded before the crash"
    );
    let in_order = |all: &mut Evidence| {
        all.changes[3].old_owner = None;
        all.changes.insert(
            3,
            change(2500, "one", (Some("Running"), Some(ONE), 1), ("Running", None, 1)),
        );
    };
    assert_eq!(broken(in_order), [Rule::Effect], "no process crashed");
    assert_eq!(
        broken(|all| all.effects.push(effect("one", 99))),
        [Rule::Effect],
        "after all faults"
    );
    assert_eq!(broken(|all| all.effects[2].attempt = 2), [Rule::Effect]);
    assert_eq!(broken(|all| run_of(all).attempts[0].outputs = None), [Rule::Effect]);
}

#[test]
fn wrong_paths() {
    let calls = |workflow: &str| {
        let mut evidence = good();
        run_of(&mut evidence).workflow = workflow.to_owned();
        evidence.effects.push(effect("never", 5));
        let found = rules().check(&evidence);
        found
            .iter()
            .any(|found| found.what == "never must not call, and yet did")
    };
    assert!(calls("endless") && calls("mended"));
}

#[test]
fn cancels() {
    let cancelled = |status: &str, at| Note::Cancelled {
        at,
        run: id(RUN).to_string(),
        status: status.to_owned(),
    };
    let answered_with = |status: &'static str, at| broken(move |all| all.notes.push(cancelled(status, at)));
    assert_eq!(answered_with("Succeeded", 30 * SECOND), []);
    assert_eq!(answered_with("Running", 19 * SECOND), [], "it was about to end");
    assert_eq!(answered_with("Running", -20 * SECOND), [Rule::Cancel]);
    assert_eq!(answered_with("Failed", 30 * SECOND), [Rule::Cancel]);
    let unasked = broken(|all| run_of(all).status = Status::Cancelled);
    assert!(unasked.contains(&Rule::Cancel), "{unasked:?}");
}

/// The run with a wait that received `kept`, recorded as `row`.
fn waiting(all: &mut Evidence, kept: &Value, row: AttemptRow) {
    let wait = WaitRow {
        payload: Some(kept.clone()),
        ..wait(&row.node)
    };
    run_of(all).waits.push(wait);
    run_of(all).attempts.push(row);
}

#[test]
fn callbacks() {
    let (run, node) = (id(RUN).to_string(), "w".to_owned());
    let sent = |payload: Value| Note::Calling {
        run: run.clone(),
        node: node.clone(),
        payload,
    };
    let taken = |payload: Value| Note::Called {
        at: 0,
        run: run.clone(),
        node: node.clone(),
        payload,
    };
    let row = |outputs: Value| AttemptRow {
        outputs: Some(outputs),
        ..attempt("w", 0)
    };
    // The journal does not contain this wait, so only this rule is tested.
    let finds = |notes: Vec<Note>, kept: Value, row: AttemptRow| {
        let rules = broken(|all| {
            all.notes.extend(notes);
            waiting(all, &kept, row);
        });
        rules.contains(&Rule::Callback)
    };
    let (a, b) = (json!("a"), json!("b"));
    let both = || vec![sent(a.clone()), sent(b.clone())];
    let with = |note| both().into_iter().chain([note]).collect::<Vec<_>>();
    assert!(!finds(with(taken(a.clone())), a.clone(), row(a.clone())));
    assert!(!finds(both(), b.clone(), row(b.clone())), "an answer was lost");
    assert!(finds(with(taken(a.clone())), b.clone(), row(b.clone())));
    assert!(finds(with(taken(a.clone())), a.clone(), row(b.clone())));
    assert!(finds(both(), json!("c"), row(json!("c"))), "it was not sent");
    assert!(finds(Vec::new(), a.clone(), row(a.clone())), "there was no callback");
    let mut twice = with(taken(a.clone()));
    twice.push(taken(b.clone()));
    assert!(finds(twice, a.clone(), row(a.clone())));
    let timed_out = AttemptRow {
        status: "Failed".to_owned(),
        outputs: None,
        ..row(a.clone())
    };
    assert!(finds(with(taken(a.clone())), a.clone(), timed_out));
}
