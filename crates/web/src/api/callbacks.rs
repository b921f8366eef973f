//! Callbacks: another system sends the result that a wait needs. Only the token in the URL authorises it.
//!
//! What must stay true:
//! * A callback is durable before the response 200, and a wait accepts one callback.
//! * A body is not read beyond the limit of a payload.
//! * The token is never logged and never part of a response.

use super::inbox::{not_given, respond};
use crate::{
    Web,
    body::read,
    error::ApiError,
    extract::{bad_json, check_depth},
    strict_json::Strict,
};
use axum::{
    Json,
    extract::{Path, Request, State, rejection::PathRejection},
};
use fermata_runtime::inbox::Given;
use serde_json::Value;

/// The longest token, in bytes.
const MAX_TOKEN: usize = 128;

/// `POST /wh/{token}`. Also accepted while the server stops: the process that claims the run next uses it.
pub(crate) async fn answer(
    State(web): State<Web>,
    token: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Json<Value>, ApiError> {
    let token = token.ok().filter(|token| token.len() <= MAX_TOKEN);
    let Path(token) = token.ok_or_else(unknown)?;
    let mut received = read(request, web.config.max_callback_bytes, &web).await?;
    received.expand()?;
    let (bytes, share) = (received.bytes, received.share);
    let length = bytes.len();
    let parse = move || payload(&bytes);
    let (payload, is_json) = web.offload().run(length, parse).await?;
    let given = web.deliver(token, payload, is_json, share).await.map_err(not_given)?;
    match given {
        Given::Closed => Err(ApiError::conflict(
            "CALLBACK_CLOSED",
            "this callback was already received, or its wait has ended (timed out, cancelled or skipped)".to_owned(),
        )),
        given => respond(given, unknown),
    }
}

fn unknown() -> ApiError {
    ApiError::not_found(
        "CALLBACK_NOT_FOUND",
        "no wait has this callback token; check the URL".to_owned(),
    )
}

/// The payload of a callback: JSON if it parses as JSON, whatever its media type, otherwise text; and whether it was
/// JSON. An empty body is JSON `null`.
fn payload(bytes: &[u8]) -> Result<(Value, bool), ApiError> {
    let text = std::str::from_utf8(bytes);
    let text = text.map_err(|_| ApiError::invalid("the body is neither JSON nor UTF-8 text"))?;
    let json = text.trim_ascii();
    if json.is_empty() {
        return Ok((Value::Null, true));
    }
    // Plain text may contain any number of brackets.
    if json.starts_with(['[', '{']) {
        check_depth(json.as_bytes())?;
    }
    match serde_json::from_str(json) {
        Ok(Strict(value)) => Ok((value, true)),
        // A duplicate key: JSON parsers disagree about its value.
        Err(error) if error.is_data() => Err(bad_json(error)),
        Err(_) => Ok((Value::String(text.to_owned()), false)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::StatusCode;
    use serde_json::json;

    #[test]
    fn a_body_that_is_not_json_is_text() {
        for (bytes, value) in [
            (&b""[..], Value::Null),
            (b" \r\n", Value::Null),
            (b"null", Value::Null),
            (b" {\"a\": [1, 2.5, \"x\"]}\n", json!({ "a": [1, 2.5, "x"] })),
            (b"7", json!(7)),
            (b"\"text\"", json!("text")),
            (b"status=paid&id=7", json!("status=paid&id=7")),
            (b" {\"a\": ", json!(" {\"a\": ")),
            ("größe\n".as_bytes(), json!("größe\n")),
            (b"a\0b", json!("a\0b")),
        ] {
            assert_eq!(payload(bytes).unwrap().0, value);
        }
        let brackets = "see ".to_owned() + &"[".repeat(500);
        assert_eq!(payload(brackets.as_bytes()).unwrap(), (json!(brackets), false));
    }

    #[test]
    fn deep_invalid_and_ambiguous_bodies_are_refused() {
        let refused = |bytes: &[u8]| payload(bytes).unwrap_err();
        let deep = format!(" {}{}", "[".repeat(101), "]".repeat(101));
        assert_eq!(refused(deep.as_bytes()).code, "BODY_TOO_DEEP");
        assert_eq!(refused("[".repeat(100_000).as_bytes()).code, "BODY_TOO_DEEP");
        assert_eq!(refused(b"caf\xe9").code, "INVALID_REQUEST");
        assert_eq!(refused(br#"{"paid":true,"paid":false}"#).code, "INVALID_REQUEST");
        assert_eq!(refused(b"\xff").status, StatusCode::BAD_REQUEST);
    }
}
