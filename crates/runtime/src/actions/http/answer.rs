//! Reading a response: its body up to a limit, and its `Retry-After`.

use super::{HttpOutputs, MAX_BODY, ParseBody, client::Response, connection_failure};
use fermata_core::Failure;
use http::{HeaderMap, header};
use http_body_util::BodyExt;
use jiff::{Timestamp, fmt::rfc2822};
use serde_json::{Map, Value};
use std::time::Duration;

/// The largest `Retry-After` that is followed. Longer ones are usually mistakes.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// The delay that the service requests: `Retry-After` as seconds or as a date.
///
/// A date is compared with the response's own `Date`, so that the clocks of the two machines need not agree.
pub(super) fn retry_after_ms(headers: &HeaderMap, now: Timestamp) -> Option<u64> {
    let text = |name| Some(headers.get(name)?.to_str().ok()?.trim());
    let date = |text: &str| rfc2822::DateTimeParser::new().parse_timestamp(text).ok();
    let wanted = text(header::RETRY_AFTER)?;
    let wait = if wanted.bytes().all(|byte| byte.is_ascii_digit()) && !wanted.is_empty() {
        // A number that does not fit is a very long delay.
        Duration::from_secs(wanted.parse().unwrap_or(u64::MAX))
    } else {
        let now = text(header::DATE).and_then(date).unwrap_or(now);
        date(wanted)?.duration_since(now).try_into().unwrap_or_default()
    };
    u64::try_from(wait.min(LONGEST_WAIT).as_millis()).ok()
}

/// Reads the body until it ends or exceeds the limit.
///
/// Decompressed bytes are counted, in small pieces: a body that decompresses to gigabytes costs no more than any other that is
/// truncated, and the rest of it is never read.
pub(super) async fn read(mut response: Response, parse: ParseBody) -> Result<HttpOutputs, Failure> {
    let status = response.status().as_u16();
    let mut headers = Map::new();
    for (name, value) in response.headers() {
        let text = String::from_utf8_lossy(value.as_bytes()).into_owned();
        match headers.get_mut(name.as_str()) {
            Some(Value::String(earlier)) => {
                earlier.push_str(", ");
                earlier.push_str(&text);
            }
            _ => {
                headers.insert(name.as_str().to_owned(), Value::String(text));
            }
        }
    }
    let mut bytes = Vec::new();
    let mut is_truncated = false;
    while let Some(frame) = response.frame().await {
        let Ok(chunk) = frame.map_err(|error| connection_failure(&*error))?.into_data() else {
            continue; // trailers
        };
        let room = MAX_BODY - bytes.len();
        bytes.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if chunk.len() > room {
            is_truncated = true;
            break;
        }
    }
    let says_json = headers.get("content-type").and_then(Value::as_str).is_some_and(|kind| {
        let kind = kind.split(';').next().unwrap_or_default().trim();
        kind.eq_ignore_ascii_case("application/json") || kind.to_ascii_lowercase().ends_with("+json")
    });
    let is_json = match parse {
        ParseBody::Auto => says_json,
        ParseBody::Json => true,
        ParseBody::Text => false,
    };
    let (body, error) = match is_json && !is_truncated {
        true => json_or_text(&bytes),
        false => (text(&bytes), None),
    };
    // With `ParseBody::Json`, a body of another media type that is not JSON is no error.
    let body_error = error.filter(|_| says_json);
    Ok(HttpOutputs {
        status,
        headers,
        body,
        body_error,
        is_truncated,
    })
}

fn text(bytes: &[u8]) -> Value {
    Value::String(String::from_utf8_lossy(bytes).into_owned())
}

/// A body whose media type is JSON. If it cannot be parsed it is kept as text, with the reason. An empty body has no reason:
/// nothing is lost.
fn json_or_text(bytes: &[u8]) -> (Value, Option<String>) {
    let json = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    match serde_json::from_slice(json) {
        Ok(value) => (value, None),
        Err(_) if json.trim_ascii().is_empty() => (text(json), None),
        Err(error) => (text(bytes), Some(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(headers: &[(&'static str, &str)]) -> Option<u64> {
        let headers = headers
            .iter()
            .map(|(name, value)| (header::HeaderName::from_static(name), value.parse().unwrap()));
        retry_after_ms(&headers.collect(), "2030-01-01T00:00:00Z".parse().unwrap())
    }

    #[test]
    fn retry_after_is_seconds_or_a_date_and_at_most_a_day() {
        const DAY: u64 = 24 * 60 * 60 * 1000;
        for (text, expected) in [
            ("0", Some(0)),
            (" 7 ", Some(7000)),
            ("86400", Some(DAY)),
            ("86401", Some(DAY)),
            ("99999999999999999999999999", Some(DAY)),
            ("Tue, 01 Jan 2030 00:01:00 GMT", Some(60_000)),
            ("Mon, 31 Dec 2029 23:59:59 GMT", Some(0)),
            ("Fri, 01 Feb 2030 00:00:00 GMT", Some(DAY)),
            ("-1", None),
            ("1.5", None),
            ("soon", None),
            ("", None),
        ] {
            assert_eq!(wait(&[("retry-after", text)]), expected, "{text}");
        }
        assert_eq!(wait(&[]), None);
    }

    #[test]
    fn body_that_is_not_json_is_kept_as_text_with_the_reason() {
        let read = |text: &str| json_or_text(text.as_bytes());
        assert_eq!(
            read("\u{feff}{\"a\":1}").0["a"],
            1,
            "a byte order mark is not part of the value"
        );
        let digits = r#"[5.0,1.50,1e+400,123456789012345678901234567890,0.1000000000000000055511]"#;
        assert_eq!(read(digits).0.to_string(), digits, "numbers keep their digits");
        assert_eq!(read(" \n"), (Value::String(" \n".to_owned()), None));
        for broken in [r#"{"name":"\ud800"}"#, "{\"a\":1", "<html></html>", r#"{"n":01}"#] {
            let (body, error) = read(broken);
            assert_eq!(body, broken);
            assert!(
                error.as_ref().is_some_and(|error| error.contains("line 1")),
                "{error:?}"
            );
        }
        let (body, error) = json_or_text(b"{\"a\":\"\xff\"}");
        assert!(body.is_string() && error.is_some());
    }

    #[test]
    fn retry_date_is_compared_with_the_clock_of_the_service() {
        let headers = [
            ("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ("retry-after", "Sun, 06 Nov 1994 08:49:40 GMT"),
        ];
        assert_eq!(wait(&headers), Some(3000));
        assert_eq!(
            wait(&[("date", "?"), ("retry-after", "Tue, 01 Jan 2030 00:00:02 GMT")]),
            Some(2000)
        );
    }
}
