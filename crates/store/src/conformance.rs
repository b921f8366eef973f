//! The suite that every store must pass. A store bug becomes a test here.
//!
//! A store runs it with one line in its tests:
//!
//! ```ignore
//! fermata_store::conformance_tests!(memory, Subject::new(MemoryStore::new(), ()));
//! ```

pub mod audit;
pub mod bulk;
#[cfg(test)]
pub(crate) mod busy;
pub mod callbacks;
pub mod children;
pub mod claim;
pub mod cluster;
pub mod commit;
pub mod dead_letters;
pub mod deliveries;
pub mod enqueue;
pub mod fair;
pub mod fields;
pub mod flow;
pub mod home;
pub mod inbox;
pub mod keys;
pub mod messages;
pub mod plans;
pub mod races;
pub mod reads;
pub mod releases;
pub mod reruns;
pub mod retention;
pub mod runners;
pub mod states;
pub mod stats;
pub mod tenants;
pub mod triggers;
pub mod usage;
pub mod workflows;

use crate::{
    Store,
    children::Parent,
    dead_letters::{DeadLetter, DeadLetterFilter, DeadReason},
    definitions::{Activation, Draft, DraftRule, Published, Release, ReleaseRule},
    runners::{Lease, Runner},
    runs::{
        Attempt, AttemptStatus, Claim, CommitAnswer, Conflict, Enqueued, Link, LocalStart, NewRun, Principal,
        RunCommit, StatusChange, StoredRun, Then, WaitChange,
    },
};
use fermata_core::{Event, NodeId, Output, RunId, RunnerId, Status, Timestamp};
use std::{any::Any, ops::Deref, sync::Arc};
use uuid::Uuid;

/// A fresh store, and resources that must live as long.
pub struct Subject {
    store: Arc<dyn Store>,
    _keep: Box<dyn Any + Send + Sync>,
}

impl Subject {
    /// A store with the resources that it needs, such as a temporary folder.
    pub fn new(store: impl Store, keep: impl Any + Send + Sync) -> Subject {
        Subject {
            store: Arc::new(store),
            _keep: Box::new(keep),
        }
    }
}

impl Deref for Subject {
    type Target = Arc<dyn Store>;

    fn deref(&self) -> &Arc<dyn Store> {
        &self.store
    }
}

/// One `#[tokio::test]` for each property, in a module of this name; `$make` creates a fresh [`Subject`] each time.
#[macro_export]
macro_rules! conformance_tests {
    ($name:ident, $make:expr) => {
        $crate::conformance_tests! { @list $name, $make;
            workflows: drafts_are_saved_and_published, draft_rules, if_match_guards_drafts, publishing_numbers_versions,
                publishing_the_same_is_no_new_version, publishing_needs_the_draft_it_names, activation_is_optional,
                enablement_follows_its_rule, an_older_version_can_be_activated, workflows_are_paged_and_filtered, archived_workflows_are_not_published,
                snapshots_keep_the_draft, workflows_without_runs_are_deleted, versions_are_listed_newest_first;
            plans: plans_are_stored_with_their_versions, publishing_the_same_keeps_the_plan, plans_need_their_versions,
                plans_are_deleted_with_their_versions;
            releases: a_release_is_current_at_once, release_rules, releasing_the_same_is_no_new_version,
                releasing_activates_what_was_staged, documents_may_disable_new_runs, workflows_are_found_by_uid,
                soft_deleted_workflows_are_kept_for_their_runs, runs_continue_after_their_workflow_is_deleted, a_deleted_name_can_be_used_again,
                runs_belong_to_one_workflow_of_a_name, request_ids_of_a_deleted_workflow_stay_taken,
                drafts_over_old_runs_are_deleted, concurrent_releases, a_release_after_another_version_is_refused;
            enqueue: pending_run_is_stored_whole, locally_started_run_is_held_and_running, request_id_is_unique_for_each_tenant,
                request_id_of_another_workflow, stale_starts_store_nothing, pinned_versions_must_exist,
                concurrent_requests_make_one_run, drafts_take_pinned_runs_only;
            claim: free_runs_in_order_of_due_time, queue_depths_count_due_runs_by_workflow, runs_are_not_claimed_before_they_are_due, limit_and_next_due, claimed_runs_are_complete,
                held_runs_are_not_claimed, dead_owners_lose_their_runs, dead_owners_runs_and_free_ones_share,
                heartbeats_keep_runs, retired_runners_lose_their_runs, the_claiming_runner_is_alive, only_one_run, only_these_runs, takeovers_count_and_reset,
                terminal_runs_are_never_claimed, higher_priority_goes_first_within_a_workflow,
                priority_takes_no_place_of_others, priority_applies_to_due_runs_only, lower_priority_waits;
            fair: a_backlog_takes_half, unused_places_go_to_the_backlog, tenants_share_too, single_places_are_shared,
                sleeping_runs_take_no_share, others_are_found_among_many, shares_hold_under_priority;
            runners: runners_are_listed, a_heartbeat_keeps_the_description, silent_runners_are_deleted,
                pending_messages_of_held_runs, held_runs_are_listed, runs_name_their_runner, declined_claims_are_not_counted,
                failed_claims_are_counted, messages_wake_given_up_runs;
            dead_letters: a_run_is_dead_lettered, dead_lettering_is_fenced, dead_letters_are_paged_and_filtered,
                dead_letters_are_deleted;
            commit: journal_and_attempts_are_written, old_epochs_change_nothing, only_the_owner_commits, unheld_runs_are_fenced,
                unknown_runs_are_fenced, seq_must_be_next, no_events_no_journal_row, status_changes_keep_what_is_not_given,
                terminal_is_final, parking_releases_the_run, parking_with_unseen_messages_is_due_at_once,
                links_are_unique_across_runs, own_links_again_are_fine, a_conflict_writes_nothing,
                conflicts_do_not_fail_other_members, the_first_record_of_an_attempt_is_kept,
                waits_close_for_good, an_unseen_answer_refuses_a_close, a_seen_answer_allows_a_close,
                terminal_closes_waits_and_deletes_messages, a_rejected_commit_writes_nothing,
                rejected_commits_do_not_fail_other_members;
            messages: messages_are_numbered_and_kept, consumed_messages_are_deleted, messages_seen_beyond_the_last_one_lose_nothing,
                delivery_wakes_free_runs_only, terminal_and_unknown_runs_get_no_messages, pauses_show_at_once_and_count_once, a_wait_is_answered_once,
                answers_to_closed_unknown_or_ended, answers_after_the_deadline_are_refused, reopening_a_token_changes_nothing, each_attempt_has_its_own_token,
                changes_are_notified;
            reads: runs_are_paged_newest_first, runs_are_paged_oldest_first, runs_are_filtered, pages_of_filtered_runs,
                runs_by_correlation_and_request, children_are_found, attempts_by_node_and_number, windows_of_actions,
                windows_of_events, journals_are_read_from_a_position, links_are_listed, reads_of_missing_runs_are_empty, recent_runs_are_the_same_rows, load_shows_the_lease, zero_bytes_in_texts, ping_and_close;
            retention: finished_runs_are_removed_whole, unfinished_runs_are_kept, ages_by_status_and_workflow,
                kept_keys_leave_empty_rows, pruning_goes_on_where_it_stopped, dry_runs_change_nothing,
                child_runs_go_with_their_run, single_runs_are_deleted, deleted_keys_can_be_used_again;
            reruns: kept_attempts_are_copied, kept_attempts_are_stored_with_every_start, reruns_are_stored_once_and_need_their_source,
                resources_are_shared_in_a_chain;
            children: children_know_their_parent, children_start_only_under_the_lease_of_their_parent, ends_are_seen_once,
                ends_of_independent_children_are_not_listed, one_message_about_ended_children_is_unread,
                parents_of_unseen_ends_are_found, unseen_ends_are_not_deleted;
            inbox: offered_waits_are_items, answered_waits_are_not_offered, items_are_filtered_and_paged,
                two_workers_never_hold_the_same_item, claims_are_in_order, lapsed_leases_make_items_claimable_again,
                refused_answers_change_nothing, answers_reach_the_run, nodes_are_answered, heartbeats_extend_leases,
                items_end_with_their_deadline_and_run, offers_are_notified;
            tenants: own_workflows_come_before_shared_ones, drafts_belong_to_tenants, concurrent_creations_in_tenants,
                workflows_of_a_tenant_are_limited,
                workflows_are_listed_by_tenant, callbacks_belong_to_tenants, plans_are_searched_by_tenant,
                runs_are_listed_by_tenant;
            callbacks: callbacks_are_registered_and_replaced, ids_belong_to_one_service, callbacks_are_paged,
                active_workflows_are_found_by_their_plan;
            audit: changes_are_recorded, audit_rows_are_filtered_and_paged;
            keys: keys_are_stored_and_found, keys_are_revoked_once, keys_are_listed_by_tenant;
            flow: places_are_limited, places_are_handed_over_in_order, two_keys_are_taken_in_order, full_keys_refuse,
                take_over_keeps_the_place, paused_workflows_make_runs_wait, cancelled_waiters_give_nothing_back, runs_ask_at_their_first_claim,
                the_limit_of_the_active_version_counts, waiting_runs_are_woken, unique_keys_have_one_run, debounced_starts_are_one_run, rates_delay_starts,
                delayed_runs_take_places_later, delayed_runs_keep_their_time, limits_hold_under_concurrency;
            states: cached_states_are_replaced_and_removed, refused_commits_change_no_cached_state,
                cached_states_are_deleted_with_their_run;
            bulk: jobs_act_on_their_runs_once, jobs_survive_a_crash, cancelled_jobs_stop, one_process_holds_a_job,
                jobs_are_listed_and_removed;
            stats: numbers_are_summed_up;
            fields: runs_are_found_by_fields, runs_are_found_by_tags, fields_are_replaced_and_removed,
                runs_are_found_by_several_workflows;
            usage: steps_are_counted_with_their_commit, concurrent_counts_add_up;
            triggers: triggers_are_stored_changed_and_removed, triggers_are_listed, due_schedules_are_fired,
                instants_fire_once_for_concurrent_callers, schedules_know_their_last_run, triggers_follow_their_workflow;
            deliveries: deliveries_are_settled_once, deliveries_survive_a_crash, runs_are_stored_with_their_delivery,
                events_are_recorded_whole, deliveries_are_removed_by_age;
            races: claimers_never_share_a_run, no_wake_up_is_lost, an_answer_or_a_close_wins_never_both,
                one_commit_for_each_seq, links_have_one_owner;
        }
    };
    (@list $name:ident, $make:expr; $($group:ident: $($test:ident),+ $(,)?;)+) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            $(mod $group {
                #[allow(unused_imports)]
                use super::*;
                $(
                    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                    async fn $test() {
                        let subject: $crate::conformance::Subject = $make;
                        $crate::conformance::$group::$test(&subject).await;
                    }
                )+
            })+
        }
    };
}

pub(crate) const WORKFLOW: &str = "hello";

pub(crate) fn at(time: i64) -> Timestamp {
    Timestamp(time)
}

pub(crate) fn run_id() -> RunId {
    RunId(Uuid::now_v7())
}

/// A runner without a heartbeat.
pub(crate) fn runner() -> RunnerId {
    RunnerId(Uuid::now_v7())
}

/// The runner that makes the commits of this suite.
pub(crate) const ME: RunnerId = RunnerId(Uuid::from_u128(0x0199_0000_0000_7000_8000_0000_0000_0001));

/// A runner as it describes itself.
pub(crate) fn described(id: RunnerId) -> Runner {
    Runner {
        id,
        host: "machine".to_owned(),
        pid: 42,
        version: "1.2.3".to_owned(),
        role: "all".to_owned(),
        public_url: "https://flows.example".to_owned(),
        started_at: at(7),
    }
}

pub(crate) fn draft(id: &str, checksum: &str) -> Draft {
    Draft {
        id: id.to_owned(),
        tenant: String::new(),
        display_name: format!("Name of {id}"),
        description: Some("what it is for".to_owned()),
        dialect: "dataworkflows".to_owned(),
        source: format!("# {checksum}").into_bytes(),
        checksum: checksum.to_owned(),
        at: at(1),
    }
}

/// The uid of the first workflow of a name, always the same.
pub(crate) fn uid(name: &str) -> Uuid {
    let hash = |hash: u128, byte: u8| (hash ^ u128::from(byte)).wrapping_mul((1 << 88) + 0x13b);
    Uuid::from_u128(name.bytes().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, hash))
}

/// The rule for a draft that creates a workflow of this name.
pub(crate) fn new_or_draft(name: &str) -> DraftRule {
    DraftRule::NewOrDraft {
        uid: uid(name),
        most: None,
    }
}

/// The rule for a draft of the first workflow of this name, which has a version.
pub(crate) fn existing_draft(name: &str) -> DraftRule {
    DraftRule::Existing { uid: uid(name) }
}

/// A document for a workflow that does not exist yet.
pub(crate) fn release_new(id: &str, checksum: &str) -> Release {
    Release {
        draft: draft(id, checksum),
        rule: ReleaseRule::New {
            uid: uid(id),
            most: None,
        },
        enabled: true,
        plan: "{}".to_owned(),
    }
}

/// Makes the published version current.
pub(crate) const ACTIVATE: Activation = Activation::Activate { enabled: true };

/// Makes `id` an active workflow with version 1.
pub(crate) async fn activate(store: &Arc<dyn Store>, id: &str) {
    store
        .save_draft(draft(id, "one"), new_or_draft(id), None)
        .await
        .unwrap();
    match store.publish(uid(id), "one", "{}", ACTIVATE, at(2)).await.unwrap() {
        Published::Version(publication) => assert_eq!(publication.version, 1),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn new_run(request_id: &str) -> NewRun {
    NewRun {
        id: run_id(),
        workflow_uid: uid(WORKFLOW),
        workflow_id: WORKFLOW.to_owned(),
        workflow_version: 1,
        pinned: false,
        tenant: String::new(),
        request_id: request_id.to_owned(),
        trigger: r#"{"a":1}"#.to_owned(),
        spec: Some(r#"{"b":2}"#.to_owned()),
        priority: Some(7),
        correlation_id: Some("corr".to_owned()),
        traceparent: None,
        request: None,
        delivery: None,
        principal: Principal {
            user_id: "u1".to_owned(),
            display_name: Some("User One".to_owned()),
            email: Some("u1@example.com".to_owned()),
        },
        parent: None,
        created_at: at(100),
        flow: None,
        rerun: None,
        fields: Vec::new(),
        local_start: None,
    }
}

/// A run of the first workflow of this name.
pub(crate) fn run_of(workflow: &str, request_id: &str) -> NewRun {
    NewRun {
        workflow_uid: uid(workflow),
        workflow_id: workflow.to_owned(),
        ..new_run(request_id)
    }
}

pub(crate) fn started() -> Vec<Event> {
    vec![Event::Started {
        at: at(100),
        deadline: None,
        vars: Default::default(),
    }]
}

pub(crate) fn event(node: &str) -> Event {
    Event::Answered {
        node: node.into(),
        output: Output::EMPTY,
    }
}

pub(crate) fn open(node: &str, token: &str) -> WaitChange {
    WaitChange::Open {
        node: node.into(),
        attempt: 1,
        token: token.to_owned(),
    }
}

pub(crate) fn limit(node: &str, deadline: i64) -> WaitChange {
    WaitChange::Limit {
        node: node.into(),
        deadline: at(deadline),
    }
}

pub(crate) fn close(node: &str) -> WaitChange {
    WaitChange::Close { node: node.into() }
}

pub(crate) fn attempt(node: &str, attempt: u32, ended_at: i64) -> Attempt {
    Attempt {
        node: node.into(),
        attempt,
        action_type: "core.echo".to_owned(),
        status: AttemptStatus::Succeeded,
        parameters: Some(r#"{"p":1}"#.to_owned()),
        outputs: Some(format!(r#"{{"end":{ended_at}}}"#)),
        error: None,
        started_at: Some(at(ended_at - 1)),
        ended_at: at(ended_at),
        reused_from: None,
    }
}

pub(crate) fn link(id: &str) -> Link {
    Link {
        node: NodeId::from("a"),
        attempt: 1,
        system: "slack".to_owned(),
        resource_type: "message".to_owned(),
        resource_id: id.to_owned(),
        url: Some(format!("https://example.com/{id}")),
    }
}

/// A commit with one event that keeps the lease.
pub(crate) fn step(run: RunId, epoch: u64, seq: u32) -> RunCommit {
    RunCommit {
        run,
        runner: ME,
        epoch,
        seq,
        at: at(200 + i64::from(seq)),
        events: vec![event("a")],
        attempts: Vec::new(),
        links: Vec::new(),
        waits: Vec::new(),
        children_seen: Vec::new(),
        messages_seen: 0,
        status: None,
        dead_letter: None,
        usage: None,
        state: None,
        then: Then::Keep,
    }
}

/// The same, but it parks the run.
pub(crate) fn park(run: RunId, epoch: u64, seq: u32, wake_at: Option<i64>) -> RunCommit {
    let mut commit = step(run, epoch, seq);
    commit.then = Then::Park {
        wake_at: wake_at.map(at),
    };
    commit
}

/// The same, but it ends the run.
pub(crate) fn end(run: RunId, epoch: u64, seq: u32, status: Status) -> RunCommit {
    let mut commit = step(run, epoch, seq);
    commit.status = Some(StatusChange {
        status,
        started_at: None,
        ended_at: Some(commit.at),
        reason: None,
        error: None,
        outputs: Some(r#"{"out":true}"#.to_owned()),
        context_snapshot: None,
    });
    commit
}

/// A claim for up to `limit` free runs.
pub(crate) fn claim(runner: RunnerId, limit: u32, now: i64) -> Claim {
    Claim {
        runner,
        limit,
        now: at(now),
        only: Vec::new(),
        dead_before: None,
    }
}

/// Stores a pending run.
pub(crate) async fn pending(store: &Arc<dyn Store>, request_id: &str) -> RunId {
    let run = new_run(request_id);
    let id = run.id;
    assert_eq!(store.enqueue(run).await.unwrap(), Enqueued::Created);
    id
}

/// Stores a run that [`ME`] holds under epoch 1, with one journal row and these waits.
pub(crate) async fn held_run(store: &Arc<dyn Store>, request_id: &str, waits: Vec<WaitChange>) -> (RunId, RunnerId) {
    (run_held_by(store, ME, request_id, waits).await, ME)
}

/// The same, held by another runner.
pub(crate) async fn run_held_by(
    store: &Arc<dyn Store>,
    owner: RunnerId,
    request_id: &str,
    waits: Vec<WaitChange>,
) -> RunId {
    let mut run = new_run(request_id);
    let id = run.id;
    run.local_start = Some(LocalStart {
        runner: owner,
        events: started(),
        started_at: at(100),
        waits,
    });
    assert_eq!(store.enqueue(run).await.unwrap(), Enqueued::Created);
    id
}

pub(crate) async fn committed(store: &Arc<dyn Store>, commit: RunCommit) -> u64 {
    match store.commit(commit).await {
        CommitAnswer::Committed { message_seq } => message_seq,
        other => panic!("not committed: {other:?}"),
    }
}

/// Claims one run for [`ME`], which must be claimable.
pub(crate) async fn take(store: &Arc<dyn Store>, run: RunId) -> StoredRun {
    let mut request = claim(ME, 1, i64::MAX);
    request.only = vec![run];
    let mut runs = store.claim(request).await.unwrap().runs;
    assert_eq!(runs.len(), 1, "{run} should be claimable");
    runs.remove(0)
}
