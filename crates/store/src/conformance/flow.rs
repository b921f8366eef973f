//! Flow control: places, rates, merged starts and unique keys, whatever process starts or ends the runs.

use super::*;
use crate::{
    definitions::{Enablement, Lifecycle, VersionShown},
    flow::{Admission, Admit, Debounce, Flow, FlowStep, Key, PLACES, Place, Rate},
    runs::RunMessage,
};

fn key(name: &str) -> Key {
    Key {
        key: name.to_owned(),
        value: name.to_owned(),
    }
}

fn place(name: &str, limit: u32) -> Place {
    Place {
        key: key(name),
        limit,
        version: 1,
        refuse: false,
        tenant: false,
    }
}

fn places(places: Vec<Place>) -> Flow {
    Flow {
        places,
        ..Flow::default()
    }
}

fn run_with(flow: Flow) -> NewRun {
    NewRun {
        flow: Some(Box::new(flow)),
        priority: None,
        ..new_run(&Uuid::now_v7().to_string())
    }
}

/// The same, started in the process of [`ME`].
fn local(flow: Flow) -> NewRun {
    NewRun {
        local_start: Some(LocalStart {
            runner: ME,
            events: started(),
            started_at: at(100),
            waits: vec![open("w", &Uuid::now_v7().to_string())],
        }),
        ..run_with(flow)
    }
}

async fn enqueue(store: &Arc<dyn Store>, run: NewRun) -> (RunId, Enqueued) {
    let id = run.id;
    (id, store.enqueue(run).await.unwrap())
}

/// Starts a local run that must get its places.
async fn begun(store: &Arc<dyn Store>, flow: Flow) -> RunId {
    let (run, answer) = enqueue(store, local(flow)).await;
    assert_eq!(answer, Enqueued::Created);
    run
}

/// Starts a run that must wait.
async fn waits(store: &Arc<dyn Store>, flow: Flow) -> RunId {
    let (run, answer) = enqueue(store, local(flow)).await;
    assert_eq!(answer, Enqueued::Waiting);
    run
}

async fn ended(store: &Arc<dyn Store>, run: RunId, epoch: u64) {
    let seq = store.load(run).await.unwrap().unwrap().journal.len() as u32 + 1;
    committed(store, end(run, epoch, seq, Status::Succeeded)).await;
}

/// The runs that a claim takes; the claim comes from another process than [`ME`].
async fn due(store: &Arc<dyn Store>, now: i64) -> Vec<StoredRun> {
    store.claim(claim(ME, 100, now)).await.unwrap().runs
}

async fn due_ids(store: &Arc<dyn Store>, now: i64) -> Vec<RunId> {
    due(store, now).await.iter().map(|run| run.id).collect()
}

fn admit(run: &StoredRun, flow: Flow, now: i64) -> Admit {
    Admit {
        run: run.id,
        runner: ME,
        epoch: run.epoch,
        workflow: run.workflow_uid,
        flow,
        limit: None,
        at: at(now),
    }
}

/// No more runs than the limit hold a place; the others are stored, not held, and never due.
pub async fn places_are_limited(store: &Subject) {
    activate(store, WORKFLOW).await;
    let flow = places(vec![place("k", 2)]);
    let first = begun(store, flow.clone()).await;
    begun(store, flow.clone()).await;
    let third = waits(store, flow.clone()).await;
    let other = begun(store, places(vec![place("other", 2)])).await;
    let stored = store.load(third).await.unwrap().unwrap();
    assert_eq!(
        (stored.status, stored.owner, stored.journal.len()),
        (Status::Pending, None, 0)
    );
    let waiting = stored.flow.unwrap();
    assert_eq!((waiting.waiting.as_deref(), waiting.held), (Some("k"), 0));
    assert!(
        store.waits(third).await.unwrap().is_empty(),
        "the first commit was dropped"
    );
    assert_eq!(store.run(third).await.unwrap().unwrap().wake_at, None);
    assert_eq!(due_ids(store, i64::MAX).await, []);
    ended(store, other, 1).await;
    assert_eq!(due_ids(store, i64::MAX).await, [], "the place of another key was freed");
    ended(store, first, 1).await;
    let claimed = due(store, 300).await;
    assert_eq!(claimed.iter().map(|run| run.id).collect::<Vec<_>>(), [third]);
    assert!(claimed[0].flow.as_ref().unwrap().is_admitted());
    waits(store, flow).await;
}

/// A place goes to the run of the highest priority that waits, and of these to the oldest.
pub async fn places_are_handed_over_in_order(store: &Subject) {
    activate(store, WORKFLOW).await;
    let flow = places(vec![place("k", 1)]);
    let holder = begun(store, flow.clone()).await;
    let mut order = Vec::new();
    for priority in [None, Some(3), None, Some(3), Some(-1)] {
        let run = NewRun {
            priority,
            ..run_with(flow.clone())
        };
        let (id, answer) = enqueue(store, run).await;
        assert_eq!(answer, Enqueued::Waiting);
        order.push(id);
    }
    for (ahead, at) in [1, 3, 0, 2, 4].into_iter().enumerate() {
        assert_eq!(store.ahead(order[at]).await.unwrap(), Some(ahead as u32));
    }
    assert_eq!(store.ahead(holder).await.unwrap(), None);
    ended(store, holder, 1).await;
    for at in [1, 3, 0, 2, 4] {
        assert_eq!(due_ids(store, 1000).await, [order[at]]);
        ended(store, order[at], 1).await;
    }
    assert_eq!(due_ids(store, i64::MAX).await, []);
    begun(store, flow).await;
}

/// A run with two keys waits for the second while it holds the first.
pub async fn two_keys_are_taken_in_order(store: &Subject) {
    activate(store, WORKFLOW).await;
    let both = places(vec![place("document", 1), place("tenant", 1)]);
    let tenant = begun(store, places(vec![place("tenant", 1)])).await;
    let first = waits(store, both.clone()).await;
    let second = waits(store, both.clone()).await;
    let keys = async |run| {
        let flow = store.load(run).await.unwrap().unwrap().flow.unwrap();
        (flow.held, flow.waiting)
    };
    assert_eq!(keys(first).await, (1, Some("tenant".to_owned())));
    assert_eq!(keys(second).await, (0, Some("document".to_owned())));
    ended(store, tenant, 1).await;
    assert_eq!(due_ids(store, 1000).await, [first]);
    ended(store, first, 1).await;
    let claimed = due(store, 1000).await;
    assert_eq!(claimed[0].id, second);
    assert!(
        !claimed[0].flow.as_ref().unwrap().is_admitted(),
        "it has not asked for the second place"
    );
    let answer = store.admit(admit(&claimed[0], Flow::default(), 1000)).await.unwrap();
    assert_eq!(answer, Admission::Admitted);
    assert_eq!(keys(second).await, (2, None));
    waits(store, both).await;
}

/// Runs of a paused workflow wait, also those that were due or had a place; their places go to others. A resume makes them due in
/// batches, in order. A pause that is lifted while a run is stored is found by the sweep.
pub async fn paused_workflows_make_runs_wait(store: &Subject) {
    activate(store, WORKFLOW).await;
    let set_paused = async |paused: bool| {
        let change = Enablement {
            from: vec![Lifecycle::Active],
            status: None,
            enabled: None,
            version: None,
            paused: Some(paused),
        };
        let changed = store.set_enablement(uid(WORKFLOW), change, at(150)).await.unwrap();
        assert_eq!(changed.unwrap().0.paused_at, paused.then_some(at(150)));
    };
    let limited = places(vec![place("k", 1)]);
    let holder = begun(store, limited.clone()).await;
    let second = waits(store, limited.clone()).await;
    let (due_before, _) = enqueue(store, new_run("due")).await;
    set_paused(true).await;
    // Runs that have not begun ask at their claim.
    ended(store, holder, 1).await;
    let mut claimed = due(store, 240).await;
    claimed.sort_by_key(|run| run.id);
    assert_eq!(
        claimed.iter().map(|run| run.id).collect::<Vec<_>>(),
        [second, due_before]
    );
    for run in &claimed {
        let answer = store.admit(admit(run, Flow::default(), 240)).await.unwrap();
        assert_eq!(answer, Admission::Waits);
    }
    let flow = store.load(second).await.unwrap().unwrap().flow.unwrap();
    assert_eq!((flow.held, flow.is_paused()), (0, true));
    let local_run = NewRun {
        local_start: local(Flow::default()).local_start,
        ..new_run("local")
    };
    let (third, answer) = enqueue(store, local_run).await;
    assert_eq!(answer, Enqueued::Waiting);
    let urgent = NewRun {
        priority: Some(9),
        ..new_run("urgent")
    };
    let (urgent, answer) = enqueue(store, urgent).await;
    assert_eq!(answer, Enqueued::Waiting);
    // The urgent one and the one that was due; the second has no priority.
    assert_eq!(store.ahead(third).await.unwrap(), Some(2));
    assert_eq!(due_ids(store, i64::MAX).await, []);
    store.sweep_flow(None, 100, at(250)).await.unwrap();
    assert_eq!(
        store.release_paused(uid(WORKFLOW), 10, at(250)).await.unwrap(),
        0,
        "it is paused"
    );
    assert_eq!(due_ids(store, i64::MAX).await, []);
    set_paused(false).await;
    assert_eq!(store.release_paused(uid(WORKFLOW), 1, at(300)).await.unwrap(), 1);
    assert_eq!(due_ids(store, 300).await, [urgent]);
    store.sweep_flow(None, 100, at(400)).await.unwrap();
    let mut claimed = due(store, 400).await;
    claimed.sort_by_key(|run| run.id);
    assert_eq!(
        claimed.iter().map(|run| run.id).collect::<Vec<_>>(),
        [second, due_before, third]
    );
    for run in &claimed {
        let answer = store.admit(admit(run, Flow::default(), 400)).await.unwrap();
        assert_eq!(answer, Admission::Admitted, "the place is free");
    }
    waits(store, limited).await;
}

/// A refused start stores nothing.
pub async fn full_keys_refuse(store: &Subject) {
    activate(store, WORKFLOW).await;
    let mut refusing = place("k", 1);
    refusing.refuse = true;
    let flow = places(vec![refusing]);
    let holder = begun(store, flow.clone()).await;
    let (refused, answer) = enqueue(store, local(flow.clone())).await;
    assert_eq!(answer, Enqueued::Full);
    assert!(store.load(refused).await.unwrap().is_none());
    ended(store, holder, 1).await;
    begun(store, flow).await;
}

/// A place belongs to the run: a lost lease does not free it, and the runner that takes over frees it at the end.
pub async fn take_over_keeps_the_place(store: &Subject) {
    activate(store, WORKFLOW).await;
    let flow = places(vec![place("k", 1)]);
    let holder = begun(store, flow.clone()).await;
    let waiting = waits(store, flow).await;
    let other = runner();
    store.heartbeat(&described(other), at(900)).await.unwrap();
    let mut takes_over = claim(other, 10, 1000);
    takes_over.dead_before = Some(at(900));
    let taken = store.claim(takes_over).await.unwrap().runs;
    assert_eq!(taken.iter().map(|run| run.id).collect::<Vec<_>>(), [holder]);
    assert!(taken[0].flow.as_ref().unwrap().is_admitted());
    assert_eq!(due_ids(store, i64::MAX).await, []);
    assert_eq!(
        store.commit(end(holder, 1, 2, Status::Failed)).await,
        CommitAnswer::Fenced
    );
    assert_eq!(due_ids(store, i64::MAX).await, [], "a fenced end frees nothing");
    let mut ends = end(holder, 2, 2, Status::Failed);
    ends.runner = other;
    committed(store, ends).await;
    assert_eq!(due_ids(store, 1000).await, [waiting]);
}

/// A cancel wakes a run that waits. Its end gives back what it had and nothing else.
pub async fn cancelled_waiters_give_nothing_back(store: &Subject) {
    activate(store, WORKFLOW).await;
    let flow = places(vec![place("k", 1)]);
    let holder = begun(store, flow.clone()).await;
    let (first, second) = (waits(store, flow.clone()).await, waits(store, flow.clone()).await);
    store.deliver(first, RunMessage::ChildrenEnded, at(150)).await.unwrap();
    assert_eq!(due_ids(store, 1000).await, [], "only a cancel wakes it");
    let reason = "no".to_owned();
    store
        .deliver(first, RunMessage::Cancel { reason }, at(200))
        .await
        .unwrap();
    assert_eq!(due_ids(store, 1000).await, [first]);
    ended(store, first, 1).await;
    assert_eq!(due_ids(store, i64::MAX).await, [], "it had no place");
    waits(store, flow).await;
    ended(store, holder, 1).await;
    assert_eq!(due_ids(store, 1000).await, [second]);
}

/// A run that was stored without asking (by SQL) asks at its first claim.
pub async fn runs_ask_at_their_first_claim(store: &Subject) {
    activate(store, WORKFLOW).await;
    let flow = places(vec![place("k", 1)]);
    let (first, second) = (pending(store, "one").await, pending(store, "two").await);
    let claimed = due(store, 1000).await;
    let [one, two] = &claimed[..] else {
        panic!("{claimed:?}");
    };
    assert_eq!((one.id, two.id), (first, second));
    let mut stranger = admit(one, flow.clone(), 1000);
    stranger.epoch += 1;
    assert_eq!(store.admit(stranger).await.unwrap(), Admission::Fenced);
    assert_eq!(
        store.admit(admit(one, flow.clone(), 1000)).await.unwrap(),
        Admission::Admitted
    );
    assert_eq!(
        store.admit(admit(one, flow.clone(), 1000)).await.unwrap(),
        Admission::Admitted
    );
    assert_eq!(
        store.admit(admit(two, flow.clone(), 1000)).await.unwrap(),
        Admission::Waits
    );
    assert_eq!(
        store.admit(admit(two, flow.clone(), 1000)).await.unwrap(),
        Admission::Fenced
    );
    let stored = store.load(second).await.unwrap().unwrap();
    assert_eq!((stored.owner, stored.takeovers), (None, 0));
    assert_eq!(due_ids(store, i64::MAX).await, []);
    committed(store, end(first, 1, 1, Status::Succeeded)).await;
    let claimed = due(store, 1000).await;
    assert_eq!(claimed[0].id, second);
    assert_eq!(
        store.admit(admit(&claimed[0], flow.clone(), 1000)).await.unwrap(),
        Admission::Admitted
    );
    committed(store, end(second, 2, 1, Status::Succeeded)).await;
    begun(store, flow).await;
}

/// The limit of the active version counts, also for runs that wait already and after a rollback.
pub async fn the_limit_of_the_active_version_counts(store: &Subject) {
    let plan = |limit: u32| format!(r#"{{"v":1,"plan":{{"nodes":[],"flow":{{"concurrency":{{"limit":{limit}}}}}}}}}"#);
    let publish = async |checksum: &str, plan: &str| {
        let draft = draft(WORKFLOW, checksum);
        let saved = match checksum {
            "one" => store.save_draft(draft, new_or_draft(WORKFLOW), None).await,
            _ => {
                store
                    .save_draft(draft, DraftRule::Existing { uid: uid(WORKFLOW) }, None)
                    .await
            }
        };
        saved.unwrap();
        let published = store.publish(uid(WORKFLOW), checksum, plan, ACTIVATE, at(3)).await;
        assert!(matches!(published.unwrap(), Published::Version(_)));
    };
    let sweep = async || store.sweep_flow(None, 100, at(500)).await.unwrap().handed;
    let key = Key::of_workflow(PLACES, uid(WORKFLOW), "acme", "=a", "a".to_owned());
    let start = |version: u32, limit: u32, pinned: bool| NewRun {
        workflow_version: version,
        pinned,
        ..local(places(vec![Place {
            key: key.clone(),
            version,
            ..place("", limit)
        }]))
    };
    let begun = async |run| {
        let (run, answer) = enqueue(store, run).await;
        assert_eq!(answer, Enqueued::Created);
        run
    };
    let waits = async |run| {
        let (run, answer) = enqueue(store, run).await;
        assert_eq!(answer, Enqueued::Waiting);
        run
    };
    publish("one", &plan(1)).await;
    let first = begun(start(1, 1, false)).await;
    let (second, third) = (waits(start(1, 1, false)).await, waits(start(1, 1, false)).await);
    assert_eq!(sweep().await, 0);
    publish("two", &plan(2)).await;
    assert_eq!(sweep().await, 1, "the raised limit gives a place");
    assert_eq!(due_ids(store, 1000).await, [second]);
    let pinned = waits(start(1, 9, true)).await;
    assert_eq!(sweep().await, 0, "a run of another version does not raise the limit");
    // Back to the first version: places are not taken away, and freed until fewer are held.
    let back = Enablement {
        from: vec![Lifecycle::Active],
        status: Some(Lifecycle::Active),
        enabled: None,
        version: Some(VersionShown {
            version: 1,
            display_name: "One".to_owned(),
            description: None,
            dialect: "d".to_owned(),
        }),
        paused: None,
    };
    store.set_enablement(uid(WORKFLOW), back, at(4)).await.unwrap();
    assert_eq!(sweep().await, 0);
    ended(store, first, 1).await;
    assert_eq!(due_ids(store, 1000).await, [], "two were held");
    ended(store, second, 1).await;
    assert_eq!(due_ids(store, 1000).await, [third]);
    // Without the rule nothing is limited.
    let last = waits(start(1, 1, false)).await;
    publish("three", "{}").await;
    assert_eq!(sweep().await, 2);
    let mut due = due_ids(store, 1000).await;
    due.sort();
    assert_eq!(due, [pinned, last]);
    // A start of the active version sets its own limit.
    publish("four", &plan(5)).await;
    waits(start(4, 3, false)).await;
}

/// Runs of one workflow that wait are made due, some at a time. They keep waiting if they are not ended.
pub async fn waiting_runs_are_woken(store: &Subject) {
    activate(store, WORKFLOW).await;
    activate(store, "other").await;
    let mine = Key::of_workflow(PLACES, uid(WORKFLOW), "", "=", String::new());
    let theirs = Key::of_workflow(PLACES, uid("other"), "", "=", String::new());
    let tenant = Key::of_tenant("acme");
    let flow = |key: &Key| {
        places(vec![Place {
            key: key.clone(),
            ..place("", 1)
        }])
    };
    let other = |key: &Key| NewRun {
        workflow_uid: uid("other"),
        workflow_id: "other".to_owned(),
        ..local(flow(key))
    };
    let holder = begun(store, flow(&mine)).await;
    begun(store, flow(&tenant)).await;
    enqueue(store, other(&theirs)).await;
    let waiting = [
        waits(store, flow(&mine)).await,
        waits(store, flow(&mine)).await,
        waits(store, flow(&tenant)).await,
    ];
    let (_, answer) = enqueue(store, other(&theirs)).await;
    assert_eq!(answer, Enqueued::Waiting);
    assert_eq!(enqueue(store, other(&tenant)).await.1, Enqueued::Waiting);
    let wake = async || store.wake_waiting(uid(WORKFLOW), 2, at(500)).await.unwrap();
    assert_eq!((wake().await, wake().await, wake().await), (2, 1, 0));
    let claimed = due(store, 1000).await;
    let mut ids: Vec<RunId> = claimed.iter().map(|run| run.id).collect();
    ids.sort();
    assert_eq!(ids, waiting);
    // One that is not ended waits again, and keeps its position.
    let first = claimed.iter().find(|run| run.id == waiting[0]).unwrap();
    let answer = store.admit(admit(first, Flow::default(), 1000)).await.unwrap();
    assert_eq!(answer, Admission::Waits);
    assert_eq!(store.ahead(waiting[0]).await.unwrap(), Some(0));
    ended(store, waiting[1], 1).await;
    ended(store, holder, 1).await;
    assert_eq!(due_ids(store, 1000).await, [waiting[0]]);
}

/// While a run with a unique key has not ended, starts are answered with it, also if they are sent again later.
pub async fn unique_keys_have_one_run(store: &Subject) {
    activate(store, WORKFLOW).await;
    let flow = Flow {
        unique: Some(key("u")),
        ..Flow::default()
    };
    let first = begun(store, flow.clone()).await;
    let again = local(flow.clone());
    let (request, status) = (again.request_id.clone(), Status::Running);
    assert_eq!(enqueue(store, again).await.1, Enqueued::Existing { run: first, status });
    ended(store, first, 1).await;
    let repeated = NewRun {
        request_id: request,
        ..local(flow.clone())
    };
    let status = Status::Succeeded;
    assert_eq!(
        enqueue(store, repeated).await.1,
        Enqueued::Existing { run: first, status }
    );
    begun(store, flow).await;
}

/// Starts that follow each other are one run, with the last payload; it begins when no further start came for a time.
pub async fn debounced_starts_are_one_run(store: &Subject) {
    activate(store, WORKFLOW).await;
    let flow = Flow {
        debounce: Some(Debounce {
            key: key("d"),
            quiet_ms: 10,
            max_ms: Some(25),
        }),
        ..Flow::default()
    };
    let start = |now: i64, trigger: &str| NewRun {
        created_at: at(now),
        trigger: trigger.to_owned(),
        spec: None,
        ..local(flow.clone())
    };
    let (first, answer) = enqueue(store, start(1000, "1")).await;
    assert_eq!(answer, Enqueued::Waiting);
    let wake_at = async || store.run(first).await.unwrap().unwrap().wake_at;
    assert_eq!(wake_at().await, Some(at(11_000)));
    let status = Status::Pending;
    let merged = Enqueued::Existing { run: first, status };
    let second = start(9000, "2");
    let request = second.request_id.clone();
    assert_eq!(enqueue(store, second).await.1, merged);
    assert_eq!(wake_at().await, Some(at(19_000)));
    assert_eq!(enqueue(store, start(18_000, "3")).await.1, merged);
    assert_eq!(
        wake_at().await,
        Some(at(26_000)),
        "not later than max after the first start"
    );
    assert_eq!(due_ids(store, 25_999).await, []);
    let claimed = due(store, 26_000).await;
    assert_eq!(
        (claimed[0].id, claimed[0].trigger.as_str(), &claimed[0].spec),
        (first, "3", &None)
    );
    let step = claimed[0].flow.as_ref().unwrap().step;
    assert_eq!(step, FlowStep::Debounce);
    // From its claim on, a start makes another run.
    let (next, answer) = enqueue(store, start(26_500, "4")).await;
    assert_eq!(answer, Enqueued::Waiting);
    assert_ne!(next, first);
    assert_eq!(
        store.admit(admit(&claimed[0], Flow::default(), 26_600)).await.unwrap(),
        Admission::Admitted
    );
    assert_eq!(
        enqueue(store, start(27_000, "5")).await.1,
        Enqueued::Existing { run: next, status }
    );
    let repeated = NewRun {
        request_id: request,
        ..start(28_000, "6")
    };
    assert_eq!(enqueue(store, repeated).await.1, merged, "its requestId was kept");
}

/// Starts beyond the limit of a window begin in a later one.
pub async fn rates_delay_starts(store: &Subject) {
    activate(store, WORKFLOW).await;
    let flow = Flow {
        rate: Some(Rate {
            key: key("r"),
            limit: 2,
            period_ms: 10,
        }),
        ..Flow::default()
    };
    let start = async |now: i64| {
        let run = NewRun {
            created_at: at(now),
            ..local(flow.clone())
        };
        let (id, answer) = enqueue(store, run).await;
        let wake_at = store.run(id).await.unwrap().unwrap().wake_at;
        (answer, wake_at.map(|at| at.0))
    };
    assert_eq!(start(13_000).await, (Enqueued::Created, Some(13_000)));
    assert_eq!(start(14_000).await, (Enqueued::Created, Some(14_000)));
    assert_eq!(start(15_000).await, (Enqueued::Waiting, Some(20_000)));
    assert_eq!(start(16_000).await, (Enqueued::Waiting, Some(20_000)));
    // The sweep keeps windows that have not ended.
    store.sweep_flow(None, 100, at(16_500)).await.unwrap();
    assert_eq!(start(17_000).await, (Enqueued::Waiting, Some(30_000)));
    assert_eq!(start(31_000).await, (Enqueued::Created, Some(31_000)));
    assert_eq!(start(32_000).await, (Enqueued::Waiting, Some(40_000)));
    let claimed = due(store, 20_000).await;
    assert_eq!(claimed.len(), 2);
    for run in &claimed {
        assert_eq!(
            store.admit(admit(run, Flow::default(), 20_000)).await.unwrap(),
            Admission::Admitted
        );
    }
    store.sweep_flow(None, 100, at(60_000)).await.unwrap();
    assert_eq!(start(61_000).await, (Enqueued::Created, Some(61_000)));
}

/// A delayed run asks for a place when its delay ends.
pub async fn delayed_runs_take_places_later(store: &Subject) {
    activate(store, WORKFLOW).await;
    let plain = places(vec![place("k", 1)]);
    let debounced = Flow {
        debounce: Some(Debounce {
            key: key("d"),
            quiet_ms: 1,
            max_ms: None,
        }),
        ..plain.clone()
    };
    let delayed = waits(store, debounced).await;
    let holder = begun(store, plain.clone()).await;
    let claimed = due(store, 5000).await;
    assert_eq!(claimed[0].id, delayed);
    assert_eq!(
        store.admit(admit(&claimed[0], Flow::default(), 5000)).await.unwrap(),
        Admission::Waits
    );
    assert_eq!(due_ids(store, i64::MAX).await, []);
    ended(store, holder, 1).await;
    assert_eq!(due_ids(store, 5000).await, [delayed]);
    waits(store, plain).await;
}

/// A delayed run that is claimed too early is released until its time.
pub async fn delayed_runs_keep_their_time(store: &Subject) {
    activate(store, WORKFLOW).await;
    let flow = Flow {
        debounce: Some(Debounce {
            key: key("d"),
            quiet_ms: 10,
            max_ms: None,
        }),
        ..Flow::default()
    };
    let run = waits(store, flow).await;
    let taken = take(store, run).await;
    assert_eq!(
        store.admit(admit(&taken, Flow::default(), 200)).await.unwrap(),
        Admission::Waits
    );
    assert_eq!(due_ids(store, 10_099).await, []);
    assert_eq!(due_ids(store, 10_100).await, [run]);
}

/// Many processes start and end runs of a few keys; never more than the limit hold one, and all runs end.
pub async fn limits_hold_under_concurrency(store: &Subject) {
    use std::sync::atomic::{AtomicI64, Ordering};
    const LIMIT: u32 = 3;
    const RUNS: usize = 60;
    activate(store, WORKFLOW).await;
    let active: Arc<[AtomicI64; 2]> = Arc::default();
    let left = Arc::new(AtomicI64::new(RUNS as i64));
    let counters = (active.clone(), left.clone());
    let drive = move |run: RunId, epoch: u64, of: usize, store: Arc<dyn Store>, runner: RunnerId| {
        let (active, left) = counters.clone();
        async move {
            let now = active[of].fetch_add(1, Ordering::SeqCst) + 1;
            assert!(now <= i64::from(LIMIT), "{now} runs of key {of} at once");
            tokio::task::yield_now().await;
            active[of].fetch_sub(1, Ordering::SeqCst);
            let mut ends = end(run, epoch, 1, Status::Succeeded);
            (ends.runner, ends.events) = (runner, Vec::new());
            committed(&store, ends).await;
            left.fetch_sub(1, Ordering::SeqCst);
        }
    };
    let mut tasks = Vec::new();
    for of in 0..2 {
        for _ in 0..3 {
            let (store, drive, runner) = ((**store).clone(), drive.clone(), runner());
            tasks.push(tokio::spawn(async move {
                for _ in 0..RUNS / 6 {
                    let mut run = local(places(vec![place(&format!("k{of}"), LIMIT)]));
                    if let Some(start) = &mut run.local_start {
                        (start.runner, start.events) = (runner, Vec::new());
                    }
                    let (id, answer) = enqueue(&store, run).await;
                    match answer {
                        Enqueued::Created => drive(id, 1, of, store.clone(), runner).await,
                        Enqueued::Waiting => {}
                        other => panic!("{other:?}"),
                    }
                }
            }));
        }
    }
    for _ in 0..2 {
        let (store, drive, runner, left) = ((**store).clone(), drive.clone(), runner(), left.clone());
        tasks.push(tokio::spawn(async move {
            for _ in 0..100_000 {
                if left.load(Ordering::SeqCst) == 0 {
                    return;
                }
                store.sweep_flow(None, 100, at(1000)).await.unwrap();
                for run in store.claim(claim(runner, 4, i64::MAX)).await.unwrap().runs {
                    let flow = run.flow.as_ref().unwrap();
                    assert!(flow.is_admitted(), "{flow:?}");
                    let of = usize::from(flow.flow.places[0].key.key == "k1");
                    drive(run.id, run.epoch, of, store.clone(), runner).await;
                }
                tokio::task::yield_now().await;
            }
            panic!("some runs never got a place");
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    for of in 0..2 {
        for _ in 0..LIMIT {
            begun(store, places(vec![place(&format!("k{of}"), LIMIT)])).await;
        }
        waits(store, places(vec![place(&format!("k{of}"), LIMIT)])).await;
    }
}
