//! Checks of an `http.request` before it runs: its headers, and a URL without templates.

use crate::check::Check;
use crate::diagnostics::quote;
use crate::tree::join;
use serde_json::Value;
use url::{ParseError, Url};

/// The action for HTTP requests.
pub(crate) const ACTION: &str = "http.request";

/// Headers that the HTTP client sets. Other values would contradict the request or redirect it.
const SET_BY_CLIENT: [&str; 4] = ["connection", "content-length", "host", "transfer-encoding"];

/// Checks header names, and values without templates. `of` is the task or node they belong to.
pub(crate) fn check_headers(check: &mut Check, at: &str, headers: &Value, of: &str) {
    for (name, value) in headers.as_object().into_iter().flatten() {
        let pointer = join(at, name);
        let literal = value.as_str().filter(|text| !text.contains("{{")).unwrap_or_default();
        let (what, help, in_name) = if SET_BY_CLIENT.contains(&name.to_ascii_lowercase().as_str()) {
            let help = "remove it; its value follows from the URL and the body";
            ("cannot be set: the HTTP client sets it", help, true)
        } else if !is_token(name) {
            let help = "use letters, digits and `-`";
            ("has characters that are not allowed in a header name", help, true)
        } else if !literal.chars().all(can_be_sent) {
            let help = "a header value is one line of ASCII; encode everything else";
            (
                "has a value with characters that are not allowed in a header",
                help,
                false,
            )
        } else {
            continue;
        };
        if check.room(check.readiness()) {
            let message = format!("the header {} of {of} {what}", quote(name));
            let mut problem = check.not_ready("INVALID_HEADER", &pointer, message);
            if in_name {
                problem.span = check.document.locate_key(&pointer);
            }
            check.add(problem.help(help));
        }
    }
}

/// Whether `name` can be the name of a header: a token of RFC 9110.
fn is_token(name: &str) -> bool {
    let is_sign = |c| "!#$%&'*+-.^_`|~".contains(c);
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || is_sign(c))
}

fn can_be_sent(c: char) -> bool {
    c == '\t' || c == ' ' || c.is_ascii_graphic()
}

/// What is wrong with a URL without templates.
pub(crate) fn wrong_url(text: &str) -> Option<String> {
    match Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") => None,
        Ok(_) | Err(ParseError::RelativeUrlWithoutBase) => {
            Some("does not begin with `http://` or `https://`".to_owned())
        }
        Err(error) => Some(format!("is not a URL: {error}")),
    }
}
