//! The raw limit: the rows of real runs, sent to the same committer without an engine.
//!
//! The rows are realistic: an engine executes one run of the workload on the memory store, its rows are read back, and copies of them
//! with new ids are written.

use super::load::{Bench, THREE, repeat, three_steps};
use anyhow::Context;
use fermata_core::{Event, RunId, RunnerId, decode};
use fermata_runtime::{
    Request, Settings,
    clock::{Clock, SystemClock},
};
use fermata_store::{
    Store,
    memory::MemoryStore,
    reads::{RunRecord, Window},
    runners::Runner,
    runs::{Attempt, CommitAnswer, Enqueued, LocalStart, NewRun, RunCommit, StatusChange, Then},
};
use serde_json::json;
use std::{sync::Arc, time::Duration};
use uuid::Uuid;

/// Longer than any benchmark takes.
const LONG: Duration = Duration::from_secs(86_400);

/// The writes of one run.
pub(super) struct Sample {
    pub new_run: NewRun,
    pub commits: Vec<RunCommit>,
}

impl Sample {
    /// The same run with another id, of the workflow with this uid.
    pub fn copy(&self, runner: RunnerId, workflow_uid: Uuid) -> NewRun {
        let mut new = self.new_run.clone();
        new.workflow_uid = workflow_uid;
        new.id = RunId(Uuid::now_v7());
        if let Some(local_start) = &mut new.local_start {
            local_start.runner = runner;
        }
        new.request_id = Uuid::now_v7().to_string();
        new
    }
}

/// The writes of one three-step run.
pub(super) async fn sample() -> anyhow::Result<Arc<Sample>> {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let bench = Bench::on(store.clone(), Settings::default(), None)?;
    bench.publish(&three_steps()).await?;
    let request = Request {
        workflow_id: THREE.to_owned(),
        trigger: json!({}),
        ..Request::default()
    };
    let (accepted, ended) = bench.engine.start_and_wait(request, super::PATIENCE).await?;
    ended.context("the sample run did not end")?;
    let all = Window { limit: 100, offset: 0 };
    let record = store.run(accepted.run).await?.context("the sample run is gone")?;
    let (actions, _) = store.actions(accepted.run, all).await?;
    let (rows, _) = store.events(accepted.run, all).await?;
    let journal = rows
        .iter()
        .map(|row| decode(&row.data))
        .collect::<Result<Vec<_>, _>>()?;
    let (first, later) = journal.split_first().context("the sample run has no journal")?;
    let commits = (2..)
        .zip(later)
        .map(|(seq, events)| commit_of(&record, &actions, seq, events));
    Ok(Arc::new(Sample {
        commits: commits.collect(),
        new_run: new_run_of(&record, first),
    }))
}

fn new_run_of(record: &RunRecord, first: &[Event]) -> NewRun {
    NewRun {
        id: record.id,
        workflow_uid: record.workflow_uid,
        workflow_id: record.workflow_id.clone(),
        workflow_version: record.workflow_version,
        pinned: false,
        tenant: record.tenant.clone(),
        request_id: record.request_id.clone(),
        trigger: record.trigger.clone(),
        spec: record.spec.clone(),
        priority: record.priority,
        correlation_id: record.correlation_id.clone(),
        traceparent: None,
        request: None,
        delivery: None,
        principal: record.principal.clone(),
        parent: None,
        created_at: record.created_at,
        flow: None,
        rerun: None,
        fields: Vec::new(),
        local_start: Some(LocalStart {
            runner: RunnerId(Uuid::nil()),
            events: first.to_vec(),
            started_at: record.created_at,
            waits: Vec::new(),
        }),
    }
}

fn commit_of(record: &RunRecord, actions: &[Attempt], seq: u32, events: &[Event]) -> RunCommit {
    let finished = |action: &&Attempt| {
        events
            .iter()
            .any(|event| matches!(event, Event::Finished { node, .. } if *node == action.node))
    };
    let attempts = actions.iter().filter(finished).map(|action| Attempt {
        node: action.node.clone(),
        attempt: action.attempt,
        action_type: action.action_type.clone(),
        status: action.status,
        parameters: action.parameters.clone(),
        outputs: action.outputs.clone(),
        error: action.error.clone(),
        started_at: action.started_at,
        ended_at: action.ended_at,
        reused_from: None,
    });
    let ended = events.iter().any(|event| matches!(event, Event::Ended { .. }));
    RunCommit {
        run: record.id,
        runner: RunnerId(Uuid::nil()),
        epoch: 1,
        seq,
        at: record.created_at,
        events: events.to_vec(),
        attempts: attempts.collect(),
        links: Vec::new(),
        waits: Vec::new(),
        children_seen: Vec::new(),
        messages_seen: 0,
        status: ended.then(|| StatusChange {
            status: record.status,
            started_at: None,
            ended_at: record.ended_at,
            reason: record.reason.clone(),
            error: record.error.clone(),
            outputs: record.outputs.clone(),
            context_snapshot: record.context_snapshot.clone(),
        }),
        dead_letter: None,
        usage: None,
        state: None,
        then: Then::Keep,
    }
}

/// Writes the rows of `runs` runs, `concurrency` runs at a time. Returns runs per second.
pub(super) async fn write(
    store: &Arc<dyn Store>,
    sample: &Arc<Sample>,
    runs: usize,
    concurrency: usize,
) -> anyhow::Result<f64> {
    let runner = RunnerId(Uuid::now_v7());
    let me = Runner {
        id: runner,
        host: String::new(),
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        role: "bench".to_owned(),
        public_url: String::new(),
        started_at: SystemClock.now(),
    };
    // An engine on the same store would take over runs of a runner without heartbeats.
    let alive_until = SystemClock.now().plus_millis(LONG.as_millis() as u64);
    store.heartbeat(&me, alive_until).await?;
    let workflow = store
        .workflow("", THREE)
        .await?
        .context("the workflow is not published")?
        .uid;
    let (rows, sample) = (store.clone(), sample.clone());
    let all = repeat(runs, concurrency, move || {
        let (store, sample) = (rows.clone(), sample.clone());
        async move { write_one(store.as_ref(), &sample, runner, workflow).await }
    });
    let all = all.await?;
    store.retire(runner).await?;
    Ok(all.per_second())
}

/// All writes of a run are sent before the first is answered. The committer keeps their order.
async fn write_one(store: &dyn Store, sample: &Sample, runner: RunnerId, workflow: Uuid) -> anyhow::Result<()> {
    let new = sample.copy(runner, workflow);
    let id = new.id;
    let commits = sample.commits.iter().map(|commit| {
        let mut commit = commit.clone();
        (commit.run, commit.runner) = (id, runner);
        store.commit(commit)
    });
    let (enqueued, answers) = futures::join!(store.enqueue(new), futures::future::join_all(commits));
    anyhow::ensure!(enqueued? == Enqueued::Created, "a raw run was not created");
    let all = answers
        .iter()
        .all(|answer| matches!(answer, CommitAnswer::Committed { .. }));
    anyhow::ensure!(all, "a raw commit was refused: {answers:?}");
    Ok(())
}
