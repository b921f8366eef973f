//! Streams of server-sent events: the events of one execution, and the changes of a list of executions.
//!
//! | stream | messages |
//! | --- | --- |
//! | of an execution | `events`: one journal row, whose sequence is the id; `end`: its row in lists |
//! | of a list | `execution`: a row that is new or changed; `removed`: the id of a row that left the list; `reset`: forget all rows |
//!
//! What must stay true:
//! * A message is a whole journal row, so a client that continues after the last id that it has misses and repeats nothing.
//! * A stream is written while its client reads. One that does not read is disconnected (`write_timeout`), and until then holds one
//!   part of a journal, no connection to the database and none of the limited reads.
//! * A stream ends when its credential is not accepted any more, and when the server shuts down.

use super::list::{ListQuery, list_filter};
use crate::{
    Web,
    door::{As, Credential},
    error::ApiError,
    extract::{ExecutionId, Query},
    views::{EventView, RunRow},
};
use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderName, HeaderValue, header},
    response::{IntoResponse, Response},
};
use fermata_core::{RunId, duration};
use fermata_runtime::{
    EngineError, Session,
    timeline::Entry,
    watch::{Fed, FedRow, ListFeed, MAX_LISTED, RunFeed},
};
use fermata_store::reads::RunRecord;
use futures::stream;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{collections::VecDeque, convert::Infallible, fmt::Write, sync::Arc, time::Duration};
use tokio::time::{Instant, sleep_until};

/// After this time without a message a comment is sent, so that proxies keep the connection and a client can see that it is alive.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// How often the credential is checked. A revoked key is accepted for at most 4.5 s (`auth`).
const CHECK: Duration = Duration::from_millis(400);

/// How long a client waits before it connects again.
const START: &str = "retry: 1000\n\n";

/// How many executions a list has if the request does not say it.
const LISTED: u32 = 50;

/// The longest stream that a request may ask for.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunQuery {
    /// Only journal rows after this one, for a client that cannot set `Last-Event-ID` when it connects first.
    after: Option<u32>,
    /// How long the stream stays open, such as `30s`; without it until the execution ends.
    timeout: Option<String>,
}

/// `GET /api/v1/executions/{id}/stream?after=12&timeout=30s`: the events of an execution, as `include=events` shows them.
pub(crate) async fn run(
    State(web): State<Web>,
    As(session): As,
    ExecutionId(id): ExecutionId,
    Query(query): Query<RunQuery>,
    credential: Credential,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let after = match headers.get(LAST_EVENT_ID) {
        None => query.after.unwrap_or(0),
        Some(id) => sequence(id).ok_or_else(|| {
            ApiError::parameter("`Last-Event-ID` must be the id of a message of this stream: a journal sequence")
        })?,
    };
    let closes_at = closing_time(query.timeout.as_deref())?;
    let feed = session.follow(id, after, render_events).await?;
    let feed = RunStream {
        feed,
        id,
        rows: VecDeque::new(),
    };
    Ok(respond(Live::new(web, session, credential, closes_at, feed)))
}

/// The filters of the list of executions.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct StreamQuery {
    /// Terms such as `status:failed workflow:order-*`.
    query: Option<String>,
    status: Option<String>,
    workflow_id: Option<String>,
    tenant_id: Option<String>,
    correlation_id: Option<String>,
    request_id: Option<String>,
    runner_id: Option<String>,
    created_after: Option<String>,
    created_before: Option<String>,
    search: Option<String>,
    /// How many executions the stream follows.
    limit: Option<u32>,
    /// How long the stream stays open, such as `30s`.
    timeout: Option<String>,
}

impl StreamQuery {
    /// The same list, as one page of the newest executions.
    fn list(self) -> ListQuery {
        ListQuery {
            query: self.query,
            status: self.status,
            workflow_id: self.workflow_id,
            tenant_id: self.tenant_id,
            correlation_id: self.correlation_id,
            request_id: self.request_id,
            runner_id: self.runner_id,
            created_after: self.created_after,
            created_before: self.created_before,
            search: self.search,
            order: None,
            limit: Some(self.limit.unwrap_or(LISTED)),
            cursor: None,
        }
    }
}

/// `GET /api/v1/stream?query=workflow:order status:failed`: the newest executions of a list, as they change.
pub(crate) async fn list(
    State(web): State<Web>,
    As(session): As,
    Query(query): Query<StreamQuery>,
    credential: Credential,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let closes_at = closing_time(query.timeout.as_deref())?;
    if query.limit.is_some_and(|limit| !(1..=MAX_LISTED).contains(&limit)) {
        return Err(ApiError::parameter(format!(
            "`limit` must be between 1 and {MAX_LISTED}: so many of the newest executions are followed"
        )));
    }
    let filter = list_filter(&session, query.list()).await?;
    let feed = session.follow_list(filter, render_row).await?;
    let feed = ListStream {
        feed,
        reset: headers.contains_key(LAST_EVENT_ID),
        messages: 0,
    };
    Ok(respond(Live::new(web, session, credential, closes_at, feed)))
}

fn sequence(id: &HeaderValue) -> Option<u32> {
    let text = id.to_str().ok()?.trim();
    match text.is_empty() {
        true => Some(0),
        false => text.parse().ok(),
    }
}

fn closing_time(timeout: Option<&str>) -> Result<Option<Instant>, ApiError> {
    let Some(text) = timeout else { return Ok(None) };
    let time = duration::parse(text).ok().filter(|time| *time <= LONGEST);
    let time = time
        .ok_or_else(|| ApiError::parameter("`timeout` must be a duration such as 30s, 10m or 1h, at most 24 hours"))?;
    Ok(Some(Instant::now() + time))
}

fn render_events(entries: Vec<Entry>) -> String {
    let views: Vec<EventView> = entries.into_iter().map(EventView::from).collect();
    to_text(&views)
}

fn render_row(run: &RunRecord) -> String {
    to_text(&RunRow::from(run))
}

/// JSON on one line, as a message needs it.
fn to_text(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned())
}

/// A stream as a response.
fn respond<F: Feed>(live: Live<F>) -> Response {
    let body = stream::unfold(live, |mut live| async {
        let part = live.next().await?;
        Some((Ok::<_, Infallible>(part), live))
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
        // nginx would collect the messages otherwise.
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, Body::from_stream(body)).into_response()
}

/// What a feed gives to its stream.
enum Part {
    /// Messages.
    Messages(String),
    /// The last messages.
    Last(String),
    /// There is nothing more, and the client is to connect again.
    Over,
}

/// The messages of a stream.
trait Feed: Send + 'static {
    /// The next messages. It may be dropped while it waits, and then loses nothing.
    fn next(&mut self) -> impl Future<Output = Result<Part, EngineError>> + Send;
}

/// A stream that is open.
struct Live<F> {
    feed: F,
    guard: Guard,
    is_started: bool,
    is_over: bool,
}

/// What may end a stream.
struct Guard {
    web: Web,
    session: Session,
    credential: Credential,
    /// When the credential was last accepted.
    checked_at: Instant,
    closes_at: Option<Instant>,
}

impl Guard {
    /// Whether the stream may go on.
    async fn admits(&mut self) -> bool {
        if !self.credential.is_given() || self.checked_at.elapsed() < CHECK {
            return true;
        }
        let admitted = self.web.still_admits(&self.session, &self.credential).await.is_ok();
        self.checked_at = Instant::now();
        admitted
    }

    /// Returns when the stream must end: its credential is refused, or the server shuts down.
    async fn ended(&mut self) {
        let closing = self.web.closing.clone();
        let refused = async {
            loop {
                match self.credential.is_given() {
                    true => sleep_until(self.checked_at + CHECK).await,
                    false => std::future::pending().await,
                }
                if !self.admits().await {
                    return;
                }
            }
        };
        tokio::select! {
            () = closing.cancelled() => {}
            () = refused => {}
        }
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

impl<F: Feed> Live<F> {
    fn new(web: Web, session: Session, credential: Credential, closes_at: Option<Instant>, feed: F) -> Live<F> {
        Live {
            feed,
            guard: Guard {
                web,
                session,
                credential,
                checked_at: Instant::now(),
                closes_at,
            },
            is_started: false,
            is_over: false,
        }
    }

    /// The next bytes. It is called when the client has read most of the bytes before.
    async fn next(&mut self) -> Option<String> {
        if !std::mem::replace(&mut self.is_started, true) {
            return Some(START.to_owned());
        }
        // The client may have been slow, so the last check may be long ago.
        if self.is_over || !self.guard.admits().await {
            return None;
        }
        let closes_at = self.guard.closes_at;
        let part = tokio::select! {
            biased;
            part = self.feed.next() => part,
            () = until(closes_at) => return None,
            () = self.guard.ended() => return None,
            () = tokio::time::sleep(HEARTBEAT) => return Some(":\n\n".to_owned()),
        };
        match part {
            Ok(Part::Messages(messages)) => Some(messages),
            Ok(Part::Last(messages)) => {
                self.is_over = true;
                Some(messages)
            }
            Ok(Part::Over) => None,
            Err(error) => {
                tracing::debug!(%error, "a stream ended: its events cannot be read");
                None
            }
        }
    }
}

/// The stream of one execution.
struct RunStream {
    feed: RunFeed,
    id: RunId,
    /// Rows that were read and not sent yet.
    rows: VecDeque<Arc<FedRow>>,
}

impl Feed for RunStream {
    async fn next(&mut self) -> Result<Part, EngineError> {
        if self.rows.is_empty() {
            match self.feed.next().await? {
                Fed::Rows(rows) => self.rows.extend(rows),
                Fed::End(Some(run)) => return Ok(Part::Last(message("end", None, &render_row(&run)))),
                Fed::End(None) => return Ok(Part::Last(message("end", None, &removed(self.id)))),
                Fed::Stopping => return Ok(Part::Over),
            }
        }
        let row = self.rows.pop_front();
        Ok(row.map_or(Part::Over, |row| {
            Part::Messages(message("events", Some(row.seq.into()), &row.text))
        }))
    }
}

/// The stream of a list.
struct ListStream {
    feed: ListFeed,
    /// The client was connected before, so what it has may be wrong.
    reset: bool,
    /// The ids of messages only tell a new client from one that connects again.
    messages: u64,
}

impl ListStream {
    fn changes(&mut self) -> String {
        let mut text = String::new();
        let mut add = |event, data: &str| {
            self.messages += 1;
            text.push_str(&message(event, Some(self.messages), data));
        };
        if std::mem::take(&mut self.reset) {
            add("reset", "{}");
        }
        let changes = self.feed.changes();
        changes.removed.iter().for_each(|id| add("removed", &removed(*id)));
        changes.changed.iter().for_each(|run| add("execution", &run.text));
        text
    }
}

impl Feed for ListStream {
    async fn next(&mut self) -> Result<Part, EngineError> {
        loop {
            let changes = self.changes();
            if !changes.is_empty() {
                return Ok(Part::Messages(changes));
            }
            if !self.feed.changed().await {
                return Ok(Part::Over);
            }
        }
    }
}

fn removed(id: RunId) -> String {
    format!(r#"{{"id":"{id}","removed":true}}"#)
}

/// A message. The data is on one line.
fn message(event: &str, id: Option<u64>, data: &str) -> String {
    let mut text = String::with_capacity(data.len() + 48);
    if let Some(id) = id {
        let _ = writeln!(text, "id: {id}");
    }
    let _ = write!(text, "event: {event}\ndata: {data}\n\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_written_as_the_format_says() {
        assert_eq!(
            message("events", Some(7), r#"[{"seq":7}]"#),
            "id: 7\nevent: events\ndata: [{\"seq\":7}]\n\n"
        );
        assert_eq!(message("end", None, "{}"), "event: end\ndata: {}\n\n");
        let text = to_text(&"a\nb\r");
        assert!(!text.contains(['\n', '\r']), "{text}");
    }

    #[test]
    fn sequences_are_numbers() {
        let read = |text: &'static str| sequence(&HeaderValue::from_static(text));
        assert_eq!((read("12"), read(""), read(" 3 ")), (Some(12), Some(0), Some(3)));
        for wrong in ["-1", "x", "1.5", "4294967296", "1 2"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
