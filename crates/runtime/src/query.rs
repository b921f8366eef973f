//! The query language for runs, the same in the API, the command line and the pages: `status:failed workflow:order-* since:24h`.
//!
//! A query is a list of terms, separated by spaces. All terms must hold; of terms with the same key, one must.
//!
//! | term | runs |
//! | --- | --- |
//! | `status:failed` | with this status |
//! | `workflow:order-*` | of these workflows: an id, a uid, or a pattern with `*` |
//! | `tag:eu` | of versions with this tag |
//! | `order_id=123` | whose trigger has this value in a field that the document names as searchable |
//! | `since:24h`, `until:2026-11-15` | created since a time, or before it |
//! | `tenant:acme` | of this tenant |
//! | `trigger:ID` | that this trigger started |
//! | `correlation:ID`, `request:ID` | with this correlation id or request id |
//! | `runner:ID` | that this runner holds now |
//! | `text:abc` | whose request id, workflow id or correlation id contains the text |
//! | an id | the run with this id |
//!
//! A value with spaces is written in double quotes. What must stay true: parsing is pure, and every error says where it is.

mod suggest;

pub use suggest::{Suggestion, last_word, suggest};

use fermata_core::{RunId, RunnerId, Status, duration};
use fermata_expr::nearest;
use std::{fmt, ops::Range, time::Duration};
use uuid::Uuid;

/// The longest query, in bytes.
pub const MAX_QUERY: usize = 2000;

/// The keys of terms, with what their values are.
const KEYS: [(&str, &str); 11] = [
    ("status", "pending, running, succeeded, failed or cancelled"),
    ("workflow", "the id of a workflow, or a pattern such as order-*"),
    ("tag", "a tag of the document"),
    ("since", "a time such as 24h or 2026-11-15"),
    ("until", "a time such as 24h or 2026-11-15"),
    ("tenant", "the id of a tenant"),
    ("trigger", "the id of a trigger"),
    ("correlation", "a correlation id"),
    ("request", "a request id"),
    ("runner", "the id of a runner"),
    ("text", "a part of a request id, workflow id or correlation id"),
];

/// A query. What is empty limits nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query {
    /// One of these runs.
    pub ids: Vec<RunId>,
    /// One of these statuses.
    pub statuses: Vec<Status>,
    /// Ids or uids of workflows, or patterns with `*`.
    pub workflows: Vec<String>,
    /// One of these tags.
    pub tags: Vec<String>,
    /// Searchable fields, each with its values.
    pub fields: Vec<(String, Vec<String>)>,
    /// Created at this time or later.
    pub since: Option<When>,
    /// Created before this time.
    pub until: Option<When>,
    /// Of this tenant.
    pub tenant: Option<String>,
    /// Started by this trigger.
    pub trigger: Option<Uuid>,
    /// With this correlation id.
    pub correlation: Option<String>,
    /// With this request id.
    pub request: Option<String>,
    /// Held by this runner.
    pub runner: Option<RunnerId>,
    /// Whose request id, workflow id or correlation id contains this text.
    pub text: Option<String>,
}

/// A time in a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// This long ago.
    Ago(Duration),
    /// Milliseconds since 1970.
    At(u64),
}

impl When {
    /// Milliseconds since 1970, as seen from `now`.
    pub fn millis(self, now: u64) -> u64 {
        match self {
            When::Ago(time) => now.saturating_sub(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
            When::At(millis) => millis,
        }
    }
}

/// What is wrong with a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryError {
    /// The characters that are wrong, counted from 0.
    pub at: Range<usize>,
    /// What is wrong.
    pub message: String,
    /// What to write instead, if that is known.
    pub help: Option<String>,
    /// The text that probably belongs in the place of the wrong characters.
    pub instead: Option<String>,
}

impl QueryError {
    fn or_rather(self, instead: Option<String>) -> QueryError {
        QueryError { instead, ..self }
    }

    /// The query with what was probably meant.
    ///
    /// ```
    /// use fermata_runtime::query::Query;
    ///
    /// let text = "workflow:order status:faild";
    /// let error = Query::parse(text).unwrap_err();
    /// assert_eq!(error.corrected(text).as_deref(), Some("workflow:order status:failed"));
    /// ```
    pub fn corrected(&self, text: &str) -> Option<String> {
        let before = text.chars().take(self.at.start);
        let after = text.chars().skip(self.at.end);
        let instead = self.instead.as_ref()?;
        Some(before.chain(instead.chars()).chain(after).collect())
    }
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "character {}: {}", self.at.start + 1, self.message)?;
        match &self.help {
            Some(help) => write!(f, "; {help}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for QueryError {}

impl Query {
    /// Reads a query.
    ///
    /// ```
    /// use fermata_runtime::query::Query;
    ///
    /// let query = Query::parse("status:failed workflow:order-* order_id=123").unwrap();
    /// assert_eq!(query.workflows, ["order-*"]);
    /// let error = Query::parse("status:faild").unwrap_err();
    /// assert_eq!(error.to_string(), "character 8: `faild` is not a status; did you mean `failed`?");
    /// ```
    pub fn parse(text: &str) -> Result<Query, QueryError> {
        if text.len() > MAX_QUERY {
            return Err(QueryError {
                at: 0..text.chars().count(),
                message: format!("the query has {} bytes; at most {MAX_QUERY} are allowed", text.len()),
                help: None,
                instead: None,
            });
        }
        let mut query = Query::default();
        for term in terms(text)? {
            query.add(term)?;
        }
        Ok(query)
    }

    /// Whether it has no terms: it means all runs.
    pub fn is_empty(&self) -> bool {
        *self == Query::default()
    }

    fn add(&mut self, term: Term) -> Result<(), QueryError> {
        let Some((key, separator)) = &term.key else {
            return self.add_word(&term);
        };
        if term.value.is_empty() {
            let what = about(key).unwrap_or("a value");
            return Err(term.wrong(
                format!("`{key}{separator}` has no value"),
                Some(format!("write {what}")),
            ));
        }
        if term.value.contains('\0') {
            return Err(term.wrong("a value cannot contain NUL".to_owned(), None));
        }
        match (separator, key.as_str()) {
            ('=', field) => self.add_field(field, &term),
            (_, "status") => {
                self.statuses.push(status(&term)?);
                Ok(())
            }
            (_, "workflow") => {
                self.workflows.push(term.value);
                Ok(())
            }
            (_, "tag") => {
                self.tags.push(term.value);
                Ok(())
            }
            (_, "since") => once(&mut self.since, &term, when),
            (_, "until") => once(&mut self.until, &term, when),
            (_, "tenant") => once(&mut self.tenant, &term, text),
            (_, "trigger") => once(&mut self.trigger, &term, |term| uuid(term, "trigger")),
            (_, "correlation") => once(&mut self.correlation, &term, text),
            (_, "request") => once(&mut self.request, &term, text),
            (_, "runner") => once(&mut self.runner, &term, |term| uuid(term, "runner").map(RunnerId)),
            (_, "text") => once(&mut self.text, &term, text),
            (_, other) => {
                let near = nearest(other, KEYS.map(|(key, _)| key));
                let help = match near {
                    Some(near) => format!("did you mean `{near}:`?"),
                    None => format!("the keys are {}; a field is written `{other}=…`", names()),
                };
                let error = term.wrong_key(format!("`{}:` is not a key", short(other)), help);
                Err(error.or_rather(near.map(str::to_owned)))
            }
        }
    }

    fn add_field(&mut self, field: &str, term: &Term) -> Result<(), QueryError> {
        let word = |part: &str| {
            let begins = part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
            begins && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
        };
        if !field.split('.').all(word) {
            let message = format!("`{}` is not the name of a field", short(field));
            return Err(term.wrong_key(message, "write a field such as order_id or customer.id".to_owned()));
        }
        match self.fields.iter_mut().find(|(name, _)| name == field) {
            Some((_, values)) => values.push(term.value.clone()),
            None => self.fields.push((field.to_owned(), vec![term.value.clone()])),
        }
        Ok(())
    }

    /// A word without a key: the id of a run.
    fn add_word(&mut self, term: &Term) -> Result<(), QueryError> {
        let word = term.value.as_str();
        let id = word.strip_prefix("run_").unwrap_or(word);
        if let Ok(id) = Uuid::try_parse(id) {
            self.ids.push(RunId(id));
            return Ok(());
        }
        let shown = short(word);
        let is_status = Status::ALL
            .iter()
            .any(|status| status.as_str().eq_ignore_ascii_case(word));
        let (help, rather) = match is_status {
            true => (format!("did you mean `status:{shown}`?"), format!("status:{word}")),
            false => (
                format!(
                    "write `text:{shown}` for ids that contain it, or `KEY:{shown}` with one of {}",
                    names()
                ),
                format!("text:{}", quoted(word)),
            ),
        };
        let error = term.wrong(format!("`{shown}` is not a term, and not the id of a run"), Some(help));
        Err(error.or_rather(Some(rather)))
    }
}

/// A term with its place.
struct Term {
    /// The key and the character after it, `:` or `=`.
    key: Option<(String, char)>,
    value: String,
    key_at: Range<usize>,
    value_at: Range<usize>,
}

impl Term {
    fn wrong(&self, message: String, help: Option<String>) -> QueryError {
        // A missing value is shown at its key.
        let at = match self.value_at.is_empty() {
            true => self.key_at.clone(),
            false => self.value_at.clone(),
        };
        QueryError {
            at,
            message,
            help,
            instead: None,
        }
    }

    fn wrong_key(&self, message: String, help: String) -> QueryError {
        QueryError {
            at: self.key_at.clone(),
            message,
            help: Some(help),
            instead: None,
        }
    }
}

/// Splits a query into terms.
fn terms(text: &str) -> Result<Vec<Term>, QueryError> {
    let characters: Vec<char> = text.chars().collect();
    let mut terms = Vec::new();
    let mut at = 0;
    while let Some(first) = characters.get(at) {
        if first.is_whitespace() {
            at += 1;
            continue;
        }
        let start = at;
        let mut key = None;
        let mut key_at = start..start;
        let mut value = String::new();
        let mut value_start = start;
        let mut quoted_at = None;
        while let Some(&c) = characters.get(at) {
            match c {
                '"' => {
                    quoted_at = match quoted_at {
                        None => Some(at),
                        Some(_) => None,
                    };
                }
                '\\' if quoted_at.is_some() => {
                    at += 1;
                    value.extend(characters.get(at));
                }
                c if c.is_whitespace() && quoted_at.is_none() => break,
                ':' | '=' if key.is_none() && quoted_at.is_none() && at > start => {
                    key = Some((std::mem::take(&mut value), c));
                    key_at = start..at;
                    value_start = at + 1;
                }
                c => value.push(c),
            }
            at += 1;
        }
        if let Some(open) = quoted_at {
            return Err(QueryError {
                at: open..characters.len(),
                message: "the quotation mark is not closed".to_owned(),
                help: Some("write `\"` at the end of the value".to_owned()),
                instead: None,
            });
        }
        terms.push(Term {
            key,
            value,
            key_at,
            value_at: value_start..at,
        });
    }
    Ok(terms)
}

/// Sets a value that can be given once.
fn once<T>(
    place: &mut Option<T>,
    term: &Term,
    read: impl FnOnce(&Term) -> Result<T, QueryError>,
) -> Result<(), QueryError> {
    let key = term.key.as_ref().map_or("", |(key, _)| key.as_str());
    if place.is_some() {
        let message = format!("`{key}:` is given twice");
        return Err(term.wrong(message, Some(format!("a query has at most one `{key}:`"))));
    }
    *place = Some(read(term)?);
    Ok(())
}

fn text(term: &Term) -> Result<String, QueryError> {
    Ok(term.value.clone())
}

fn uuid(term: &Term, what: &str) -> Result<Uuid, QueryError> {
    let id = Uuid::try_parse(&term.value);
    id.map_err(|_| {
        term.wrong(
            format!("`{}` is not the id of a {what} (a UUID)", short(&term.value)),
            None,
        )
    })
}

fn status(term: &Term) -> Result<Status, QueryError> {
    let word = term.value.as_str();
    let known = Status::ALL
        .into_iter()
        .find(|status| status.as_str().eq_ignore_ascii_case(word));
    known.ok_or_else(|| {
        let words = Status::ALL.map(|status| status.as_str().to_ascii_lowercase());
        let near = nearest(word, words.iter().map(String::as_str));
        let help = match near {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("a status is one of {}", words.join(", ")),
        };
        let error = term.wrong(format!("`{}` is not a status", short(word)), Some(help));
        error.or_rather(near.map(str::to_owned))
    })
}

/// A duration is a time ago. A date is its first moment in UTC.
fn when(term: &Term) -> Result<When, QueryError> {
    let value = term.value.as_str();
    if let Ok(ago) = duration::parse(value) {
        return Ok(When::Ago(ago));
    }
    let date = || {
        let date: jiff::civil::Date = value.parse().ok()?;
        let midnight = date.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
        Some(midnight.timestamp())
    };
    let instant = match value.contains('T') {
        true => value.parse::<jiff::Timestamp>().ok(),
        false => date(),
    };
    let millis = instant.and_then(|instant| u64::try_from(instant.as_millisecond()).ok());
    // More does not fit into the id of a run.
    let millis = millis.filter(|millis| *millis < 1 << 48);
    millis.map(When::At).ok_or_else(|| {
        let help = "write how long ago, such as 90m, 24h or 7d, or a time such as 2026-11-15 or 2026-11-15T10:30:00Z";
        term.wrong(format!("`{}` is not a time", short(value)), Some(help.to_owned()))
    })
}

/// A value as it is written in a query.
pub fn quoted(value: &str) -> String {
    let needs_quotes = value.is_empty() || value.contains(|c: char| c.is_whitespace() || c == '"' || c == '\\');
    match needs_quotes {
        true => format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"")),
        false => value.to_owned(),
    }
}

fn about(key: &str) -> Option<&'static str> {
    KEYS.iter().find(|(name, _)| *name == key).map(|(_, about)| *about)
}

fn names() -> String {
    KEYS.map(|(key, _)| key).join(", ")
}

fn short(text: &str) -> String {
    text.chars().take(60).collect()
}

#[cfg(test)]
mod tests;
