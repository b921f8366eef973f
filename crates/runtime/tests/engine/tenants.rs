//! Tenants: a name means the tenant's own workflow before a shared one, and what another tenant owns does not exist.

use crate::{
    http::{answer, service},
    support::{Bed, PATIENCE},
};
use fermata_core::Status;
use fermata_runtime::{
    EngineError, Refusal, Request, Settings, Tier, Tiers,
    actions::{HttpSettings, Registry},
    callbacks::NewCallbacks,
};
use serde_json::{Value, json};
use std::sync::Arc;

/// A document whose only node says a word.
fn saying(id: &str, word: &str) -> Value {
    json!({ "id": id, "displayName": id, "startNode": "a",
        "nodes": [{ "id": "a", "actionType": "core.echo", "parameters": { "said": word } }] })
}

impl Bed {
    async fn publish_for(&self, tenant: &str, document: &Value) {
        let workflows = self.engine.workflows_of(tenant);
        let saved = workflows
            .save(document.to_string().as_bytes(), "test.json")
            .await
            .unwrap();
        assert_eq!(saved.workflow.tenant, tenant);
        workflows.publish(&saved.workflow.id, true).await.unwrap();
    }

    /// Runs a workflow for a tenant; its outputs.
    async fn outputs_for(&self, tenant: &str, workflow: &str) -> Result<Value, EngineError> {
        let request = Request {
            workflow_id: workflow.to_owned(),
            tenant: tenant.to_owned(),
            trigger: json!({}),
            ..Request::default()
        };
        let (accepted, ended) = self.engine.start_and_wait(request, PATIENCE).await?;
        let ended = ended.expect("the run ends");
        assert_eq!(ended.status, Status::Succeeded, "{ended:?}");
        let run = self.engine.reads().run(accepted.run).await.unwrap();
        assert_eq!(run.tenant, tenant);
        Ok(serde_json::from_str(ended.outputs.as_deref().unwrap()).unwrap())
    }

    async fn said_to(&self, tenant: &str, workflow: &str) -> String {
        let outputs = self.outputs_for(tenant, workflow).await.unwrap();
        outputs["said"].as_str().expect("a word").to_owned()
    }
}

fn is_unknown<T: std::fmt::Debug>(answer: Result<T, EngineError>) -> bool {
    matches!(answer, Err(EngineError::Refused(Refusal::WorkflowNotFound(_))))
}

/// Also if another process adds the tenant's own workflow while this one knows the shared one.
#[tokio::test]
async fn own_workflow_is_started_before_the_shared_one() {
    let bed = Bed::new().await;
    let other = Bed::on(
        bed.store.clone(),
        Settings::default(),
        Registry::builtin(&HttpSettings::default()).unwrap(),
    );
    bed.publish(&saying("w", "shared")).await;
    for tenant in ["", "acme", "other"] {
        assert_eq!(bed.said_to(tenant, "w").await, "shared");
    }
    other.publish_for("acme", &saying("w", "own")).await;
    assert_eq!(bed.said_to("acme", "w").await, "own");
    assert_eq!(bed.said_to("other", "w").await, "shared");
    assert_eq!(bed.said_to("", "w").await, "shared");
    let uid = other.engine.reads_of("acme").workflow("w").await.unwrap().uid;
    assert_eq!(bed.said_to("acme", &format!("wf_{uid}")).await, "own");
    assert!(is_unknown(bed.outputs_for("other", &uid.to_string()).await));
    // The shared one is visible again once the own one is gone.
    other.engine.workflows_of("acme").archive("w").await.unwrap();
    let archived = bed.outputs_for("acme", "w").await;
    assert!(
        matches!(archived, Err(EngineError::Refused(Refusal::NotActive { .. }))),
        "{archived:?}"
    );
}

#[tokio::test]
async fn workflows_of_other_tenants_do_not_exist() {
    let bed = Bed::new().await;
    bed.publish(&saying("shared", "shared")).await;
    bed.publish_for("acme", &saying("w", "own")).await;
    let uid = bed.engine.reads_of("acme").workflow("w").await.unwrap().uid.to_string();
    let other = bed.engine.workflows_of("other");
    let document = saying("w", "theirs").to_string();
    for reference in ["w", uid.as_str()] {
        assert!(is_unknown(bed.engine.reads_of("other").workflow(reference).await));
        assert_eq!(
            bed.engine.reads_of("other").find_workflow(reference).await.unwrap(),
            None
        );
        assert!(is_unknown(other.publish(reference, true).await));
        assert!(is_unknown(other.archive(reference).await));
        assert!(is_unknown(other.reactivate(reference).await));
        assert!(is_unknown(other.set_enabled(reference, false).await));
        assert!(is_unknown(other.activate(reference, 1).await));
        assert!(is_unknown(other.delete(reference).await));
        assert!(is_unknown(
            other.save_draft(reference, document.as_bytes(), "t", None).await
        ));
        assert!(is_unknown(other.replace(reference, document.as_bytes(), "t").await));
        assert!(is_unknown(other.revise(reference, None, &[]).await));
    }
    assert!(
        is_unknown(bed.engine.reads().workflow("w").await),
        "a name without a tenant is a shared one"
    );
    assert_eq!(bed.engine.reads().workflow(&uid).await.unwrap().tenant, "acme");
}

/// Shared workflows can be read and started by every tenant, and changed by none.
#[tokio::test]
async fn shared_workflows_are_not_changed_by_tenants() {
    let bed = Bed::new().await;
    bed.publish(&saying("w", "shared")).await;
    let before = bed.engine.reads().workflow("w").await.unwrap();
    let tenant = bed.engine.workflows_of("acme");
    let document = saying("w", "mine").to_string();
    let refused = |answer: Result<(), EngineError>| {
        assert!(
            matches!(answer, Err(EngineError::Refused(Refusal::Shared(_)))),
            "{answer:?}"
        );
    };
    refused(tenant.publish("w", true).await.map(drop));
    refused(tenant.archive("w").await.map(drop));
    refused(tenant.set_enabled("w", false).await.map(drop));
    refused(tenant.activate("w", 1).await.map(drop));
    refused(tenant.delete("w").await);
    refused(tenant.save_draft("w", document.as_bytes(), "t", None).await.map(drop));
    assert_eq!(bed.engine.reads_of("acme").workflow("w").await.unwrap(), before);
    // A document of this name is the tenant's own, and hides the shared one.
    bed.publish_for("acme", &saying("w", "mine")).await;
    assert_eq!(bed.said_to("acme", "w").await, "mine");
    assert_eq!(bed.engine.reads().workflow("w").await.unwrap(), before);
}

/// A shared parent starts the shared child for all tenants; a tenant's parent starts the tenant's child.
#[tokio::test]
async fn children_are_those_of_the_parents_workflow() {
    let parent = |id: &str| {
        json!({ "id": id, "displayName": id, "startNode": "call", "nodes": [
            { "id": "call", "nodeType": "subworkflow", "workflowId": "child", "edges": [{ "targetNode": "say" }] },
            { "id": "say", "actionType": "core.echo",
              "parameters": { "said": "{{ context.data['call'].outputs.said }}" } }] })
    };
    let bed = Bed::new().await;
    bed.publish(&saying("child", "shared child")).await;
    bed.publish(&parent("parent")).await;
    assert_eq!(bed.said_to("acme", "parent").await, "shared child");
    bed.publish_for("acme", &saying("child", "own child")).await;
    assert_eq!(
        bed.said_to("acme", "parent").await,
        "shared child",
        "its document means the shared one"
    );
    bed.publish_for("acme", &parent("own-parent")).await;
    assert_eq!(bed.said_to("acme", "own-parent").await, "own child");
    bed.publish_for("other", &parent("own-parent")).await;
    assert_eq!(bed.said_to("other", "own-parent").await, "shared child");
}

/// A request that was accepted before is known, also when the month is used up.
#[tokio::test]
async fn repeated_requests_are_known_when_the_month_is_used_up() {
    let bed = Bed::new().await;
    bed.publish(&saying("w", "shared")).await;
    bed.publish(&saying("v", "shared")).await;
    let free = Arc::new(Tier {
        name: "free".to_owned(),
        executions_per_month: Some(0),
        ..Tier::default()
    });
    let settings = Settings {
        tiers: Arc::new(Tiers::new([("acme".to_owned(), free)], None)),
        ..Settings::default()
    };
    let limited = Bed::on(
        bed.store.clone(),
        settings,
        Registry::builtin(&HttpSettings::default()).unwrap(),
    );
    let request = |workflow: &str, id: Option<&str>| Request {
        workflow_id: workflow.to_owned(),
        tenant: "acme".to_owned(),
        request_id: id.map(str::to_owned),
        trigger: json!({}),
        ..Request::default()
    };
    let first = bed.engine.start(request("w", Some("one"))).await.unwrap();
    let again = limited.engine.start(request("w", Some("one"))).await.unwrap();
    assert_eq!((again.run, again.created), (first.run, false));
    for id in [None, Some("two")] {
        let refused = limited.engine.start(request("w", id)).await;
        let is_limit = matches!(refused, Err(EngineError::Refused(Refusal::MonthlyLimit { .. })));
        assert!(is_limit, "{refused:?}");
    }
    let taken = limited.engine.start(request("v", Some("one"))).await;
    let is_taken = matches!(taken, Err(EngineError::Refused(Refusal::RequestIdTaken { .. })));
    assert!(is_taken, "{taken:?}");
}

/// A shared document that starts what its trigger names starts shared workflows only: a tenant could name one of another tenant.
#[tokio::test]
async fn shared_parents_start_shared_children_only() {
    let dispatcher = json!({ "id": "dispatch", "displayName": "d", "startNode": "call", "nodes": [
        { "id": "call", "nodeType": "subworkflow", "workflowId": "{{ trigger.child }}" }] });
    let bed = Bed::new().await;
    bed.publish(&saying("common", "shared")).await;
    bed.publish_for("acme", &saying("private", "acme's")).await;
    bed.publish(&dispatcher).await;
    let uid = async |tenant: &str, name: &str| bed.engine.reads_of(tenant).workflow(name).await.unwrap().uid;
    let (common, private) = (uid("", "common").await, uid("acme", "private").await);
    for tenant in ["other", "acme", ""] {
        for (child, starts) in [(common, true), (private, false)] {
            for child in [child.to_string(), format!("wf_{child}")] {
                let request = Request {
                    workflow_id: "dispatch".to_owned(),
                    tenant: tenant.to_owned(),
                    trigger: json!({ "child": child }),
                    ..Request::default()
                };
                let (accepted, ended) = bed.engine.start_and_wait(request, PATIENCE).await.unwrap();
                let status = if starts { Status::Succeeded } else { Status::Failed };
                assert_eq!(ended.expect("the run ends").status, status, "{tenant} {child}");
                let children = bed.engine.reads().children(accepted.run, None, 9).await.unwrap();
                assert_eq!(children.items.len(), usize::from(starts), "{tenant} {child}");
            }
        }
    }
}

/// A document names the callbacks of its tenant, then shared ones.
#[tokio::test]
async fn callbacks_are_those_of_the_workflows_tenant() {
    let accepted = || answer("202 Accepted", "", "{}");
    let (shared_url, shared) = service(vec![accepted(), accepted()]).await;
    let (own_url, own) = service(vec![accepted()]).await;
    let bed = Bed::new().await;
    let document = json!({ "workflow_id": "pay", "name": "Pay", "version": "1.0.0", "edges": [], "nodes": [
        { "id": "charge", "type": "task", "executor": { "type": "callback", "config": { "callback_id": "charge" } } }] });
    let add = async |tenant: &str| {
        let workflows = bed.engine.workflows_of(tenant);
        workflows
            .add(document.to_string().as_bytes(), "pay.json")
            .await
            .map(drop)
    };
    let register = async |tenant: &str, base_url: &str| {
        let new = NewCallbacks {
            service_name: "billing".to_owned(),
            base_url: base_url.to_owned(),
            paths: vec![("charge".to_owned(), "/charge".to_owned())],
            ..NewCallbacks::default()
        };
        bed.engine.callbacks_of(tenant).register(new).await.unwrap();
    };
    register("acme", &own_url).await;
    assert!(
        add("other").await.is_err(),
        "the callback of another tenant is not registered"
    );
    register("", &shared_url).await;
    for (tenant, requests, expected) in [("other", &shared, 1), ("acme", &own, 1), ("", &shared, 2)] {
        add(tenant).await.unwrap();
        let request = Request {
            workflow_id: "pay".to_owned(),
            tenant: tenant.to_owned(),
            trigger: json!({}),
            ..Request::default()
        };
        bed.engine.start(request).await.unwrap();
        for _ in 0..2000 {
            if requests.lock().unwrap().len() == expected {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        assert_eq!(requests.lock().unwrap().len(), expected, "{tenant}");
    }
    let in_use = bed.engine.callbacks_of("acme").remove("charge").await;
    assert!(
        matches!(in_use, Err(EngineError::Refused(Refusal::CallbackInUse { .. }))),
        "{in_use:?}"
    );
    let unknown = bed.engine.callbacks_of("third").remove("charge").await;
    assert!(
        matches!(unknown, Err(EngineError::Refused(Refusal::CallbackNotRegistered(_)))),
        "{unknown:?}"
    );
}
