//! The requests of Runlater tasks: which redirects they follow, and how their templates are rendered.

use crate::{
    http::{answer, service},
    support::Bed,
};
use fermata_core::Status;
use serde_json::{Value, json};

fn fine() -> Vec<u8> {
    answer("200 OK", "content-type: application/json\r\n", "{}")
}

/// The first line of each request.
fn targets(requests: &std::sync::Mutex<Vec<String>>) -> Vec<String> {
    let requests = requests.lock().unwrap();
    let target = |request: &String| request.split(' ').nth(1).unwrap_or_default().to_owned();
    requests.iter().map(target).collect()
}

#[tokio::test]
async fn only_redirects_that_keep_the_request_and_the_origin_are_followed() {
    let (elsewhere, elsewhere_requests) = service(vec![fine()]).await;
    for (status, location, followed) in [
        ("307 Temporary Redirect", "/on", true),
        ("308 Permanent Redirect", "/on", true),
        ("301 Moved Permanently", "/on", false),
        ("302 Found", "/on", false),
        ("303 See Other", "/on", false),
        ("307 Temporary Redirect", elsewhere.as_str(), false),
    ] {
        let (url, requests) = service(vec![answer(status, &format!("location: {location}\r\n"), ""), fine()]).await;
        let bed = Bed::new().await;
        let tasks = json!({
            "call": { "url": url, "body": { "a": 1 } },
            "moved": { "needs": ["call"], "if": "tasks.call.status_code >= 300", "url": url,
                       "body": { "to": "{{tasks.call.headers.location}}" } },
        });
        let run = bed.trigger(tasks, json!({})).await;
        let (ended, overview) = bed.end(run).await;
        assert_eq!(ended, Status::Succeeded, "{status}: {overview:?}");
        let requests = requests.lock().unwrap().clone();
        assert!(
            requests.len() == 2 && requests[1].starts_with("POST "),
            "{status}: {requests:?}"
        );
        let code: u16 = status[..3].parse().unwrap();
        let expected = if followed { 200 } else { code };
        assert_eq!(overview.nodes[0].status_code, Some(expected), "{status} {location}");
        let body: Value = serde_json::from_str(requests[1].split_once("\r\n\r\n").unwrap().1).unwrap();
        let sent = if followed {
            json!({ "a": 1 })
        } else {
            json!({ "to": location })
        };
        assert_eq!(body, sent, "{status} {location}");
    }
    assert!(targets(&elsewhere_requests).is_empty(), "a redirect left its origin");
}

#[tokio::test]
async fn values_in_an_address_are_encoded_and_only_text_is_sent() {
    let (url, requests) = service(vec![fine()]).await;
    let bed = Bed::new().await;
    let tasks = json!({
        "path": { "url": format!("{url}/orders/{{{{trigger.body.id}}}}?q={{{{trigger.body.id}}}}&n={{{{trigger.body.n}}}}") },
        "base": { "needs": ["path"], "url": "{{trigger.body.base}}/{{trigger.body['a b']}}",
                  "headers": { "x-number": "{{trigger.body.n}}" } },
        "host": { "url": "http://{{trigger.body.evil}}/" },
        "no-url": { "url": "{{trigger.body.nothing}}" },
        "no-header": { "url": url, "headers": { "x": "{{trigger.body.nothing}}" } },
        "object": { "url": url, "headers": { "x": "{{trigger.body.object}}" } },
        "list": { "url": format!("{url}/{{{{trigger.body.list}}}}") },
    });
    let trigger = json!({ "id": "a/../b?c=d&e", "n": 7, "base": format!("{url}/v1"), "a b": "größe", "evil": "a@b",
                          "nothing": null, "object": {}, "list": [1] });
    let run = bed.trigger(tasks, trigger).await;
    let (_, overview) = bed.end(run).await;
    let encoded = "a%2F..%2Fb%3Fc%3Dd%26e";
    let expected = [
        format!("/orders/{encoded}?q={encoded}&n=7"),
        "/v1/gr%C3%B6%C3%9Fe".to_owned(),
    ];
    assert_eq!(targets(&requests), expected, "{overview:?}");
    assert!(requests.lock().unwrap()[1].contains("x-number: 7"));
    for node in &overview.nodes[2..] {
        assert_eq!(node.status, "template_error", "{node:?}");
        let message = &node.failure.as_ref().unwrap().message;
        assert!(message.contains("{{trigger.body."), "{message}");
    }
}
