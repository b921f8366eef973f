//! `ANY /echo/{name}`: answers with the body that was sent, or fails as the query says.

use super::{LONGEST, NoAnswer, Playing, Refused};
use crate::duration;
use axum::{
    body::Bytes,
    extract::{Path, Query, State},
    http::{HeaderMap, HeaderValue, StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use std::time::Duration;

/// The most text that is made.
const MAX_SIZE: usize = 16 * 1024 * 1024;
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// The parameters of the query.
#[derive(Debug, Default, PartialEq)]
struct Knobs {
    status: StatusCode,
    delay: Duration,
    fail: u64,
    reset: bool,
    broken: bool,
    size: Option<usize>,
}

impl Knobs {
    fn of(query: &[(String, String)]) -> Result<Knobs, Refused> {
        let mut knobs = Knobs::default();
        for (name, value) in query {
            let wrong = |what: &str| Refused(format!("`{name}={value}`: {what}"));
            match name.as_str() {
                "status" => {
                    let status = value.parse().ok().filter(|status| (200..600).contains(status));
                    let status = status.and_then(|status| StatusCode::from_u16(status).ok());
                    knobs.status = status.ok_or_else(|| wrong("a status is a number from 200 to 599"))?;
                }
                "delay" => knobs.delay = pause(value).map_err(|what| wrong(&what))?,
                "fail" => knobs.fail = value.parse().map_err(|_| wrong("a number of requests is needed"))?,
                "reset" => knobs.reset = value.parse().map_err(|_| wrong("write true or false"))?,
                "broken" => knobs.broken = value.parse().map_err(|_| wrong("write true or false"))?,
                "size" => {
                    let size = value.parse().ok().filter(|size| *size <= MAX_SIZE);
                    knobs.size = Some(size.ok_or_else(|| wrong("a number of bytes is needed, 16 MiB at most"))?);
                }
                _ => {
                    return Err(wrong("there are only status, delay, fail, reset, broken and size"));
                }
            }
        }
        Ok(knobs)
    }
}

/// Reads a delay.
pub fn pause(text: &str) -> Result<Duration, String> {
    match duration::parse(text).map_err(|error| error.to_string())? {
        pause if pause <= LONGEST => Ok(pause),
        _ => Err("an hour is the longest".to_owned()),
    }
}

pub async fn echo(
    State(playing): State<Playing>,
    Path(name): Path<String>,
    Query(query): Query<Vec<(String, String)>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Refused> {
    let knobs = Knobs::of(&query)?;
    tokio::time::sleep(knobs.delay).await;
    if knobs.fail > 0 {
        let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok());
        // Requests without a key are counted by name.
        let counted = key.map_or_else(|| format!("name {name}"), |key| format!("key {key}"));
        let count = playing.counts.count(&counted);
        if count <= knobs.fail {
            let text = format!("request {count} of {} that fail", knobs.fail);
            return Ok((StatusCode::SERVICE_UNAVAILABLE, text).into_response());
        }
    }
    if knobs.reset {
        let mut none = StatusCode::OK.into_response();
        none.extensions_mut().insert(NoAnswer);
        return Ok(none);
    }
    let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(&body).is_ok();
    let (media, body) = match knobs.size {
        Some(size) => (TEXT, Bytes::from("x".repeat(size))),
        None if knobs.broken => (JSON, half(&body)),
        None if is_json => (JSON, body),
        None => (TEXT, body),
    };
    Ok((knobs.status, [(CONTENT_TYPE, media)], body).into_response())
}

/// The first half of a body, or of another one if there is none.
fn half(body: &Bytes) -> Bytes {
    match body.len() {
        0..2 => Bytes::from_static(b"{\"half\": "),
        length => body.slice(..length / 2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &[(&str, &str)]) -> Result<Knobs, String> {
        let query: Vec<_> = query
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        Knobs::of(&query).map_err(|refused| refused.0)
    }

    #[test]
    fn knobs_are_read_or_refused() {
        let all = read(&[
            ("status", "402"),
            ("delay", "200ms"),
            ("fail", "2"),
            ("reset", "true"),
            ("broken", "false"),
            ("size", "300000"),
        ]);
        let expected = Knobs {
            status: StatusCode::PAYMENT_REQUIRED,
            delay: Duration::from_millis(200),
            fail: 2,
            reset: true,
            broken: false,
            size: Some(300_000),
        };
        assert_eq!(all, Ok(expected));
        assert_eq!(read(&[]), Ok(Knobs::default()));
        for (name, value, says) in [
            ("status", "99", "from 200 to 599"),
            ("status", "x", "from 200 to 599"),
            ("delay", "5", "is missing"),
            ("delay", "2h", "an hour is the longest"),
            ("fail", "-1", "a number of requests"),
            ("reset", "yes", "true or false"),
            ("size", "99999999999", "16 MiB at most"),
            ("stauts", "402", "there are only status"),
        ] {
            let refused = read(&[(name, value)]).expect_err(name);
            assert!(refused.contains(says) && refused.contains(name), "{refused}");
        }
    }
}
