//! Bodies by content type, what is visible of a request, and delivery ids.

use super::*;
use crate::config::{TriggerConfig, TriggerType, WebhookConfig};
use serde_json::json;

fn headers(pairs: &[(&str, &str)]) -> Headers {
    Headers::new(pairs.iter().map(|(name, value)| (*name, value.as_bytes())))
}

fn webhook(config: Value) -> WebhookConfig {
    match TriggerConfig::parse(TriggerType::Webhook, &config) {
        Ok(TriggerConfig::Webhook(webhook)) => webhook,
        other => panic!("{other:?}"),
    }
}

#[test]
fn bodies_become_triggers() {
    for (content_type, body, expected) in [
        ("application/json", r#"{"a":1.50}"#, Ok(r#"{"a":1.50}"#)),
        ("application/json; charset=utf-8", "[1]", Ok(r#"{"body":[1]}"#)),
        ("Application/JSON", "null", Ok(r#"{"body":null}"#)),
        ("application/vnd.github+json", "{}", Ok("{}")),
        ("application/json", "", Ok("{}")),
        (
            "application/json",
            "{",
            Err("the body is not valid JSON: EOF while parsing an object at line 1 column 1"),
        ),
        (
            "application/x-www-form-urlencoded",
            "a=1&b=x+y&a=%C3%A4",
            Ok(r#"{"a":["1","ä"],"b":"x y"}"#),
        ),
        ("text/plain", "hello", Ok(r#"{"body":"hello"}"#)),
        ("text/plain", "\u{0}", Ok(r#"{"body":"\u0000"}"#)),
        ("", r#"{"a":1}"#, Ok(r#"{"a":1}"#)),
        ("", "hello", Ok(r#"{"body":"hello"}"#)),
        (
            "image/png",
            "x",
            Err("content type `image/png` is not supported; send JSON, a form or text"),
        ),
        (
            "multipart/form-data; boundary=x",
            "x",
            Err("content type `multipart/form-data` is not supported; send JSON, a form or text"),
        ),
    ] {
        let headers = match content_type {
            "" => headers(&[]),
            content_type => headers(&[("Content-Type", content_type)]),
        };
        let result = trigger_of(&headers, body.as_bytes()).map(|value| value.to_string());
        let result = result.map_err(|error| error.to_string());
        assert_eq!(
            result.as_deref().map_err(String::as_str),
            expected,
            "{content_type} {body}"
        );
    }
    let not_utf8 = trigger_of(&headers(&[("content-type", "text/plain")]), b"\xff");
    assert_eq!(not_utf8, Err(BodyError::Malformed("UTF-8 text".to_owned())));
}

#[test]
fn credentials_are_not_visible() {
    let headers = headers(&[
        ("Content-Type", "application/json"),
        ("X-GitHub-Event", "push"),
        ("Accept", "a"),
        ("Accept", "b"),
        ("Authorization", "Bearer secret"),
        ("Proxy-Authorization", "secret"),
        ("Cookie", "secret"),
        ("X-Gitlab-Token", "secret"),
        ("X-Api-Key", "secret"),
        ("X-Hub-Signature-256", "secret"),
        ("X-Shopify-Hmac-Sha256", "secret"),
        ("X-Mine", "secret"),
    ]);
    let config = webhook(json!({"signature": {"scheme": "hmac", "secret": "S", "header": "X-Mine"}}));
    let visible = visible_request("post", &headers, Some("a=1&b=2&b=3"), config.signature.as_ref());
    let expected = json!({
        "method": "POST",
        "headers": {"content-type": "application/json", "x-github-event": "push", "accept": "a, b"},
        "query": {"a": "1", "b": ["2", "3"]},
    });
    assert_eq!(visible, expected);
}

#[test]
fn delivery_ids_come_from_the_configuration_the_provider_or_the_signature() {
    let digest = Verified {
        digest: Some("0123".to_owned()),
    };
    let signed = |scheme: &str| json!({"signature": {"scheme": scheme, "secret": "S"}});
    for (config, header, body, expected) in [
        (
            signed("standardWebhooks"),
            ("webhook-id", "msg_1"),
            json!({}),
            Some("msg_1"),
        ),
        (
            signed("github"),
            ("X-GitHub-Delivery", "72d3162e"),
            json!({}),
            Some("72d3162e"),
        ),
        (signed("stripe"), ("a", "b"), json!({"id": "evt_1"}), Some("evt_1")),
        (signed("slack"), ("a", "b"), json!({"event_id": "Ev1"}), Some("Ev1")),
        (signed("slack"), ("a", "b"), json!({"command": "/deploy"}), Some("0123")),
        (
            signed("shopify"),
            ("X-Shopify-Webhook-Id", "b54"),
            json!({}),
            Some("b54"),
        ),
        (signed("gitlab"), ("Idempotency-Key", "k1"), json!({}), Some("k1")),
        (json!({}), ("Idempotency-Key", "k1"), json!({}), Some("k1")),
        (
            json!({"dedupe": "trigger.order.id"}),
            ("a", "b"),
            json!({"order": {"id": 17}}),
            Some("17"),
        ),
        (
            json!({"dedupe": "request.headers.x-request-id"}),
            ("X-Request-Id", "r 1"),
            json!({}),
            Some("sha256:…"),
        ),
        (
            json!({"dedupe": "trigger.order.id"}),
            ("Idempotency-Key", "k1"),
            json!({"order": {}}),
            None,
        ),
    ] {
        let config = webhook(config);
        let headers = headers(&[header]);
        let request = visible_request("POST", &headers, None, config.signature.as_ref());
        let verified = config.signature.as_ref().map(|_| &digest);
        let id = delivery_id(
            config.signature.as_ref(),
            verified,
            config.dedupe.as_ref(),
            &headers,
            &body,
            &request,
        );
        match expected {
            Some("sha256:…") => assert!(id.is_some_and(|id| id.starts_with("sha256:"))),
            expected => assert_eq!(id.as_deref(), expected, "{config:?}"),
        }
    }
    let none = webhook(json!({}));
    let id = delivery_id(
        None,
        None,
        none.dedupe.as_ref(),
        &headers(&[]),
        &json!({"id": 1}),
        &json!({}),
    );
    assert_eq!(id, None);
}

#[test]
fn only_a_url_verification_has_a_challenge() {
    let challenge = json!({"type": "url_verification", "challenge": "3eZbrw1a"});
    assert_eq!(slack_challenge(&challenge), Some("3eZbrw1a"));
    assert_eq!(
        slack_challenge(&json!({"type": "event_callback", "challenge": "x"})),
        None
    );
    assert_eq!(slack_challenge(&json!({"challenge": "x"})), None);
}
