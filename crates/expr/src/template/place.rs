//! Headers and URLs: strings that only take certain values.
//!
//! What must stay true: data cannot change the target of a request. In a URL, a value in the path or the query is
//! percent-encoded, so that it remains one value; a value in the host can only be a part of a host name; no value makes a
//! path segment `.` or `..`. A template at the start of a URL is its base, and is not encoded.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::ops::Range;

/// The place of a string, which decides the values that its templates may have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Place {
    /// Any value.
    #[default]
    Any,
    /// A line of text, such as the value of a header: strings, numbers and booleans.
    Text,
    /// A URL: strings, numbers and booleans, encoded.
    Url,
}

impl Place {
    /// The name for messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Place::Any => "a value",
            Place::Text => "a header",
            Place::Url => "a URL",
        }
    }
}

/// Everything but the unreserved characters of RFC 3986.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The characters that end the host. A backslash counts as a slash.
const AFTER_HOST: [char; 4] = ['/', '?', '#', '\\'];

/// A value as it is written into a URL after `before`, or why it cannot be. The first `base` bytes of `before` stand for a
/// secret at the start of the URL, which has its scheme and host.
pub(super) fn in_url(before: &str, base: usize, value: &str) -> Result<String, &'static str> {
    if before.is_empty() {
        return Ok(value.to_owned());
    }
    let rest = match base {
        0 => before.split_once("://").map(|(_, rest)| rest),
        base => before.get(base..),
    };
    if rest.is_some_and(|rest| rest.contains(AFTER_HOST)) {
        return Ok(utf8_percent_encode(value, RESERVED).to_string());
    }
    let in_name =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_') || (!c.is_ascii() && c.is_alphabetic());
    match !value.is_empty() && value.chars().all(in_name) {
        true => Ok(value.to_owned()),
        false => Err("is in the host of a URL, where a value can only be a part of a host name"),
    }
}

/// Whether one of the values makes a path segment of `url` `.` or `..`.
pub(super) fn leads_up(url: &str, values: &[Range<usize>]) -> bool {
    let end = url.find(['?', '#']).unwrap_or(url.len());
    let is_slash = |c| matches!(c, '/' | '\\');
    values
        .iter()
        .filter(|value| value.start > 0 && value.end <= end)
        .any(|value| {
            let from = url[..value.start].rfind(is_slash).map_or(0, |at| at + 1);
            let to = url[value.end..end].find(is_slash).map_or(end, |at| value.end + at);
            let segment = url[from..to].to_ascii_lowercase().replace("%2e", ".");
            segment == "." || segment == ".."
        })
}
