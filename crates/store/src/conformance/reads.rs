//! Reads of runs, attempts, events and links: filters, pages and windows.

use super::{commit::ALL, *};
use crate::{
    definitions::WorkflowFilter,
    reads::{Order, RunFilter, RunPosition, RunRecord, Window},
    runs::{Answer, RunMessage},
};

fn filter(limit: u32) -> RunFilter {
    RunFilter {
        limit,
        ..Default::default()
    }
}

async fn ids(store: &Arc<dyn Store>, filter: RunFilter) -> (Vec<RunId>, bool) {
    let page = store.runs(filter).await.unwrap();
    (page.items.into_iter().map(|run| run.id).collect(), page.next.is_some())
}

/// Each page continues where the last one ended.
pub async fn runs_are_paged_newest_first(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    assert_eq!(ids(store, filter(5)).await, (Vec::new(), false));
    let mut runs = Vec::new();
    for index in 0..5 {
        runs.push(pending(store, &format!("r{index}")).await);
    }
    runs.sort();
    runs.reverse();
    assert_eq!(ids(store, filter(5)).await, (runs.clone(), false));
    assert_eq!(ids(store, filter(2)).await, (runs[..2].to_vec(), true));
    let mut next = filter(2);
    next.before = Some(runs[1]);
    assert_eq!(ids(store, next.clone()).await, (runs[2..4].to_vec(), true));
    next.before = Some(runs[3]);
    assert_eq!(ids(store, next.clone()).await, (runs[4..].to_vec(), false));
    next.before = Some(runs[4]);
    assert_eq!(ids(store, next).await, (Vec::new(), false));
}

/// The same list, oldest run first.
pub async fn runs_are_paged_oldest_first(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let mut runs = Vec::new();
    for index in 0..5 {
        runs.push(pending(store, &format!("r{index}")).await);
    }
    runs.sort();
    let mut page = filter(2);
    page.order = Order::OldestFirst;
    assert_eq!(ids(store, page.clone()).await, (runs[..2].to_vec(), true));
    page.from = Some(runs[2]);
    assert_eq!(ids(store, page.clone()).await, (runs[2..4].to_vec(), true));
    page.before = Some(runs[3]);
    assert_eq!(ids(store, page.clone()).await, (vec![runs[2]], false));
    page.before = Some(runs[2]);
    assert_eq!(ids(store, page.clone()).await, (Vec::new(), false), "an empty range");
    page.before = Some(runs[1]);
    assert_eq!(ids(store, page).await, (Vec::new(), false), "a reversed range");
}

/// Runs of two workflows, three tenants and all statuses, newest first.
async fn mixture(store: &Arc<dyn Store>) -> Vec<RunRecord> {
    activate(store, WORKFLOW).await;
    activate(store, "other").await;
    let mut rows = Vec::new();
    for index in 0..60 {
        let mut run = run_of([WORKFLOW, "other"][index % 2], &format!("R{index}"));
        run.tenant = ["", "acme", "zeta"][index % 3].to_owned();
        run.correlation_id = [None, Some("Trace-1".to_owned())][index % 2].clone();
        run.local_start = (index % 5 != 0).then(|| LocalStart {
            runner: ME,
            events: started(),
            started_at: at(100),
            waits: Vec::new(),
        });
        let id = run.id;
        assert_eq!(store.enqueue(run).await.unwrap(), Enqueued::Created);
        let end_with = [
            None,
            None,
            Some(Status::Succeeded),
            Some(Status::Failed),
            Some(Status::Cancelled),
        ][index % 5];
        if let Some(status) = end_with {
            committed(store, end(id, 1, 2, status)).await;
        }
        rows.push(store.run(id).await.unwrap().unwrap().without_payloads());
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.id));
    rows
}

/// Filters in every combination that matters to a store.
fn filters(rows: &[RunRecord]) -> Vec<RunFilter> {
    let some = |text: &str| Some(text.to_owned());
    let statuses = Status::ALL.map(|status| vec![status]).into_iter();
    let statuses = statuses.chain([
        Vec::new(),
        vec![Status::Failed, Status::Pending, Status::Failed],
        vec![Status::Succeeded, Status::Running],
    ]);
    let mut filters = Vec::new();
    for statuses in statuses {
        for workflow_uid in [None, Some(uid(WORKFLOW)), Some(uid("unknown"))] {
            for tenant in [None, some(""), some("acme")] {
                for (from, before) in [
                    (None, None),
                    (None, Some(rows[30].id)),
                    (Some(rows[50].id), Some(rows[9].id)),
                ] {
                    for search in [None, some("r1"), some("TRACE"), some("100%")] {
                        filters.push(RunFilter {
                            workflows: workflow_uid.into_iter().collect(),
                            statuses: statuses.clone(),
                            tenant: tenant.clone(),
                            search,
                            from,
                            before,
                            limit: 100,
                            ..Default::default()
                        });
                    }
                }
            }
        }
    }
    filters
}

fn fits(filter: &RunFilter, row: &RunRecord) -> bool {
    let contains = |needle: &String| {
        let texts = [
            Some(&row.request_id),
            Some(&row.workflow_id),
            row.correlation_id.as_ref(),
        ];
        let mut texts = texts.into_iter().flatten().map(|text| text.to_lowercase());
        texts.any(|text| text.contains(&needle.to_lowercase()))
    };
    (filter.statuses.is_empty() || filter.statuses.contains(&row.status))
        && (filter.workflows.is_empty() || filter.workflows.contains(&row.workflow_uid))
        && filter.tenant.as_ref().is_none_or(|tenant| *tenant == row.tenant)
        && filter.search.as_ref().is_none_or(contains)
        && filter.from.is_none_or(|from| row.id >= from)
        && filter.before.is_none_or(|before| row.id < before)
}

/// Every combination of filters returns the runs that match all of them.
pub async fn runs_are_filtered(store: &Arc<dyn Store>) {
    let rows = mixture(store).await;
    for mut filter in filters(&rows) {
        let mut expected: Vec<_> = rows.iter().filter(|row| fits(&filter, row)).cloned().collect();
        assert_eq!(store.runs(filter.clone()).await.unwrap().items, expected, "{filter:?}");
        expected.reverse();
        filter.order = Order::OldestFirst;
        assert_eq!(store.runs(filter.clone()).await.unwrap().items, expected, "{filter:?}");
    }
}

/// Over all pages, no run is repeated and none is skipped.
pub async fn pages_of_filtered_runs(store: &Arc<dyn Store>) {
    let rows = mixture(store).await;
    for filter in filters(&rows).into_iter().step_by(7) {
        let expected: Vec<_> = rows.iter().filter(|row| fits(&filter, row)).map(|row| row.id).collect();
        let mut page = filter.clone();
        page.limit = 3;
        let mut seen = Vec::new();
        for _ in 0..=expected.len() / 3 + 1 {
            let answer = store.runs(page.clone()).await.unwrap();
            seen.extend(answer.items.iter().map(|run| run.id));
            match answer.next {
                Some(next) => page.before = Some(next),
                None => break,
            }
        }
        assert_eq!(seen, expected, "{filter:?}");
    }
}

/// Runs are found by correlation id and by request id. The correlation id of a run without one is its own id.
pub async fn runs_by_correlation_and_request(store: &Arc<dyn Store>) {
    let rows = mixture(store).await;
    let mut request = filter(100);
    request.correlation_id = Some("Trace-1".to_owned());
    let of_trace = |row: &&RunRecord| row.correlation_id.is_some();
    let expected: Vec<_> = rows.iter().filter(of_trace).map(|row| row.id).collect();
    assert_eq!(ids(store, request.clone()).await, (expected.clone(), false));
    request.limit = 7;
    assert_eq!(ids(store, request.clone()).await, (expected[..7].to_vec(), true));
    request.before = Some(expected[6]);
    request.statuses = vec![Status::Running, Status::Succeeded];
    let rest: Vec<_> = rows
        .iter()
        .filter(of_trace)
        .filter(|row| row.id < expected[6] && request.statuses.contains(&row.status))
        .map(|row| row.id)
        .collect();
    assert_eq!(ids(store, request).await, (rest[..7].to_vec(), rest.len() > 7));
    let (own, given) = (
        rows.iter().find(|row| row.correlation_id.is_none()).unwrap(),
        expected[0],
    );
    let mut request = filter(9);
    request.correlation_id = Some(own.id.to_string());
    assert_eq!(ids(store, request.clone()).await, (vec![own.id], false));
    request.correlation_id = Some(given.to_string());
    assert_eq!(
        ids(store, request.clone()).await,
        (Vec::new(), false),
        "the run has another correlation id"
    );

    // The same request id of three tenants.
    let mut twins = vec![rows[20].id];
    for tenant in ["", "acme", "zeta", "new"] {
        let mut run = run_of(&rows[20].workflow_id, &rows[20].request_id);
        run.tenant = tenant.to_owned();
        let id = run.id;
        if store.enqueue(run).await.unwrap() == Enqueued::Created {
            twins.push(id);
        }
    }
    assert_eq!(twins.len(), 4);
    twins.sort_by_key(|id| std::cmp::Reverse(*id));
    let mut request = filter(9);
    request.request_id = Some(rows[20].request_id.clone());
    assert_eq!(ids(store, request.clone()).await, (twins.clone(), false));
    request.limit = 2;
    assert_eq!(ids(store, request.clone()).await, (twins[..2].to_vec(), true));
    request.before = Some(twins[1]);
    assert_eq!(ids(store, request.clone()).await, (twins[2..].to_vec(), false));
    request.before = None;
    request.tenant = Some(rows[20].tenant.clone());
    assert_eq!(ids(store, request.clone()).await, (vec![rows[20].id], false));
    request.request_id = Some("unknown".to_owned());
    assert_eq!(ids(store, request).await, (Vec::new(), false));
}

/// Children of a run are listed oldest first, in pages.
pub async fn children_are_found(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (parent, childless) = (pending(store, "parent").await, pending(store, "childless").await);
    let mut children = Vec::new();
    for index in 0..3 {
        let mut run = new_run(&format!("child {index}"));
        run.parent = Some(Parent::of(parent));
        children.push(run.id);
        assert_eq!(store.enqueue(run).await.unwrap(), Enqueued::Created);
    }
    children.sort();
    let list = |run, after, limit| async move {
        let page = store.children(run, after, limit).await.unwrap();
        assert!(
            page.items
                .iter()
                .all(|child| child.parent == Some(run) && child.trigger.is_empty())
        );
        (
            page.items.into_iter().map(|child| child.id).collect::<Vec<_>>(),
            page.more,
        )
    };
    assert_eq!(list(parent, None, 9).await, (children.clone(), false));
    assert_eq!(list(parent, None, 2).await, (children[..2].to_vec(), true));
    assert_eq!(
        list(parent, Some(children[1]), 2).await,
        (children[2..].to_vec(), false)
    );
    assert_eq!(list(childless, None, 9).await, (Vec::new(), false));
    assert_eq!(list(run_id(), None, 9).await, (Vec::new(), false));
}

/// The last attempt of some nodes or of all, and any single attempt.
pub async fn attempts_by_node_and_number(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (run, _) = held_run(store, "r1", Vec::new()).await;
    let mut commit = step(run, 1, 2);
    commit.attempts = vec![
        attempt("b", 1, 10),
        attempt("a", 2, 12),
        attempt("a", 1, 11),
        attempt("a", 10, 13),
    ];
    committed(store, commit).await;
    let last = async |nodes: &[&str]| {
        let nodes: Vec<NodeId> = nodes.iter().map(|node| NodeId::from(*node)).collect();
        let last = store.last_attempts(run, &nodes).await.unwrap();
        last.into_iter()
            .map(|action| (action.node.to_string(), action.attempt))
            .collect::<Vec<_>>()
    };
    assert_eq!(last(&[]).await, [("a".to_owned(), 10), ("b".to_owned(), 1)]);
    assert_eq!(
        last(&["b", "none", "a", "b"]).await,
        [("a".to_owned(), 10), ("b".to_owned(), 1)]
    );
    assert_eq!(last(&["b"]).await, [("b".to_owned(), 1)]);
    assert_eq!(last(&["none"]).await, []);
    let one = store.attempt(run, &"a".into(), 2).await.unwrap().unwrap();
    assert_eq!((one.attempt, one.ended_at), (2, at(12)));
    assert_eq!(store.attempt(run, &"a".into(), 3).await.unwrap(), None);
}

/// A window of the actions, oldest first, with the total number.
pub async fn windows_of_actions(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (run, _) = held_run(store, "r1", Vec::new()).await;
    let mut commit = step(run, 1, 2);
    commit.attempts = [("d", 10), ("c", 30), ("b", 20), ("a", 20)]
        .map(|(node, end)| attempt(node, 1, end))
        .to_vec();
    committed(store, commit).await;
    let nodes = async |limit, offset| {
        let (actions, total) = store.actions(run, Window { limit, offset }).await.unwrap();
        (
            actions
                .into_iter()
                .map(|action| action.node.to_string())
                .collect::<Vec<_>>()
                .join(""),
            total,
        )
    };
    assert_eq!(nodes(10, 0).await, ("dabc".to_owned(), 4));
    assert_eq!(nodes(2, 1).await, ("ab".to_owned(), 4));
    assert_eq!(nodes(2, 4).await, (String::new(), 4));
}

/// A window of the events, oldest first, with the total number.
pub async fn windows_of_events(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (run, _) = held_run(store, "r1", Vec::new()).await;
    for seq in 2..=5 {
        committed(store, step(run, 1, seq)).await;
    }
    let places = async |limit, offset| {
        let (events, total) = store.events(run, Window { limit, offset }).await.unwrap();
        (events.into_iter().map(|event| event.seq).collect::<Vec<_>>(), total)
    };
    assert_eq!(places(10, 0).await, (vec![1, 2, 3, 4, 5], 5));
    assert_eq!(places(2, 3).await, (vec![4, 5], 5));
    assert_eq!(places(2, 5).await, (vec![], 5));
}

/// A journal is read from any row on, and the position of a run is its newest row with the status of that row.
pub async fn journals_are_read_from_a_position(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (run, _) = held_run(store, "r1", Vec::new()).await;
    let waiting = pending(store, "r2").await;
    for seq in 2..=4 {
        committed(store, step(run, 1, seq)).await;
    }
    let positions = async || {
        let mut positions = store.positions(&[waiting, run_id(), run]).await.unwrap();
        positions.sort_by_key(|position| position.run != run);
        positions
    };
    let position = |run, seq, status| RunPosition { run, seq, status };
    let pending = position(waiting, 0, Status::Pending);
    assert_eq!(positions().await, [position(run, 4, Status::Running), pending]);
    let writes = store.writes();
    let seqs = async |after, limit| {
        let rows = store.journal_after(run, after, limit).await.unwrap();
        rows.into_iter().map(|row| row.seq).collect::<Vec<_>>()
    };
    assert_eq!(seqs(0, 10).await, [1, 2, 3, 4]);
    assert_eq!(seqs(2, 10).await, [3, 4]);
    assert_eq!(seqs(1, 2).await, [2, 3]);
    assert_eq!(seqs(4, 10).await, [0; 0]);
    let (all, _) = store.events(run, ALL).await.unwrap();
    assert_eq!(store.journal_after(run, 0, 10).await.unwrap(), all);
    assert_eq!(store.journal_after(run_id(), 0, 10).await.unwrap(), []);
    assert_eq!(store.positions(&[]).await.unwrap(), []);
    // Reads, heartbeats and checks of readiness are not counted as writes; everything else is, once it can be read.
    store.heartbeat(&described(ME), at(1)).await.unwrap();
    store.ping().await.unwrap();
    assert_eq!(store.writes(), writes);
    committed(store, end(run, 1, 5, Status::Succeeded)).await;
    assert!(writes.is_none() || store.writes() > writes, "{writes:?}");
    assert_eq!(positions().await, [position(run, 5, Status::Succeeded), pending]);
}

/// Links are listed in the order in which they were created.
pub async fn links_are_listed(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let (run, _) = held_run(store, "r1", Vec::new()).await;
    for (seq, id) in [(2, "b"), (3, "a")] {
        let mut commit = step(run, 1, seq);
        commit.links = vec![link(id)];
        committed(store, commit).await;
    }
    let (links, total) = store.links(run, ALL).await.unwrap();
    assert_eq!(
        links.iter().map(|link| link.resource_id.as_str()).collect::<Vec<_>>(),
        ["b", "a"]
    );
    assert_eq!(total, 2);
    let second = store.links(run, Window { limit: 1, offset: 1 }).await.unwrap();
    assert_eq!(second, (links[1..].to_vec(), 2));
    assert_eq!(
        (links[0].node.as_str(), links[0].system.as_str(), links[0].attempt),
        ("a", "slack", 1)
    );
}

/// Reads of missing runs return nothing, without an error.
pub async fn reads_of_missing_runs_are_empty(store: &Arc<dyn Store>) {
    let run = run_id();
    let window = Window { limit: 5, offset: 0 };
    assert_eq!(store.run(run).await.unwrap(), None);
    assert_eq!(store.recent_run(run).await.unwrap(), None);
    assert_eq!(store.load(run).await.unwrap(), None);
    assert_eq!(store.actions(run, window).await.unwrap(), (Vec::new(), 0));
    assert_eq!(store.events(run, window).await.unwrap(), (Vec::new(), 0));
    assert_eq!(store.links(run, window).await.unwrap(), (Vec::new(), 0));
    assert!(store.messages(run, 0).await.unwrap().is_empty());
    assert!(store.waits(run).await.unwrap().is_empty());
    assert!(store.last_attempts(run, &[]).await.unwrap().is_empty());
    assert_eq!(store.attempt(run, &"a".into(), 1).await.unwrap(), None);
}

/// A recent run is the same row, also if its payloads are large.
pub async fn recent_runs_are_the_same_rows(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    for (name, size) in [("small", 10), ("large", 100_000)] {
        let mut run = new_run(name);
        run.trigger = format!("\"{}\"", "x".repeat(size));
        let id = run.id;
        store.enqueue(run).await.unwrap();
        let recent = store.recent_run(id).await.unwrap().unwrap();
        assert_eq!(recent.trigger.len(), size + 2);
        assert_eq!(Some(recent), store.run(id).await.unwrap());
    }
}

/// Loading shows the lease as it is and does not change it.
pub async fn load_shows_the_lease(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let run = pending(store, "r1").await;
    take(store, run).await;
    let message = RunMessage::Cancel { reason: "x".to_owned() };
    store.deliver(run, message, at(1)).await.unwrap();
    for _ in 0..2 {
        let stored = store.load(run).await.unwrap().unwrap();
        assert_eq!(
            (stored.epoch, stored.takeovers, stored.message_seq, stored.messages_seen),
            (1, 1, 1, 0)
        );
    }
}

/// All calls to a closed store fail with `Closed`.
pub async fn ping_and_close(store: &Arc<dyn Store>) {
    use crate::StoreError::Closed;
    activate(store, WORKFLOW).await;
    let (run, _) = held_run(store, "r1", Vec::new()).await;
    store.ping().await.unwrap();
    let about = store.about().await.unwrap();
    let is_on_disk = about.kind != "memory";
    assert_eq!(
        (about.bytes.is_some_and(|bytes| bytes > 1000), about.schema > 0),
        (is_on_disk, is_on_disk),
        "{about:?}"
    );
    store.close().await.unwrap();
    store.close().await.unwrap();
    assert!(matches!(store.ping().await, Err(Closed)));
    assert!(matches!(store.run(run).await, Err(Closed)));
    assert!(matches!(store.recent_run(run).await, Err(Closed)));
    assert!(matches!(store.webhook(Uuid::new_v4(), at(1)).await, Err(Closed)));
    assert!(matches!(store.enqueue(new_run("r2")).await, Err(Closed)));
    assert!(matches!(store.commit(step(run, 1, 2)).await, CommitAnswer::Unknown(_)));
}

/// Texts with a zero byte are stored, perhaps with the zero replaced, and nothing fails. Names with a zero byte are
/// never found.
pub async fn zero_bytes_in_texts(store: &Arc<dyn Store>) {
    let mut document = draft(WORKFLOW, "one");
    document.display_name = "a\0name".to_owned();
    document.description = Some("\0".to_owned());
    store.save_draft(document, new_or_draft(WORKFLOW), None).await.unwrap();
    store
        .publish(uid(WORKFLOW), "one", "{}", ACTIVATE, at(2))
        .await
        .unwrap();
    let mut run = new_run("r1");
    run.correlation_id = Some("c\0".to_owned());
    run.principal.user_id = "u\0".to_owned();
    run.principal.email = Some("\0@example.com".to_owned());
    run.local_start = Some(LocalStart {
        runner: ME,
        events: started(),
        started_at: at(100),
        waits: Vec::new(),
    });
    let id = run.id;
    assert_eq!(store.enqueue(run).await.unwrap(), Enqueued::Created);
    for seq in [2, 3] {
        let mut commit = step(id, 1, seq);
        commit.links = vec![link("l\0")];
        committed(store, commit).await;
    }
    assert_eq!(store.links(id, ALL).await.unwrap().1, 1);
    assert!(store.run(id).await.unwrap().unwrap().correlation_id.is_some());

    let none = "hello\0";
    assert_eq!(store.workflow("", none).await.unwrap(), None);
    assert_eq!(store.answer(none, "1", None, at(3)).await.unwrap(), Answer::NotFound);
    assert_eq!(store.attempt(id, &none.into(), 1).await.unwrap(), None);
    assert!(store.last_attempts(id, &[none.into()]).await.unwrap().is_empty());
    let some = Some(none.to_owned());
    for request in [
        RunFilter {
            request_id: some.clone(),
            ..filter(9)
        },
        RunFilter {
            tenant: some.clone(),
            ..filter(9)
        },
        RunFilter {
            search: some.clone(),
            ..filter(9)
        },
    ] {
        assert_eq!(ids(store, request).await, (Vec::new(), false));
    }
    let after = WorkflowFilter {
        after: some.map(|name| (name, String::new())),
        limit: 9,
        ..Default::default()
    };
    assert!(store.workflows(after.clone()).await.unwrap().items.is_empty());
    let after = WorkflowFilter {
        after: Some(("hell\0".to_owned(), String::new())),
        ..after
    };
    assert_eq!(store.workflows(after).await.unwrap().items.len(), 1);
}
