//! Requests with events in each form, and requests that are refused.

use super::*;
use serde_json::json;

fn read(headers: &[(&str, &str)], body: &str) -> Result<Vec<Event>, String> {
    let headers = Headers::new(headers.iter().map(|(name, value)| (*name, value.as_bytes())));
    let mut number = 0;
    let mut new_id = || {
        number += 1;
        format!("new-{number}")
    };
    events_of(&headers, body.as_bytes(), &mut new_id).map_err(|error| error.to_string())
}

const STRUCTURED: (&str, &str) = ("Content-Type", "Application/CloudEvents+json; charset=utf-8");
const BATCH: (&str, &str) = ("content-type", "application/cloudevents-batch+json");
const PLAIN: (&str, &str) = ("content-type", "application/json");

fn event(extra: Value) -> String {
    let mut event = json!({"specversion": "1.0", "id": "1", "source": "/shop", "type": "order.created"});
    for (name, value) in extra.as_object().unwrap() {
        event[name] = value.clone();
    }
    event.to_string()
}

#[test]
fn structured_events() {
    let events = read(
        &[STRUCTURED],
        &event(json!({"data": {"total": 5.0}, "subject": "o1", "myext": 7, "time": "2026-01-01T00:00:00Z"})),
    );
    let event = &events.unwrap()[0];
    assert_eq!(
        (event.id.as_str(), event.source.as_str(), event.event_type.as_str()),
        ("1", "/shop", "order.created")
    );
    assert_eq!(event.data.to_string(), r#"{"total":5.0}"#);
    assert_eq!(event.attributes["subject"], "o1");
    assert_eq!(event.attributes["myext"], 7);
    assert!(!event.attributes.contains_key("data"));
}

#[test]
fn data_in_base64() {
    let read_data = |extra: Value| read(&[STRUCTURED], &event(extra)).map(|events| events[0].data.clone());
    assert_eq!(read_data(json!({"data_base64": "eyJhIjoxfQ=="})), Ok(json!({"a": 1})));
    assert_eq!(
        read_data(json!({"data_base64": "aGk=", "datacontenttype": "text/plain"})),
        Ok(json!("hi"))
    );
    assert_eq!(
        read_data(json!({"data_base64": "/w==", "datacontenttype": "image/png"})),
        Ok(json!("/w=="))
    );
    assert_eq!(read_data(json!({})), Ok(Value::Null));
}

#[test]
fn batches() {
    let body = format!("[{},{}]", event(json!({})), event(json!({"id": "2"})));
    let events = read(&[BATCH], &body).unwrap();
    assert_eq!(
        events.iter().map(|event| event.id.as_str()).collect::<Vec<_>>(),
        ["1", "2"]
    );
    assert_eq!(read(&[BATCH], "[]"), Ok(Vec::new()));
}

#[test]
fn binary_events() {
    let headers = [
        ("Content-Type", "application/json"),
        ("CE-SpecVersion", "1.0"),
        ("ce-id", "1"),
        ("ce-source", "/shop%20eu"),
        ("ce-type", "order.created"),
        ("ce-subject", r#""quoted \" text""#),
        ("ce-city", "Z%C3%BCrich"),
    ];
    let event = &read(&headers, r#"{"total":5}"#).unwrap()[0];
    assert_eq!(event.source, "/shop eu");
    assert_eq!(event.data, json!({"total": 5}));
    assert_eq!(event.attributes["subject"], "quoted \" text");
    assert_eq!(event.attributes["city"], "Zürich");
    assert_eq!(event.attributes["datacontenttype"], "application/json");
    let mut text = headers;
    text[0].1 = "text/plain";
    assert_eq!(read(&text, "hi").unwrap()[0].data, json!("hi"));
}

#[test]
fn plain_events() {
    let events = read(&[PLAIN], r#"{"type":"a","data":{"x":1}}"#).unwrap();
    assert_eq!(
        (events[0].id.as_str(), events[0].source.as_str()),
        ("new-1", DEFAULT_SOURCE)
    );
    let events = read(&[PLAIN], r#"[{"type":"a"},{"type":"b","id":"7","source":"s"}]"#).unwrap();
    assert_eq!((events[0].id.as_str(), events[1].id.as_str()), ("new-1", "7"));
}

#[test]
fn invalid_events_are_refused_with_the_reason() {
    let many = format!("[{}]", vec!["{}"; 1001].join(","));
    let long = event(json!({"subject": "x".repeat(3000)}));
    for (headers, body, expected) in [
        (
            vec![STRUCTURED],
            "{",
            "the body is not valid JSON: EOF while parsing an object at line 1 column 1",
        ),
        (vec![STRUCTURED], "[]", "an event must be a JSON object"),
        (vec![STRUCTURED], "{}", "`specversion` is missing; it must be 1.0"),
        (
            vec![STRUCTURED],
            r#"{"specversion":"0.3"}"#,
            "`specversion` 0.3 is not supported; it must be 1.0",
        ),
        (
            vec![STRUCTURED],
            r#"{"specversion":"1.0","source":"s","type":"t"}"#,
            "`id` is missing",
        ),
        (
            vec![STRUCTURED],
            r#"{"specversion":"1.0","id":"","source":"s","type":"t"}"#,
            "`id` must be a text that is not empty",
        ),
        (
            vec![STRUCTURED],
            r#"{"specversion":"1.0","id":7,"source":"s","type":"t"}"#,
            "`id` must be a text that is not empty",
        ),
        (
            vec![STRUCTURED],
            r#"{"specversion":"1.0","id":"1","source":"s","type":"t","a":{}}"#,
            "`a` must be a text, a number or a boolean",
        ),
        (
            vec![STRUCTURED],
            r#"{"specversion":"1.0","id":"1","source":"s","type":"t","my_ext":1}"#,
            "`my_ext` is not an attribute: lower-case letters and digits only",
        ),
        (
            vec![STRUCTURED],
            r#"{"specversion":"1.0","id":"1","source":"s","type":"t","time":"now"}"#,
            "`time` must be an instant, such as 2026-03-01T09:00:00Z",
        ),
        (
            vec![STRUCTURED],
            r#"{"specversion":"1.0","id":"1\n","source":"s","type":"t"}"#,
            "`id` contains a control character",
        ),
        (
            vec![STRUCTURED],
            r#"{"specversion":"1.0","id":"1","source":"s","type":"t","data":1,"data_base64":"AA=="}"#,
            "an event has either `data` or `data_base64`",
        ),
        (
            vec![STRUCTURED],
            r#"{"specversion":"1.0","id":"1","source":"s","type":"t","data_base64":"?"}"#,
            "`data_base64` is not base64",
        ),
        (vec![STRUCTURED], long.as_str(), "`subject` is longer than 2048 bytes"),
        (vec![BATCH], "{}", "a batch must be a JSON list of events"),
        (vec![BATCH], "[{}]", "event 0: `specversion` is missing; it must be 1.0"),
        (
            vec![BATCH],
            many.as_str(),
            "a request must not hold more than 1000 events",
        ),
        (vec![PLAIN], r#"[{"type":"a"},{}]"#, "event 1: `type` is missing"),
        (
            vec![("content-type", "application/cloudevents+avro")],
            "",
            "the content type `application/cloudevents+avro` is not supported; send `application/json`, `application/cloudevents+json` or `application/cloudevents-batch+json`, or any type with the headers `ce-id`, `ce-source`, `ce-type` and `ce-specversion: 1.0`",
        ),
        (
            vec![("content-type", "text/plain")],
            "x",
            "the content type `text/plain` is not supported; send `application/json`, `application/cloudevents+json` or `application/cloudevents-batch+json`, or any type with the headers `ce-id`, `ce-source`, `ce-type` and `ce-specversion: 1.0`",
        ),
        (
            vec![("ce-id", "1"), ("ce-id", "2")],
            "",
            "the header `ce-id` occurs more than once",
        ),
        (vec![("ce-id", "%ff")], "", "the header `ce-id` is not valid UTF-8"),
        (
            vec![("ce-datacontenttype", "a")],
            "",
            "the content type belongs to `Content-Type`, not to `ce-datacontenttype`",
        ),
        (
            vec![("ce-id", "1"), ("content-type", "application/json")],
            "{",
            "the data is not valid JSON: EOF while parsing an object at line 1 column 1",
        ),
    ] {
        assert_eq!(read(&headers, body), Err(expected.to_owned()), "{headers:?} {body:.80}");
    }
}
