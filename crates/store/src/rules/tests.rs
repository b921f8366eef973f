//! The tables of `rules.rs`, one case for each row and for each edge between two rows.

use super::*;
use crate::{
    children::{Parent, ParentLease},
    runs::{Link, NewRerun, RerunOf, StatusChange},
};

const RUN: RunId = RunId(Uuid::from_u128(1));
const OTHER_RUN: RunId = RunId(Uuid::from_u128(2));
const RUNNER: RunnerId = RunnerId(Uuid::from_u128(3));
const OTHER_RUNNER: RunnerId = RunnerId(Uuid::from_u128(4));
const WORKFLOW: Uuid = Uuid::from_u128(5);
const NOW: Timestamp = Timestamp(1_000);
const LATER: Timestamp = Timestamp(9_000);

fn new_run(version: u32, pinned: bool) -> NewRun {
    NewRun {
        id: RUN,
        workflow_uid: WORKFLOW,
        workflow_id: "orders".to_owned(),
        workflow_version: version,
        pinned,
        tenant: String::new(),
        request_id: "request".to_owned(),
        trigger: "{}".to_owned(),
        spec: None,
        priority: None,
        correlation_id: None,
        traceparent: None,
        request: None,
        delivery: None,
        principal: crate::runs::Principal::default(),
        parent: None,
        created_at: NOW,
        flow: None,
        rerun: None,
        fields: Vec::new(),
        local_start: None,
    }
}

/// A workflow with versions 1 to 3, of which 2 is the current one.
fn workflow(status: Lifecycle, enabled: bool) -> WorkflowFacts {
    WorkflowFacts {
        status,
        enabled,
        current: Some(2),
        latest: Some(3),
        paused: false,
    }
}

#[test]
fn a_run_starts_if_its_workflow_accepts_it() {
    use Lifecycle::*;
    const PINNED: bool = true;
    let cases = [
        // status, enabled, version, pinned: stored?
        (Active, true, 2, !PINNED, true),
        (Active, true, 1, !PINNED, false),
        (Active, true, 3, !PINNED, false),
        (Active, true, 1, PINNED, true),
        (Active, true, 3, PINNED, true),
        (Active, true, 0, PINNED, false),
        (Active, true, 4, PINNED, false),
        (Active, false, 2, !PINNED, false),
        (Active, false, 2, PINNED, false),
        (Draft, true, 2, !PINNED, false),
        (Draft, true, 2, PINNED, true),
        (Draft, false, 2, PINNED, true),
        (Archived, true, 2, !PINNED, false),
        (Archived, true, 2, PINNED, false),
    ];
    for (status, enabled, version, pinned, stored) in cases {
        let answer = refused_start(
            &new_run(version, pinned),
            Some(&workflow(status, enabled)),
            None,
            None,
            None,
        );
        let expected = (!stored).then_some(Enqueued::Stale);
        assert_eq!(
            answer, expected,
            "{status:?} enabled={enabled} version={version} pinned={pinned}"
        );
    }
    let unpublished = WorkflowFacts {
        current: None,
        latest: None,
        paused: false,
        ..workflow(Active, true)
    };
    for pinned in [true, false] {
        let answer = refused_start(&new_run(1, pinned), Some(&unpublished), None, None, None);
        assert_eq!(answer, Some(Enqueued::Stale), "no version, pinned={pinned}");
    }
    assert_eq!(
        refused_start(&new_run(2, false), None, None, None, None),
        Some(Enqueued::Stale)
    );
}

#[test]
fn a_request_id_that_is_taken_answers_with_its_run() {
    let existing = |run, workflow_uid| ExistingRun {
        run,
        workflow_uid,
        workflow_id: "theirs".to_owned(),
        status: Status::Failed,
    };
    let found = |run| Enqueued::Existing {
        run,
        status: Status::Failed,
    };
    let other = Enqueued::OtherWorkflow {
        run: OTHER_RUN,
        workflow_id: "theirs".to_owned(),
    };
    let elsewhere = Uuid::from_u128(77);
    let accepting = workflow(Lifecycle::Active, true);
    let archived = workflow(Lifecycle::Archived, true);
    let cases = [
        (existing(OTHER_RUN, WORKFLOW), Some(&accepting), found(OTHER_RUN)),
        (existing(OTHER_RUN, WORKFLOW), Some(&archived), found(OTHER_RUN)),
        (existing(OTHER_RUN, WORKFLOW), None, Enqueued::Stale),
        (existing(RUN, WORKFLOW), Some(&accepting), found(RUN)),
        (existing(RUN, WORKFLOW), None, found(RUN)),
        (existing(OTHER_RUN, elsewhere), Some(&accepting), other.clone()),
        (existing(OTHER_RUN, elsewhere), None, other),
    ];
    for (existing, workflow, expected) in cases {
        let answer = refused_start(&new_run(2, false), workflow, Some(&existing), None, None);
        assert_eq!(answer, Some(expected), "{existing:?} {workflow:?}");
    }
}

#[test]
fn a_rerun_needs_its_source_with_payloads() {
    let source = |emptied| ParentFacts {
        status: Status::Failed,
        owner: None,
        epoch: 1,
        emptied,
    };
    let accepting = workflow(Lifecycle::Active, true);
    let lost = Some(Enqueued::SourceLost);
    for (source, expected) in [
        (Some(source(false)), None),
        (Some(source(true)), lost.clone()),
        (None, lost),
    ] {
        let mut new = new_run(2, false);
        let of = RerunOf {
            run: OTHER_RUN,
            root: OTHER_RUN,
        };
        new.rerun = Some(Box::new(NewRerun {
            source: of,
            text: "{}".to_owned(),
            nodes: Vec::new(),
        }));
        let answer = refused_start(&new, Some(&accepting), None, None, source.as_ref());
        assert_eq!(answer, expected, "{source:?}");
    }
}

#[test]
fn a_child_starts_only_under_the_lease_of_its_parent() {
    let parent = |status, owner, epoch| ParentFacts {
        status,
        owner,
        epoch,
        emptied: false,
    };
    let lost = Some(Enqueued::ParentLost);
    let (running, ours) = (Status::Running, Some(RUNNER));
    let lease = Some(ParentLease {
        runner: RUNNER,
        epoch: 4,
    });
    let cases = [
        // lease, row of the parent: answer
        (lease, Some(parent(running, ours, 4)), None),
        (lease, Some(parent(running, ours, 5)), lost.clone()),
        (lease, Some(parent(running, ours, 3)), lost.clone()),
        (lease, Some(parent(running, Some(OTHER_RUNNER), 4)), lost.clone()),
        (lease, Some(parent(running, None, 4)), lost.clone()),
        (lease, Some(parent(Status::Cancelled, ours, 4)), lost.clone()),
        (lease, Some(parent(Status::Succeeded, ours, 4)), lost.clone()),
        (lease, None, lost.clone()),
        (None, None, None),
        (None, Some(parent(Status::Failed, None, 9)), None),
    ];
    let accepting = workflow(Lifecycle::Active, true);
    for (lease, row, expected) in cases {
        let mut child = new_run(2, false);
        child.parent = Some(Parent {
            lease,
            ..Parent::of(OTHER_RUN)
        });
        let answer = refused_start(&child, Some(&accepting), None, row.as_ref(), None);
        assert_eq!(answer, expected, "{lease:?} {row:?}");
    }
    // A child that exists is found, whatever became of its parent.
    let mut child = new_run(2, false);
    child.parent = Some(Parent {
        lease,
        ..Parent::of(OTHER_RUN)
    });
    let existing = ExistingRun {
        run: RUN,
        workflow_uid: WORKFLOW,
        workflow_id: "orders".to_owned(),
        status: running,
    };
    let found = Enqueued::Existing {
        run: RUN,
        status: running,
    };
    let answer = refused_start(&child, Some(&accepting), Some(&existing), None, None);
    assert_eq!(answer, Some(found));
}

#[test]
fn answers_need_the_lease_of_the_worker_that_holds_the_item() {
    let (ours, theirs) = (Uuid::from_u128(8), Uuid::from_u128(9));
    let free = ItemFacts {
        open: true,
        deadline: Some(LATER),
        lease: None,
        lease_until: Some(Timestamp(0)),
        tenant: Some("acme".to_owned()),
    };
    let leased = ItemFacts {
        lease: Some(ours),
        lease_until: Some(Timestamp(5_000)),
        ..free.clone()
    };
    let closed = ItemFacts {
        open: false,
        ..leased.clone()
    };
    let plain = ItemFacts {
        lease_until: None,
        tenant: None,
        ..free.clone()
    };
    let (ok, lapsed) = (None, Some(Answer::LeaseLapsed));
    let (over, unknown) = (Some(Answer::Closed), Some(Answer::NotFound));
    let before = Timestamp(4_999);
    let cases = [
        // item, tenant, lease, time: answer
        (None, None, None, NOW, unknown.clone()),
        (Some(&free), Some("beta"), None, NOW, unknown.clone()),
        (Some(&closed), Some("beta"), None, NOW, unknown),
        (Some(&free), Some("acme"), None, NOW, ok.clone()),
        (Some(&free), None, None, NOW, ok.clone()),
        (Some(&free), None, Some(ours), NOW, lapsed.clone()),
        (Some(&free), None, None, LATER, over.clone()),
        (Some(&leased), None, Some(ours), before, ok.clone()),
        (Some(&leased), None, Some(ours), Timestamp(5_000), lapsed.clone()),
        (Some(&leased), None, Some(theirs), before, lapsed),
        (Some(&leased), None, None, before, Some(Answer::Leased)),
        (Some(&leased), None, None, Timestamp(5_000), ok.clone()),
        (Some(&leased), None, Some(ours), LATER, over.clone()),
        (Some(&closed), None, Some(ours), before, over.clone()),
        (Some(&closed), None, None, before, over),
        (Some(&plain), Some("acme"), None, NOW, ok),
    ];
    for (item, tenant, lease, at, expected) in cases {
        let answer = refused_answer(item, tenant, lease, at);
        assert_eq!(answer, expected, "{item:?} {tenant:?} {lease:?} {at:?}");
    }
    assert_eq!(refused_heartbeat(Some(&leased), None, ours, before), None);
    let late = refused_heartbeat(Some(&leased), None, ours, Timestamp(5_000));
    assert_eq!(late, Some(Heartbeat::LeaseLapsed));
    assert_eq!(refused_heartbeat(None, None, ours, NOW), Some(Heartbeat::NotFound));
    assert_eq!(
        refused_heartbeat(Some(&closed), None, ours, before),
        Some(Heartbeat::Closed)
    );
}

/// A commit of the runner that holds the run.
fn commit(then: Then) -> RunCommit {
    RunCommit {
        run: RUN,
        runner: RUNNER,
        epoch: 4,
        seq: 8,
        at: NOW,
        events: Vec::new(),
        attempts: Vec::new(),
        links: Vec::new(),
        waits: Vec::new(),
        children_seen: Vec::new(),
        messages_seen: 0,
        status: None,
        dead_letter: None,
        usage: None,
        state: None,
        then,
    }
}

fn held() -> RunFacts {
    RunFacts {
        is_limited: false,
        status: Status::Running,
        owner: Some(RUNNER),
        epoch: 4,
        takeovers: 3,
        message_seq: 5,
        messages_seen: 2,
    }
}

#[test]
fn a_commit_without_the_lease_is_fenced() {
    let fenced = |change: fn(&mut RunFacts)| {
        let mut run = held();
        change(&mut run);
        is_fenced(&commit(Then::Keep), Some(&run))
    };
    assert!(!fenced(|_| {}));
    assert!(!fenced(|run| run.status = Status::Pending));
    assert!(fenced(|run| run.owner = Some(OTHER_RUNNER)));
    assert!(fenced(|run| run.owner = None));
    assert!(fenced(|run| run.epoch = 5));
    assert!(fenced(|run| run.epoch = 3));
    for status in Status::ALL.into_iter().filter(|status| status.is_terminal()) {
        let run = RunFacts { status, ..held() };
        assert!(is_fenced(&commit(Then::Keep), Some(&run)), "{status:?}");
    }
    assert!(is_fenced(&commit(Then::Keep), None));
}

#[test]
fn conflicts_are_found_in_the_order_of_the_table() {
    let link = Link {
        node: NodeId::from("ask"),
        attempt: 1,
        system: "slack".to_owned(),
        resource_type: "message".to_owned(),
        resource_id: "m1".to_owned(),
        url: None,
    };
    let node = NodeId::from("wait");
    let token = "t".to_owned();
    let open = WaitChange::Open {
        node: node.clone(),
        attempt: 1,
        token,
    };
    let close = WaitChange::Close { node: node.clone() };
    let link_conflict = Conflict::Link {
        link: link.clone(),
        owner: OTHER_RUN,
    };
    let answered = Conflict::Answered { node: node.clone() };
    let (yes, no) = (vec![node], Vec::new());
    let (free, ours, theirs) = (vec![None], vec![Some(RUN)], vec![Some(OTHER_RUN)]);
    let cases = [
        // journal, last seq, link owners, answered nodes, wait change: conflict
        (true, 7, &free, &no, &close, None),
        (true, 7, &ours, &no, &close, None),
        (true, 8, &free, &no, &close, Some(Conflict::Seq)),
        (true, 6, &theirs, &yes, &close, Some(Conflict::Seq)),
        (false, 6, &free, &no, &close, None),
        (true, 7, &theirs, &no, &close, Some(link_conflict.clone())),
        (true, 7, &theirs, &yes, &close, Some(link_conflict)),
        (true, 7, &ours, &yes, &close, Some(answered)),
        (true, 7, &ours, &yes, &open, None),
    ];
    for (journal, last_seq, owners, answered, wait, expected) in cases {
        let mut commit = commit(Then::Keep);
        commit.links = vec![link.clone()];
        commit.waits = vec![wait.clone()];
        let facts = ConflictFacts {
            last_seq,
            link_owners: owners.clone(),
            answered: answered.clone(),
        };
        assert_eq!(conflict(&commit, journal, &facts), expected, "{facts:?} {wait:?}");
    }
}

#[test]
fn a_released_run_is_due_when_the_table_says() {
    use LeaseChange::{Kept, Released};
    let park = |wake_at| Then::Park { wake_at };
    let decline = Then::Decline { wake_at: LATER };
    let give_up = |examined| Then::GiveUp {
        wake_at: LATER,
        examined,
    };
    let cases = [
        // then, the commit's messages_seen: lease, messages_seen, takeovers (there are 5 messages, 2 were consumed)
        (Then::Keep, 4, Kept, 4, 0),
        (Then::Keep, 1, Kept, 2, 0),
        (Then::Keep, 9, Kept, 5, 0),
        (park(Some(LATER)), 5, Released(Some(LATER)), 5, 0),
        (park(None), 5, Released(None), 5, 0),
        (park(Some(LATER)), 4, Released(Some(NOW)), 4, 0),
        (park(None), 4, Released(Some(NOW)), 4, 0),
        (decline, 2, Released(Some(LATER)), 2, 2),
        (give_up(5), 2, Released(Some(LATER)), 2, 3),
        (give_up(4), 2, Released(Some(NOW)), 2, 3),
        (give_up(0), 5, Released(Some(LATER)), 5, 3),
    ];
    for (then, seen, lease, messages_seen, takeovers) in cases {
        let commit = RunCommit {
            messages_seen: seen,
            ..commit(then)
        };
        let expected = RowChange {
            messages_seen,
            takeovers,
            lease,
        };
        assert_eq!(row_change(&commit, &held()), expected, "{then:?} seen={seen}");
    }
}

#[test]
fn a_terminal_status_ends_the_lease_whatever_the_commit_asks_for() {
    for then in [
        Then::Keep,
        Then::Park { wake_at: Some(LATER) },
        Then::Decline { wake_at: LATER },
    ] {
        for status in Status::ALL {
            let mut commit = commit(then);
            commit.status = Some(StatusChange {
                status,
                started_at: None,
                ended_at: None,
                reason: None,
                error: None,
                outputs: None,
                context_snapshot: None,
            });
            let change = row_change(&commit, &held());
            assert_eq!(
                change.lease == LeaseChange::Ended,
                status.is_terminal(),
                "{then:?} {status:?}"
            );
            if status.is_terminal() {
                assert_eq!((change.messages_seen, change.takeovers), (5, 0), "{then:?} {status:?}");
            }
        }
    }
}

#[test]
fn a_row_is_written_only_if_it_changes() {
    let settled = RunFacts {
        takeovers: 0,
        messages_seen: 5,
        ..held()
    };
    let differs = |then, run: &RunFacts| row_change(&commit(then), run).differs_from(run);
    assert!(!differs(Then::Keep, &settled));
    assert!(differs(Then::Keep, &held()));
    assert!(differs(Then::Park { wake_at: None }, &settled));
    let seen = RunCommit {
        messages_seen: 6,
        ..commit(Then::Keep)
    };
    let behind = RunFacts {
        message_seq: 6,
        ..settled
    };
    assert!(row_change(&seen, &behind).differs_from(&behind));
}
