//! `sp_publish_event`: an event is part of the caller's transaction, and is stored once.

use super::*;

const PUBLISH: &str = "SELECT sp_publish_event($1, $2::text::jsonb, $3, $4, $5, $6)";

impl App {
    async fn publish(&self, source: &str, id: Option<&str>, tenant: Option<&str>) -> Result<bool, Refused> {
        let subject: Option<&str> = Some("order 7");
        let row = self
            .one(
                PUBLISH,
                &[&"order.paid", &r#"{"n": 1}"#, &source, &id, &subject, &tenant],
            )
            .await?;
        Ok(row.get(0))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_are_published_with_the_transaction() {
    let (_database, store, app) = setup().await;
    app.run("BEGIN").await;
    assert!(app.publish("shop", Some("e1"), None).await.unwrap());
    app.run("ROLLBACK").await;
    assert_eq!(store.unmatched_events(10).await.unwrap(), []);
    app.run("BEGIN").await;
    assert!(app.publish("shop", Some("e1"), None).await.unwrap());
    assert_eq!(store.unmatched_events(10).await.unwrap(), [], "not before the commit");
    app.run("COMMIT").await;
    let events = store.unmatched_events(10).await.unwrap();
    let event = &events[0];
    assert_eq!(
        (events.len(), event.id.as_str(), event.event_type.as_str()),
        (1, "e1", "order.paid")
    );
    assert_eq!(event.data, r#"{"n": 1}"#);
    let attributes: serde_json::Value = serde_json::from_str(&event.attributes).unwrap();
    assert_eq!(
        (&attributes["subject"], &attributes["source"]),
        (&"order 7".into(), &"shop".into())
    );
    assert!(store.trigger_work().await.unwrap().has_unmatched);
    assert!(!app.publish("shop", Some("e1"), None).await.unwrap(), "a duplicate");
    assert!(
        app.publish("shop", Some("e1"), Some("acme")).await.unwrap(),
        "of another tenant"
    );
    assert!(app.publish("shop", None, None).await.unwrap() && app.publish("shop", None, None).await.unwrap());
    assert!(store.match_event(events[0].clone(), Vec::new()).await.unwrap());
    assert!(
        !store.match_event(events[0].clone(), Vec::new()).await.unwrap(),
        "it was matched before"
    );
    assert_eq!(store.unmatched_events(10).await.unwrap().len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_events_are_refused() {
    let (_database, _store, app) = setup().await;
    expect(app.publish("", Some("e"), None).await, "WF005", "p_source");
    expect(
        app.publish("shop", Some(&"x".repeat(501)), None).await,
        "WF005",
        "p_event_id",
    );
    expect(
        app.publish("shop", Some("e"), Some("a\tb")).await,
        "WF005",
        "p_tenant_id",
    );
}
