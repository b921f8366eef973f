//! The state of long runs: it is not copied for each node, and a large one does not keep other runs from ending.

use crate::support::{Bed, PATIENCE, Scripted, workflow};
use fermata_core::{
    RunId, Status,
    plan::{Name, PlanBuilder, Source},
};
use fermata_runtime::{
    Settings,
    actions::{Action, ActionInfo, Call, Failed, Success},
    inbox::{Given, Reply, Task, TaskClaim},
};
use fermata_store::{inbox::WaitRef, reads::Window};
use serde_json::{Value, json};
use std::sync::Arc;

/// An action that gets the whole state.
struct Reads(Scripted);

#[async_trait::async_trait]
impl Action for Reads {
    fn info(&self) -> &ActionInfo {
        self.0.info()
    }

    fn reads_state(&self, _: &Value) -> bool {
        true
    }

    async fn run(&self, parameters: Value, call: Call) -> Result<Success, Failed> {
        self.0.run(parameters, call).await
    }
}

/// A chain of nodes that write into the state. Each sets the member `last`, and each thousandth one a member of its own.
fn chain(id: &str, nodes: usize, action: &str, condition: Option<&str>) -> PlanBuilder {
    let name = |at: usize| format!("n{at:04}");
    let plan = PlanBuilder::new(id).plan(|plan| plan.scope.names = vec![Name::new("state", Source::State)]);
    (0..nodes).fold(plan, |plan, at| {
        let plan = plan
            .action_with(&name(at), action, json!({ "before": "{{ state.last ?? 'none' }}" }))
            .with(|node| node.merges_into_state = true);
        match at + 1 < nodes {
            true => plan.edge(&name(at + 1), fermata_core::When::Success, condition),
            false => plan,
        }
    })
}

/// The size of everything that is stored of a run.
async fn stored_bytes(bed: &Bed, run: RunId) -> usize {
    let all = Window {
        limit: u32::MAX,
        offset: 0,
    };
    let (attempts, _) = bed.store.actions(run, all).await.unwrap();
    let (events, _) = bed.store.events(run, all).await.unwrap();
    let attempts = attempts.iter().flat_map(|row| [&row.parameters, &row.outputs]);
    let attempts: usize = attempts.map(|text| text.as_ref().map_or(0, String::len)).sum();
    attempts + events.iter().map(|row| row.data.len()).sum::<usize>()
}

/// Each node gets a state of more than 100 KB, and what is stored of it is its position.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chain_of_a_thousand_tasks_does_not_store_its_state_for_each() {
    let task = Scripted::new("test.task", |_, call| {
        let seen = call.state["last"].as_u64().map_or(0, |last| last + 1);
        assert_eq!(call.state["text"].as_str().map(str::len), Some(100_000));
        Ok(json!({ "last": seen }).into())
    });
    let bed = Bed::with(Settings::default(), |registry| {
        registry.with_action(Arc::new(Reads(task)))
    })
    .await;
    let mut sizes = Vec::new();
    for (name, nodes) in [("short", 250), ("long", 1000)] {
        bed.add(name, chain(name, nodes, "test.task", None)).await;
        let run = bed.start_run(name, json!({ "text": "x".repeat(100_000) })).await;
        let ended = bed.engine.wait(run, 4 * PATIENCE).await.unwrap().expect("it ends");
        assert_eq!(ended.status, Status::Succeeded, "{ended:?}");
        let record = bed.store.run(run).await.unwrap().unwrap();
        let outputs: Value = serde_json::from_str(record.outputs.as_deref().unwrap()).unwrap();
        assert_eq!(outputs["last"], nodes - 1);
        sizes.push(stored_bytes(&bed, run).await);
    }
    assert!(
        sizes[1] < 5 * sizes[0],
        "four times as many tasks store {sizes:?} bytes"
    );
    assert!(
        sizes[1] < 1_000_000,
        "the state is stored with the tasks: {sizes:?} bytes"
    );
}

/// Other runs start and end while conditions and actions of a run read a state of 5 MB.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn state_of_five_megabytes_does_not_stall_other_runs() {
    let task = Scripted::new("test.task", |_, call| {
        let number = call.node.as_str()[1..].parse::<usize>().unwrap();
        let text = |at: usize| format!("{at}{}", "x".repeat(1 << 20));
        Ok(json!({ "last": number, format!("k{}", number % 5): text(number) }).into())
    });
    let bed = Bed::with(Settings::default(), |registry| {
        registry.with_action(Arc::new(Reads(task)))
    })
    .await;
    let large = chain("large", 30, "test.task", Some("state.k0.length > 9 && state.last > -1"));
    let large = large.plan(|plan| plan.context.max_context_size_bytes = 100 << 20);
    bed.add("large", large).await;
    let mut other = workflow(json!([{ "id": "say", "actionType": "core.echo", "parameters": { "ok": true } }]));
    other["id"] = json!("other");
    bed.publish(&other).await;
    let run = bed.start_run("large", json!({})).await;
    let mut meanwhile = 0;
    while !bed.store.run(run).await.unwrap().unwrap().status.is_terminal() {
        let plain = bed.start_run("other", json!({})).await;
        assert_eq!(bed.end_of(plain).await.status(), Status::Succeeded);
        meanwhile += 1;
    }
    let left = bed.end_of(run).await;
    assert_eq!(left.status(), Status::Succeeded, "{:?}", left.ended);
    assert!(meanwhile > 20, "only {meanwhile} other runs ended meanwhile");
    assert_eq!(left.attempts("n0029"), [(1, "Succeeded")]);
}

/// A document of tasks in sequence, which workers do.
pub fn tasks(id: &str, count: usize) -> Value {
    let name = |at: usize| format!("t{at:03}");
    let nodes = (0..count).map(|at| json!({ "id": name(at), "type": "task", "executor": { "type": "callback" } }));
    let edges = (1..count).map(|at| json!({ "from": name(at - 1), "to": name(at) }));
    json!({
        "workflow_id": id, "name": id, "version": "1.0.0",
        "nodes": nodes.collect::<Vec<_>>(), "edges": edges.collect::<Vec<_>>(),
    })
}

/// Claims the next task of a queue.
pub async fn claim(engine: &fermata_runtime::Engine, queue: &str) -> Task {
    let claim = TaskClaim {
        queue: queue.to_owned(),
        tenant: None,
        worker: "w".to_owned(),
        limit: 1,
        lease: PATIENCE * 100,
        wait: PATIENCE,
    };
    engine.inbox().claim(claim).await.unwrap().pop().expect("a task")
}

/// Completes a task with these members of the state.
pub async fn complete(engine: &fermata_runtime::Engine, task: &Task, state: Value) {
    let reply = Reply {
        of: WaitRef::Item(task.item.item.id),
        lease: task.item.lease.as_ref().map(|lease| lease.id),
        tenant: None,
        payload: json!({ "state": state }),
        is_json: true,
        by: None,
    };
    let given = engine.inbox().answer(reply).await.unwrap();
    assert!(matches!(given, Given::Accepted { .. }), "{given:?}");
}

/// The run leaves memory while each task waits, and its process is stopped again and again. The state is that of a plain fold,
/// whether it is read from the cached copy or from the outputs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cached_state_is_that_of_the_outputs() {
    const TASKS: usize = 40;
    let place = crate::support::Place::new().await;
    let registry = || fermata_runtime::actions::Registry::builtin(&Default::default()).unwrap();
    let settings = || Settings {
        poll_interval: std::time::Duration::from_millis(20),
        lease_ttl: std::time::Duration::from_millis(600),
        ..Settings::default()
    };
    let mut bed = Bed::on(place.clone(), settings(), registry());
    bed.create(&tasks("chain", TASKS)).await;
    let run = bed.start_run("chain", json!({ "given": 1, "k0": "trigger" })).await;
    let mut expected = json!({ "given": 1, "k0": "trigger" });
    let mut copies = 0;
    for at in 0..TASKS {
        let task = claim(&bed.engine, "chain").await;
        assert_eq!(task.state, expected, "task {at}");
        copies += usize::from(bed.store.cached_state(run).await.unwrap().is_some());
        let written = json!({ format!("k{}", at % 7): at, format!("own{at}"): { "n": at } });
        complete(&bed.engine, &task, written.clone()).await;
        let members = expected.as_object_mut().unwrap();
        members.extend(written.as_object().unwrap().clone());
        if at % 9 == 5 {
            bed.engine.crash();
            bed = Bed::on(place.clone(), settings(), registry());
        }
    }
    let left = bed.end_of(run).await;
    assert_eq!(left.status(), Status::Succeeded, "{:?}", left.ended);
    let members = expected.as_object_mut().unwrap();
    members.remove("given");
    assert_eq!(left.outputs(), expected);
    assert!(
        copies > TASKS / 2,
        "only {copies} tasks were claimed beside a cached state"
    );
    assert_eq!(
        bed.store.cached_state(run).await.unwrap(),
        None,
        "it is removed at the end"
    );
}
