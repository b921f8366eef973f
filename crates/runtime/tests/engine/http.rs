//! `http.request` against a service on loopback with scripted responses.

use crate::support::{Bed, Place, workflow};
use fermata_core::Status;
use fermata_runtime::{
    Settings,
    actions::{HttpSettings, Registry},
};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

/// Sends the nth response to the nth request (the last one to all further requests). Returns the URL and the requests.
pub async fn service(answers: Vec<Vec<u8>>) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let requests = Arc::new(Mutex::new(Vec::new()));
    let seen = requests.clone();
    tokio::spawn(async move {
        for at in 0.. {
            let Ok((mut socket, _)) = listener.accept().await else {
                return;
            };
            let mut request = Vec::new();
            let mut buffer = [0; 4096];
            while !is_whole(&request) {
                match socket.read(&mut buffer).await {
                    Ok(0) | Err(_) => break,
                    Ok(count) => request.extend_from_slice(&buffer[..count]),
                }
            }
            seen.lock()
                .unwrap()
                .push(String::from_utf8_lossy(&request).into_owned());
            let answer = answers.get(at).or(answers.last()).cloned().unwrap_or_default();
            let _ = socket.write_all(&answer).await;
        }
    });
    (url, requests)
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request).to_ascii_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: ")?.parse().ok())
        .unwrap_or(0);
    body.len() >= length
}

pub fn answer(status: &str, headers: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n{body}",
        body.len()
    )
    .into_bytes()
}

fn call(url: &str, more: Value) -> Value {
    let mut parameters = json!({ "url": format!("{url}/path") });
    for (name, value) in more.as_object().into_iter().flatten() {
        parameters[name] = value.clone();
    }
    json!({ "id": "call", "actionType": "http.request", "parameters": parameters,
            "policies": { "retry": { "maxAttempts": 3, "baseDelayMs": 1 } } })
}

#[tokio::test]
async fn request_is_sent_as_specified_and_response_is_returned() {
    let (url, requests) = service(vec![answer(
        "200 OK",
        "content-type: application/json\r\nx-more: 1\r\n",
        r#"{"a":[1]}"#,
    )])
    .await;
    let node = call(
        &url,
        json!({ "method": "post", "query": { "q": "a b", "n": 2 }, "headers": { "X-Own": 7 },
                                  "body": { "name": "{{ trigger.name }}" } }),
    );
    let left = Bed::new()
        .await
        .carry(workflow(json!([node])), json!({ "name": "Ada" }))
        .await;
    assert_eq!(left.status(), Status::Succeeded, "{:?}", left.ended);
    let outputs = left.outputs();
    assert_eq!(
        (outputs["status"].as_u64(), &outputs["body"]),
        (Some(200), &json!({ "a": [1] }))
    );
    assert_eq!(
        (&outputs["headers"]["x-more"], &outputs["isTruncated"]),
        (&json!("1"), &json!(false))
    );
    let request = requests.lock().unwrap()[0].to_ascii_lowercase();
    assert!(request.starts_with("post /path?q=a+b&n=2 http/1.1"), "{request}");
    assert!(
        request.contains("x-own: 7") && request.contains("content-type: application/json"),
        "{request}"
    );
    assert!(
        request.contains(&format!("idempotency-key: {}:call", left.run)),
        "{request}"
    );
    assert!(
        request.contains(&format!("x-correlation-id: {}", left.run)),
        "{request}"
    );
    assert!(request.ends_with(r#"{"name":"ada"}"#), "{request}");
}

#[tokio::test]
async fn retriable_failures_are_retried_and_others_are_not() {
    for (status, repeats) in [
        ("503 Busy", true),
        ("429 Slow", true),
        ("408 Late", true),
        ("425 Early", true),
        ("400 Bad", false),
        ("404 Gone", false),
        ("409 Clash", false),
    ] {
        let (url, requests) = service(vec![answer(status, "", "why not"), answer("204 Done", "", "")]).await;
        let left = Bed::new()
            .await
            .carry(workflow(json!([call(&url, json!({}))])), json!({}))
            .await;
        let code = &status[..3];
        if repeats {
            assert_eq!(
                (left.status(), requests.lock().unwrap().len()),
                (Status::Succeeded, 2),
                "{status}"
            );
            let requests = requests.lock().unwrap();
            let key = |request: &String| {
                request
                    .lines()
                    .find(|line| line.starts_with("idempotency-key"))
                    .unwrap()
                    .to_owned()
            };
            assert_eq!(key(&requests[0]), key(&requests[1]), "the retry has the same key");
        } else {
            assert_eq!(
                (left.status(), requests.lock().unwrap().len()),
                (Status::Failed, 1),
                "{status}"
            );
            assert_eq!(left.error()["code"], format!("HTTP_{code}"));
            assert!(left.error()["message"].as_str().unwrap().contains("why not"));
        }
    }
}

#[tokio::test]
async fn broken_connection_is_retried() {
    let (url, requests) = service(vec![Vec::new(), answer("200 OK", "", "fine")]).await;
    let left = Bed::new()
        .await
        .carry(workflow(json!([call(&url, json!({}))])), json!({}))
        .await;
    assert_eq!(
        (left.status(), left.outputs()["body"].as_str()),
        (Status::Succeeded, Some("fine"))
    );
    assert!(requests.lock().unwrap().len() >= 2);
}

#[tokio::test]
async fn long_body_is_truncated_and_reading_it_is_an_error() {
    let (url, _) = service(vec![answer("200 OK", "", &"x".repeat(300 * 1024))]).await;
    let mut node = call(&url, json!({}));
    node["edges"] = json!([{ "targetNode": "flag" }]);
    let left = Bed::new().await
        .carry(
            workflow(json!([
                node,
                { "id": "flag", "actionType": "core.echo", "parameters": { "cut": "{{ context.data.call.isTruncated }}" },
                  "edges": [{ "targetNode": "read" }] },
                { "id": "read", "actionType": "core.echo", "parameters": { "body": "{{ context.data.call.body }}" } },
            ])),
            json!({}),
        )
        .await;
    assert_eq!(
        (left.status(), left.attempts("flag")),
        (Status::Failed, vec![(1, "Succeeded")])
    );
    assert_eq!(left.error()["code"], "TEMPLATE_ERROR");
    let expected = "Cannot read 'body' because the response from 'call' exceeded the 256KB limit and was truncated";
    assert_eq!(left.error()["message"], expected);
}

#[tokio::test]
async fn reading_members_of_a_body_that_is_not_json_is_an_error() {
    let (url, _) = service(vec![answer(
        "200 OK",
        "content-type: application/json\r\n",
        r#"{"a":"\ud800"}"#,
    )])
    .await;
    let mut node = call(&url, json!({}));
    node["edges"] = json!([{ "targetNode": "whole" }]);
    let left = Bed::new()
        .await
        .carry(
            workflow(json!([
                node,
                { "id": "whole", "actionType": "core.echo", "parameters": {
                    "body": "{{ context.data.call.body }}", "error": "{{ context.data.call.bodyError }}" },
                  "edges": [{ "targetNode": "read" }] },
                { "id": "read", "actionType": "core.echo", "parameters": { "a": "{{ context.data.call.body.a }}" } },
            ])),
            json!({}),
        )
        .await;
    assert_eq!(
        (left.status(), left.attempts("whole")),
        (Status::Failed, vec![(1, "Succeeded")])
    );
    let message = left.error()["message"].to_string();
    let expected = "Cannot read 'body.a' because the response from 'call' is not valid JSON: ";
    assert!(
        message.contains(expected) && message.contains("line 1 column 13"),
        "{message}"
    );
}

/// Through the trigger, a template, a request, the response and a second request, with the store in between.
#[tokio::test]
async fn numbers_keep_their_digits() {
    let digits = r#"[5.0,1.50,123456789012345678901234567890,0.1000000000000000055511151231257827,1e+400]"#;
    let json = "content-type: application/json\r\n";
    let (url, requests) = service(vec![answer("200 OK", json, &format!("{{\"n\":{digits}}}"))]).await;
    let mut first = call(&url, json!({ "method": "POST", "body": "{{ trigger.n }}" }));
    first["edges"] = json!([{ "targetNode": "second" }]);
    let mut second = call(
        &url,
        json!({ "method": "POST", "body": { "n": "{{ context.data.call.body.n }}",
                "text": "{{ context.data.call.body.n[0] }} {{ context.data.call.body.n[2] }}" } }),
    );
    second["id"] = json!("second");
    let trigger = serde_json::from_str(&format!("{{\"n\":{digits}}}")).unwrap();
    let left = Bed::new().await.carry(workflow(json!([first, second])), trigger).await;
    assert_eq!(left.status(), Status::Succeeded, "{:?}", left.ended);
    let requests = requests.lock().unwrap();
    assert!(requests[0].ends_with(digits), "{}", requests[0]);
    let expected = format!("{{\"n\":{digits},\"text\":\"5.0 123456789012345678901234567890\"}}");
    assert!(requests[1].ends_with(&expected), "{}", requests[1]);
}

#[tokio::test]
async fn invalid_request_is_refused() {
    for (parameters, hint) in [
        (json!({ "url": "{{ trigger.u }}" }), "not a URL"),
        (json!({ "url": "ftp://{{ trigger.u }}" }), "only http and https"),
        (
            json!({ "url": "http://{{ trigger.u }}", "method": "GE T" }),
            "not an HTTP method",
        ),
    ] {
        let node = json!({ "id": "a", "actionType": "http.request", "parameters": parameters });
        let left = Bed::new()
            .await
            .carry(workflow(json!([node])), json!({ "u": "localhost?key=s3cret" }))
            .await;
        assert_eq!(left.error()["code"], "INVALID_PARAMETERS", "{hint}");
        assert!(!left.error().to_string().contains("s3cret"), "{}", left.error());
        assert!(
            left.error()["message"].as_str().unwrap().contains(hint),
            "{hint}: {}",
            left.error()
        );
        assert_eq!(left.attempts("a").len(), 1);
    }
}

#[tokio::test]
async fn private_addresses_are_refused_unless_allowed() {
    let (url, requests) = service(vec![answer("200 OK", "", "fine")]).await;
    let registry = Registry::builtin(&HttpSettings::default()).unwrap();
    let guarded = Bed::on(Place::new().await, Settings::default(), registry);
    let left = guarded.carry(workflow(json!([call(&url, json!({}))])), json!({})).await;
    assert_eq!((left.status(), left.attempts("call").len()), (Status::Failed, 1));
    assert_eq!(left.error()["code"], "ADDRESS_REFUSED");
    let message = left.error()["message"].as_str().unwrap().to_owned();
    assert!(
        message.contains("`127.0.0.1`") && message.contains("allow_private_networks"),
        "{message}"
    );
    assert_eq!(requests.lock().unwrap().len(), 0);
}

#[tokio::test]
async fn redirects_are_followed() {
    let (url, requests) = service(vec![
        answer("302 Found", "location: /there\r\n", ""),
        answer("200 OK", "", "fine"),
    ])
    .await;
    let left = Bed::new()
        .await
        .carry(workflow(json!([call(&url, json!({}))])), json!({}))
        .await;
    assert_eq!(left.outputs()["body"], "fine", "{:?}", left.ended);
    assert!(requests.lock().unwrap()[1].starts_with("GET /there "));
}
