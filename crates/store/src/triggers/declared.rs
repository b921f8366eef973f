//! Declared triggers: what publishing, activating, archiving and deleting a workflow does to its triggers. Pure; each store
//! applies it in the transaction that changes the workflow.
//!
//! | the current version declares it | there is a trigger of this name | then |
//! | --- | --- | --- |
//! | yes | no | it is created |
//! | yes | yes, and it is the same | nothing changes: a schedule goes on where it was |
//! | yes | yes, and it differs | it changes and keeps its id, its path segments and its deliveries; a schedule counts from now |
//! | no | yes | it is removed |
//!
//! Whether a trigger is enabled can be changed over the API. That stays until a version declares it otherwise than the one before.
//!
//! Archiving disables the enabled triggers of a workflow, and reactivating enables exactly those again. A schedule that is
//! enabled counts from that moment: what it missed is not caught up.

use super::{Trigger, TriggerType};
use crate::definitions::{Lifecycle, Workflow};
use fermata_core::{Timestamp, plan::DeclaredTrigger};
use serde::Deserialize;
use uuid::Uuid;

/// What changes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    pub(crate) created: Vec<Trigger>,
    pub(crate) changed: Vec<Trigger>,
    pub(crate) removed: Vec<Uuid>,
}

/// The triggers that a stored plan declares.
pub(crate) fn of_plan(text: &str) -> Vec<DeclaredTrigger> {
    #[derive(Deserialize)]
    struct Text {
        plan: Part,
    }
    #[derive(Deserialize)]
    struct Part {
        #[serde(default)]
        triggers: Vec<DeclaredTrigger>,
    }
    // Plans without triggers are not parsed.
    match text.contains(r#""triggers":[{"#) {
        true => serde_json::from_str::<Text>(text).map_or_else(|_| Vec::new(), |text| text.plan.triggers),
        false => Vec::new(),
    }
}

/// Makes the declared triggers of a workflow those of its current version. `there` are all its triggers, `before` those that the
/// version declared which was current before.
pub(crate) fn reconcile(
    workflow: &Workflow,
    there: Vec<Trigger>,
    before: &[DeclaredTrigger],
    declared: Vec<DeclaredTrigger>,
    at: Timestamp,
) -> Changes {
    let mut changes = Changes::default();
    let mut there: Vec<Trigger> = there.into_iter().filter(|trigger| trigger.name.is_some()).collect();
    for declared in declared {
        let Some(kind) = TriggerType::parse(&declared.kind) else {
            continue;
        };
        let named = there
            .iter()
            .position(|trigger| trigger.name.as_deref() == Some(declared.name.as_str()));
        match named.map(|at| there.swap_remove(at)) {
            None => changes.created.push(new(workflow, kind, declared, at)),
            Some(old) => {
                let before = before.iter().find(|before| before.name == declared.name);
                let is_same = before.is_some_and(|before| before.enabled == declared.enabled);
                let enabled = if is_same { old.enabled } else { declared.enabled };
                changes.changed.extend(change(old, kind, enabled, declared, at));
            }
        }
    }
    changes.removed = there.into_iter().map(|trigger| trigger.id).collect();
    changes
}

fn new(workflow: &Workflow, kind: TriggerType, declared: DeclaredTrigger, at: Timestamp) -> Trigger {
    let id = Uuid::new_v4();
    let config = declared.config.to_string();
    let due = Some(at).filter(|_| kind == TriggerType::Schedule && declared.enabled);
    Trigger {
        id,
        workflow_uid: workflow.uid,
        workflow_id: workflow.id.clone(),
        tenant: workflow.tenant.clone(),
        kind,
        name: Some(declared.name),
        enabled: declared.enabled,
        disabled_by_archive: false,
        event_type: exact_event_type(kind, &config),
        config,
        condition: declared.condition,
        segment: Some(id).filter(|_| kind == TriggerType::Webhook),
        old_segment: None,
        fired_until: due,
        next_fire_at: due,
        last: None,
        created_at: at,
        updated_at: at,
    }
}

/// The trigger as it is declared now; `None` if nothing changes.
fn change(old: Trigger, kind: TriggerType, enabled: bool, declared: DeclaredTrigger, at: Timestamp) -> Option<Trigger> {
    let config = declared.config.to_string();
    let is_same = old.kind == kind && old.config == config;
    if is_same && old.condition == declared.condition && old.enabled == enabled {
        return None;
    }
    let due = match kind == TriggerType::Schedule && enabled {
        true if is_same && old.enabled => (old.fired_until, old.next_fire_at),
        true => (Some(at), Some(at)),
        false => (None, None),
    };
    Some(Trigger {
        kind,
        enabled,
        disabled_by_archive: old.disabled_by_archive && !enabled,
        event_type: exact_event_type(kind, &config),
        config,
        condition: declared.condition,
        segment: old.segment.or(Some(old.id).filter(|_| kind == TriggerType::Webhook)),
        fired_until: due.0,
        next_fire_at: due.1,
        updated_at: at,
        ..old
    })
}

/// The triggers of a workflow that change when its state does.
pub(crate) fn follow(there: Vec<Trigger>, before: Lifecycle, after: Lifecycle, at: Timestamp) -> Vec<Trigger> {
    let is_archived = |state| state == Lifecycle::Archived;
    match (is_archived(before), is_archived(after)) {
        (false, true) => {
            let enabled = there.into_iter().filter(|trigger| trigger.enabled);
            let disabled = enabled.map(|trigger| Trigger {
                enabled: false,
                disabled_by_archive: true,
                fired_until: None,
                next_fire_at: None,
                updated_at: at,
                ..trigger
            });
            disabled.collect()
        }
        (true, false) => {
            let disabled = there.into_iter().filter(|trigger| trigger.disabled_by_archive);
            let enabled = disabled.map(|trigger| {
                let due = Some(at).filter(|_| trigger.kind == TriggerType::Schedule);
                Trigger {
                    enabled: true,
                    disabled_by_archive: false,
                    fired_until: due,
                    next_fire_at: due,
                    updated_at: at,
                    ..trigger
                }
            });
            enabled.collect()
        }
        _ => Vec::new(),
    }
}

/// The type of an event trigger, if its configuration names exactly one.
pub fn exact_event_type(kind: TriggerType, config: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Config {
        #[serde(rename = "type")]
        event_type: String,
    }
    if kind != TriggerType::Event {
        return None;
    }
    let config: Config = serde_json::from_str(config).ok()?;
    Some(config.event_type).filter(|event_type| !event_type.contains(['*', '?', '[', ']', '{', '}', '\\']))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn workflow() -> Workflow {
        Workflow {
            id: "w".to_owned(),
            tenant: "acme".to_owned(),
            uid: Uuid::from_u128(7),
            display_name: "W".to_owned(),
            description: None,
            dialect: "dataWorkflows".to_owned(),
            current_version: Some(1),
            latest_version: Some(1),
            status: Lifecycle::Active,
            enabled: true,
            created_at: Timestamp(1),
            updated_at: Timestamp(1),
            deleted_at: None,
            paused_at: None,
        }
    }

    fn declared(name: &str, kind: &str, config: serde_json::Value) -> DeclaredTrigger {
        DeclaredTrigger {
            name: name.to_owned(),
            kind: kind.to_owned(),
            enabled: true,
            config,
            condition: None,
        }
    }

    fn daily() -> DeclaredTrigger {
        declared("daily", "Schedule", json!({ "cron": "@daily" }))
    }

    /// The triggers after a first publication at time 10.
    fn first(declared: Vec<DeclaredTrigger>) -> Vec<Trigger> {
        reconcile(&workflow(), Vec::new(), &[], declared, Timestamp(10)).created
    }

    #[test]
    fn declared_triggers_are_created() {
        let there = first(vec![daily(), declared("hook", "Webhook", json!({}))]);
        let (schedule, hook) = (&there[0], &there[1]);
        assert_eq!((schedule.tenant.as_str(), schedule.segment), ("acme", None));
        assert_eq!(
            (schedule.fired_until, schedule.next_fire_at),
            (Some(Timestamp(10)), Some(Timestamp(10)))
        );
        assert_eq!((hook.segment, hook.next_fire_at), (Some(hook.id), None));
        assert_eq!(hook.id.get_version_num(), 4, "its id is a secret");
    }

    #[test]
    fn unchanged_triggers_go_on_where_they_were() {
        let there = first(vec![daily()]);
        let changes = reconcile(&workflow(), there, &[daily()], vec![daily()], Timestamp(99));
        assert_eq!(changes, Changes::default());
    }

    #[test]
    fn changed_triggers_keep_their_identity() {
        let there = first(vec![daily()]);
        let id = there[0].id;
        let hourly = DeclaredTrigger {
            config: json!({ "cron": "@hourly" }),
            ..daily()
        };
        let changes = reconcile(&workflow(), there.clone(), &[daily()], vec![hourly], Timestamp(99));
        assert_eq!(
            (changes.changed[0].id, changes.changed[0].fired_until),
            (id, Some(Timestamp(99)))
        );
        let guarded = DeclaredTrigger {
            condition: Some("true".to_owned()),
            ..daily()
        };
        let changes = reconcile(&workflow(), there.clone(), &[daily()], vec![guarded], Timestamp(99));
        assert_eq!(
            changes.changed[0].fired_until,
            Some(Timestamp(10)),
            "its fire times did not change"
        );
        let changes = reconcile(&workflow(), there, &[daily()], Vec::new(), Timestamp(99));
        assert_eq!(changes.removed, [id]);
    }

    #[test]
    fn enabled_state_stays_until_the_document_changes_it() {
        let off = DeclaredTrigger {
            enabled: false,
            ..daily()
        };
        let hourly = DeclaredTrigger {
            config: json!({ "cron": "@hourly" }),
            ..daily()
        };
        let mut disabled = first(vec![daily()]);
        disabled[0].enabled = false;
        let change = |there: &[Trigger], before: &DeclaredTrigger, now: &DeclaredTrigger| {
            let (before, now) = (std::slice::from_ref(before), vec![now.clone()]);
            let mut changed = reconcile(&workflow(), there.to_vec(), before, now, Timestamp(99)).changed;
            changed.pop().map(|trigger| (trigger.enabled, trigger.next_fire_at))
        };
        assert_eq!(change(&disabled, &daily(), &daily()), None, "unchanged");
        assert_eq!(
            change(&disabled, &daily(), &hourly),
            Some((false, None)),
            "another time"
        );
        assert_eq!(change(&disabled, &off, &daily()), Some((true, Some(Timestamp(99)))));
        let enabled = first(vec![daily()]);
        assert_eq!(change(&enabled, &off, &off), None);
        assert_eq!(change(&enabled, &daily(), &off), Some((false, None)));
        // A trigger that archiving disabled is enabled by reactivating, also with another version.
        disabled[0].disabled_by_archive = true;
        let changed = reconcile(&workflow(), disabled, &[daily()], vec![hourly], Timestamp(99)).changed;
        assert!(changed[0].disabled_by_archive && !changed[0].enabled);
    }

    #[test]
    fn triggers_of_the_api_are_not_touched() {
        let mut there = first(vec![daily()]);
        there[0].name = None;
        let changes = reconcile(&workflow(), there, &[daily()], Vec::new(), Timestamp(99));
        assert_eq!(changes, Changes::default());
    }

    #[test]
    fn archiving_disables_and_reactivating_enables_those() {
        use Lifecycle::*;
        let mut there = first(vec![daily(), declared("off", "Manual", json!({}))]);
        there[1].enabled = false;
        let archived = follow(there.clone(), Active, Archived, Timestamp(20));
        assert_eq!(archived.len(), 1, "what was disabled stays as it is");
        assert_eq!((archived[0].enabled, archived[0].next_fire_at), (false, None));
        let back = follow(
            vec![archived[0].clone(), there[1].clone()],
            Archived,
            Active,
            Timestamp(30),
        );
        assert_eq!(back.len(), 1);
        assert_eq!(
            (back[0].enabled, back[0].fired_until),
            (true, Some(Timestamp(30))),
            "no catch-up"
        );
        assert_eq!(follow(there, Active, Active, Timestamp(30)), []);
    }

    #[test]
    fn exact_types_have_no_globs() {
        let of = |event_type: &str| exact_event_type(TriggerType::Event, &json!({ "type": event_type }).to_string());
        assert_eq!(of("order.paid").as_deref(), Some("order.paid"));
        assert_eq!((of("order.*"), of("order.?")), (None, None));
        assert_eq!(exact_event_type(TriggerType::Webhook, r#"{"type":"a"}"#), None);
    }

    #[test]
    fn plans_without_triggers_declare_none() {
        assert_eq!(of_plan("{}"), []);
        assert_eq!(of_plan(r#"{"v":1,"plan":{"nodes":[]}}"#), []);
        let text = format!(
            r#"{{"v":1,"plan":{{"nodes":[],"triggers":[{}]}}}}"#,
            serde_json::to_string(&daily()).unwrap()
        );
        assert_eq!(of_plan(&text), [daily()]);
    }
}
