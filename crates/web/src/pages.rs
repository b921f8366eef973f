//! The dashboard: pages at `/`, made on the server.
//!
//! What must stay true:
//! * Pages read through the caller's session, as the API does, and change nothing. Actions are requests to the API that scripts
//!   of the pages send. `POST` to a page checks, dry-runs or compares a document and stores nothing.
//! * Everything comes from this server: no page loads anything from elsewhere, and none has an inline script or style
//!   ([`POLICY`]). Texts from documents, payloads and errors are written by `maud`, which escapes them.
//! * Numbers are written by the server as they are stored; no script parses them.
//! * A client that does not accept HTML gets errors as JSON, like everywhere in the API.

mod assets;
mod chart;
mod difference;
mod download;
mod drawer;
mod dry_run;
mod editor;
mod forms;
mod frame;
mod graph;
mod graph_difference;
mod inbox;
mod json;
mod lanes;
mod layers;
mod load;
mod parts;
mod run;
mod runs;
pub(crate) mod session;
mod system;
mod timeline;
mod triggers;
mod versions;
mod workflow;
mod workflows;

pub(crate) use graph::Graphs;

use crate::{Web, error::ApiError};
use axum::{
    Router,
    extract::{MatchedPath, Request},
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header},
    response::{Html, IntoResponse, Response},
    routing::{get, post},
};
use frame::Frame;
use maud::{Markup, html};

/// What a page may load and do: only what comes from this server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// The routes of the pages.
pub(crate) fn routes() -> Router<Web> {
    Router::new()
        .route("/", get(runs::page))
        .route("/runs/{id}", get(run::page))
        .route("/runs/{id}/data/{part}", get(download::of_run))
        .route(
            "/runs/{id}/nodes/{node}/attempts/{attempt}/{part}",
            get(download::of_attempt),
        )
        .route("/workflows", get(workflows::page))
        .route("/workflows/new", get(editor::new).post(editor::check))
        .route("/workflows/new/dry-run", post(editor::dry_run))
        .route("/workflows/{id}", get(workflow::page))
        .route("/workflows/{id}/difference", get(versions::difference))
        .route("/workflows/{id}/edit", get(editor::edit).post(editor::compare))
        .route("/inbox", get(inbox::list))
        .route("/inbox/{id}", get(inbox::page))
        .route("/system", get(system::page))
        .route("/sign-in", post(session::sign_in))
        .route("/sign-out", post(session::sign_out))
        .route("/assets/{file}", get(assets::get))
}

/// Whether a route is a page.
fn is_page(route: &str) -> bool {
    route == "/"
        || ["/runs/", "/workflows", "/inbox", "/system"]
            .iter()
            .any(|begin| route.starts_with(begin))
}

fn route(request: &Request) -> Option<&str> {
    request.extensions().get::<MatchedPath>().map(MatchedPath::as_str)
}

/// Whether the client is a browser that opens a page.
fn accepts_html(headers: &HeaderMap) -> bool {
    let accepts = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    accepts.is_some_and(|accept| accept.contains("text/html"))
}

fn has_value(headers: &HeaderMap, name: &str, value: &str) -> bool {
    headers.get(name).is_some_and(|found| found == value)
}

/// Whether a person opens a page, possibly from a link of another site. Such a request changes nothing, and the other site cannot
/// read the response.
pub(crate) fn is_visit(request: &Request) -> bool {
    let headers = request.headers();
    request.method() == Method::GET
        && route(request).is_some_and(is_page)
        && has_value(headers, "sec-fetch-mode", "navigate")
        && has_value(headers, "sec-fetch-dest", "document")
        && !headers.contains_key(header::ORIGIN)
}

/// How a refusal is shown to this client.
#[derive(Clone, Copy)]
pub(crate) struct Shown {
    is_page: bool,
    comes_from_elsewhere: bool,
}

impl Shown {
    /// A browser gets a page, unless it asks for something of the API.
    pub fn to(request: &Request) -> Shown {
        let headers = request.headers();
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        let path = request.uri().path();
        let of_pages = match route(request) {
            Some(route) => is_page(route),
            None => !path.starts_with("/api/") && !path.starts_with("/wh/"),
        };
        Shown {
            is_page: is_read && of_pages && accepts_html(headers),
            comes_from_elsewhere: has_value(headers, "sec-fetch-site", "cross-site"),
        }
    }

    /// The response, as a page if it is an error and the client shows pages.
    pub fn finish(self, mut response: Response) -> Response {
        if !self.is_page {
            return response;
        }
        let Some(error) = response.extensions_mut().remove::<ApiError>() else {
            return response;
        };
        let page = match error.status {
            StatusCode::UNAUTHORIZED => session::page(&error, self.comes_from_elsewhere),
            _ => problem(&error),
        };
        let mut page = page.into_response();
        *page.status_mut() = error.status;
        for (name, value) in response.headers() {
            let is_body = [header::CONTENT_TYPE, header::CONTENT_LENGTH].contains(name);
            if !is_body {
                page.headers_mut().append(name, value.clone());
            }
        }
        // A link of another site did not send the cookie; it may still be good.
        if error.status == StatusCode::UNAUTHORIZED && !self.comes_from_elsewhere {
            session::forget(page.headers_mut());
        }
        page
    }
}

/// The page of an error.
fn problem(error: &ApiError) -> Page {
    let (title, hint) = match error.status {
        StatusCode::NOT_FOUND => (
            "Not found",
            "It does not exist, was deleted, or belongs to another tenant.",
        ),
        StatusCode::FORBIDDEN => ("Not allowed", "Sign in with a key or token that has this scope."),
        StatusCode::SERVICE_UNAVAILABLE => ("Not available at the moment", "Reload the page after a moment."),
        StatusCode::BAD_REQUEST => ("This address is not valid", "Check the filters in the address."),
        _ => ("Something went wrong", "The log of the server has the cause."),
    };
    let message = match error.code {
        "NOT_FOUND" => "There is no page at this address.",
        _ => error.message.as_ref(),
    };
    Frame::bare(title).page(html! {
        div.problem {
            p.code { (error.status.as_u16()) }
            h1 { (title) }
            p { (message) }
            p.muted { (hint) }
            p { a.button href="/" { "All runs" } " " button.button.js data-sign-out { "Sign in as another" } }
        }
    })
}

/// A page.
pub(crate) struct Page(Markup);

impl IntoResponse for Page {
    fn into_response(self) -> Response {
        const OPENER: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
        let headers = [
            (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
            (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
            (header::REFERRER_POLICY, HeaderValue::from_static("same-origin")),
            (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
            (OPENER, HeaderValue::from_static("same-origin")),
        ];
        (headers, Html(self.0.into_string())).into_response()
    }
}
