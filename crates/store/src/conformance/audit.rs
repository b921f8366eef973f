//! The audit trail: rows of changes, lists and pruning.

use super::*;
use crate::{
    audit::{AuditFilter, AuditOutcome, AuditRow, describe, recorded},
    conformance::callbacks::callback,
    definitions::{Deleted, Enablement, Lifecycle},
    runs::{Delivery, RunMessage},
};

pub(crate) fn row(number: u128, tenant: &str, action: &str) -> AuditRow {
    AuditRow {
        id: Uuid::from_u128(number),
        at: at(number as i64),
        tenant: tenant.to_owned(),
        who: format!("user {number}"),
        credential: "key:1".to_owned(),
        address: Some("192.0.2.1".to_owned()),
        action: action.to_owned(),
        target: "w".to_owned(),
        outcome: AuditOutcome::Done,
        detail: None,
        before: None,
        after: Some("abc".to_owned()),
    }
}

fn all() -> AuditFilter {
    AuditFilter {
        limit: 100,
        ..Default::default()
    }
}

async fn ids(store: &Arc<dyn Store>, filter: AuditFilter) -> Vec<u128> {
    let page = store.audit(filter).await.unwrap();
    page.items.iter().map(|row| row.id.as_u128()).collect()
}

/// A change and its row are one: what changes nothing has no row, and what is not recorded has none.
pub async fn changes_are_recorded(store: &Arc<dyn Store>) {
    activate(store, WORKFLOW).await;
    let id = pending(store, "r1").await;
    assert!(ids(store, all()).await.is_empty(), "nothing was to be recorded");
    let disable = Enablement {
        from: vec![Lifecycle::Active],
        status: None,
        enabled: Some(false),
        version: None,
        paused: None,
    };
    let work = async {
        describe(|row| row.detail = Some("learned".to_owned()));
        store
            .set_enablement(uid(WORKFLOW), disable.clone(), at(9))
            .await
            .unwrap()
    };
    let (changed, left) = recorded(row(1, "", "workflow.disable"), work).await;
    assert!(changed.is_some_and(|(_, changed)| changed));
    let stored = store.audit(all()).await.unwrap().items;
    assert_eq!(stored, [left]);
    assert_eq!(stored[0].detail.as_deref(), Some("learned"));

    let callbacks = vec![callback("a", "s")];
    recorded(row(2, "", "callback.register"), store.register_callbacks(callbacks))
        .await
        .0
        .unwrap();
    recorded(row(3, "", "callback.delete"), store.delete_callback("", "a"))
        .await
        .0
        .unwrap();
    let cancel = RunMessage::Cancel {
        reason: "enough".to_owned(),
    };
    let (delivered, _) = recorded(row(4, "", "execution.cancel"), store.deliver(id, cancel, at(9))).await;
    assert!(matches!(delivered.unwrap(), Delivery::Delivered { .. }));
    let (removed, _) = recorded(row(5, "", "workflow.delete"), store.delete_workflow(uid("none"))).await;
    assert_eq!(removed.unwrap(), Deleted::NotFound);
    assert_eq!(ids(store, all()).await, [4, 3, 2, 1], "what changed nothing has no row");
    store.set_enablement(uid(WORKFLOW), disable, at(10)).await.unwrap();
    assert_eq!(ids(store, all()).await.len(), 4, "only recorded work");
}

/// Rows are listed newest first, filtered and paged.
pub async fn audit_rows_are_filtered_and_paged(store: &Arc<dyn Store>) {
    let mut refused = row(5, "acme", "execution.cancel");
    refused.outcome = AuditOutcome::Refused;
    let rows = [
        row(1, "", "workflow.publish"),
        row(2, "acme", "workflow.publish"),
        row(3, "other", "workflow.publish"),
        row(4, "acme", "workflowx"),
        refused,
    ];
    for row in rows.iter().chain(&rows[..1]) {
        store.add_audit(row.clone()).await.unwrap();
    }
    let some = |text: &str| Some(text.to_owned());
    let with = |change: &dyn Fn(&mut AuditFilter)| {
        let mut filter = all();
        change(&mut filter);
        filter
    };
    assert_eq!(ids(store, all()).await, [5, 4, 3, 2, 1]);
    for (filter, expected) in [
        (with(&|filter| filter.tenant = some("acme")), vec![5, 4, 2]),
        (with(&|filter| filter.tenant = some("")), vec![1]),
        (with(&|filter| filter.tenant = some("third")), vec![]),
        (with(&|filter| filter.action = some("workflow")), vec![3, 2, 1]),
        (with(&|filter| filter.action = some("execution.cancel")), vec![5]),
        (with(&|filter| filter.who = some("user 3")), vec![3]),
        (with(&|filter| filter.who = some("key:1")), vec![5, 4, 3, 2, 1]),
        (with(&|filter| filter.target = some("x")), vec![]),
        (with(&|filter| filter.outcome = Some(AuditOutcome::Refused)), vec![5]),
        (with(&|filter| filter.from = Some(Uuid::from_u128(4))), vec![5, 4]),
        (with(&|filter| filter.before = Some(Uuid::from_u128(3))), vec![2, 1]),
    ] {
        assert_eq!(ids(store, filter.clone()).await, expected, "{filter:?}");
        let mut paged = AuditFilter { limit: 1, ..filter };
        let mut seen = Vec::new();
        loop {
            let page = store.audit(paged.clone()).await.unwrap();
            seen.extend(page.items.iter().map(|row| row.id.as_u128()));
            paged.before = page.next;
            if page.next.is_none() {
                break;
            }
        }
        assert_eq!(seen, expected, "{paged:?}");
    }
    assert_eq!(store.audit(all()).await.unwrap().items[4], rows[0]);
    assert_eq!(store.prune_audit(Uuid::from_u128(4), 2).await.unwrap(), 2);
    assert_eq!(store.prune_audit(Uuid::from_u128(4), 2).await.unwrap(), 1);
    assert_eq!(ids(store, all()).await, [5, 4]);
}
