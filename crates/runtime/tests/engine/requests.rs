//! The requests of Runlater tasks: which redirects they follow, and what their templates become.

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
