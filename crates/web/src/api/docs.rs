//! The OpenAPI document, and a page to try every operation in the browser. Everything is in the binary; the page loads nothing
//! from elsewhere and runs no inline script.

use crate::{error::ApiError, extract::Name};
use axum::{
    http::header,
    response::{IntoResponse, Response},
};

/// The document that `api/openapi.rs` makes.
const OPENAPI: &str = include_str!("../../../../docs/openapi.json");

/// What the page may load and do: only what comes from this server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// `GET /openapi.json`
pub(crate) async fn openapi() -> Response {
    send("application/json", OPENAPI)
}

/// `GET /docs`
pub(crate) async fn page() -> Response {
    send("text/html; charset=utf-8", include_str!("docs/page.html"))
}

/// `GET /docs/{file}`
pub(crate) async fn file(Name(name): Name) -> Result<Response, ApiError> {
    match name.as_str() {
        "page.js" => Ok(send("text/javascript; charset=utf-8", include_str!("docs/page.js"))),
        "page.css" => Ok(send("text/css; charset=utf-8", include_str!("docs/page.css"))),
        _ => Err(ApiError::not_found("NOT_FOUND", "the page has no such file".to_owned())),
    }
}

fn send(media_type: &'static str, text: &'static str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, media_type),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, text).into_response()
}
