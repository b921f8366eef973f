//! Masking: secrets are replaced in the parameters that are stored and in the outputs that are shown.
//!
//! A value is a secret by its name: the name of a header, of a member of an object, or of a parameter in the query of a URL.
//! Passwords in URLs (`https://user:password@host`) are always replaced. Names are compared without regard to case, `-` and `_`.
//!
//! What must stay true: masked text is for people. The engine never reads it back.

use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::{Map, Value};
use std::borrow::Cow;

/// The replacement of a secret.
pub const MASKED: &str = "***";

/// Names longer than this are not compared.
const LONGEST_NAME: usize = 100;

/// Which values are secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mask {
    names: Vec<String>,
    query_parameters: Vec<String>,
}

impl Default for Mask {
    fn default() -> Self {
        Mask::new(Mask::NAMES, Mask::QUERY_PARAMETERS)
    }
}

impl Mask {
    /// The default names that are sensitive everywhere.
    pub const NAMES: &[&str] = &[
        "authorization",
        "proxy-authorization",
        "cookie",
        "set-cookie",
        "api-key",
        "x-api-key",
        "x-goog-api-key",
        "x-functions-key",
        "ocp-apim-subscription-key",
        "token",
        "access-token",
        "refresh-token",
        "id-token",
        "auth-token",
        "x-auth-token",
        "x-access-token",
        "x-csrf-token",
        "x-vault-token",
        "x-amz-security-token",
        "private-token",
        "bearer-token",
        "secret",
        "client-secret",
        "secret-key",
        "secret-access-key",
        "private-key",
        "password",
        "passwd",
        "passphrase",
    ];

    /// The default names that are sensitive only in the query of a URL.
    pub const QUERY_PARAMETERS: &[&str] = &[
        "key",
        "code",
        "auth",
        "sig",
        "signature",
        "x-amz-signature",
        "x-amz-credential",
        "x-goog-signature",
        "x-goog-credential",
    ];

    /// A mask for these names.
    pub fn new(
        names: impl IntoIterator<Item = impl AsRef<str>>,
        query_parameters: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Mask {
        let plain = |name: &str| plain(name).map(char::from).collect::<String>();
        Mask {
            names: names.into_iter().map(|name| plain(name.as_ref())).collect(),
            query_parameters: query_parameters.into_iter().map(|name| plain(name.as_ref())).collect(),
        }
    }

    /// The value as JSON text, without its secrets.
    pub fn to_text(&self, value: &Value) -> String {
        let masked = self.of(value);
        serde_json::to_string(&masked).unwrap_or_else(|error| unreachable!("a JSON value is always JSON: {error}"))
    }

    /// JSON text without its secrets. Other text is masked as plain text.
    pub fn of_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if self.is_without_secrets(text) {
            return Cow::Borrowed(text);
        }
        match serde_json::from_str::<Value>(text) {
            Ok(value) => {
                let masked = self.to_text(&value);
                match masked == text {
                    true => Cow::Borrowed(text),
                    false => Cow::Owned(masked),
                }
            }
            Err(_) => self.string(text),
        }
    }

    /// Whether JSON text certainly holds no secret, which most texts show without being parsed: no string in it is a
    /// sensitive name, none has a `name=value` pair or a URL, and none is escaped.
    fn is_without_secrets(&self, text: &str) -> bool {
        let is_plain = !text.contains(['\\', '=']) && !text.contains("://");
        is_plain && !text.split('"').skip(1).step_by(2).any(|name| self.hides_in_query(name))
    }

    /// The value without its secrets, to be serialized.
    pub fn of<'a>(&'a self, value: &'a Value) -> Masked<'a> {
        Masked {
            mask: self,
            value,
            in_query: false,
        }
    }

    /// The values that a condition read, by their paths, without secrets. The configured `vars` are left out: each of them may
    /// be a secret.
    pub fn of_reads(&self, reads: &Map<String, Value>) -> Map<String, Value> {
        let shown = reads.iter().filter(|(path, _)| names(path).next() != Some("vars"));
        shown
            .map(|(path, value)| (path.clone(), self.of_read(path, value)))
            .collect()
    }

    fn of_read(&self, path: &str, value: &Value) -> Value {
        let mut masked = self.of(value);
        for name in names(path) {
            if masked.hides(name) && !value.is_null() {
                return MASKED.into();
            }
            masked.in_query = name == "query";
        }
        serde_json::to_value(masked).unwrap_or_else(|error| unreachable!("a JSON value is always JSON: {error}"))
    }

    /// Whether a value of this name is a secret.
    pub fn hides(&self, name: &str) -> bool {
        is_one_of(&self.names, name)
    }

    fn hides_in_query(&self, name: &str) -> bool {
        self.hides(name) || is_one_of(&self.query_parameters, name)
    }

    /// A text without the passwords and the sensitive `name=value` pairs in it.
    fn string<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let without = without_passwords(text);
        match self.without_pairs(&without) {
            Some(masked) => Cow::Owned(masked),
            None => without,
        }
    }

    fn without_pairs(&self, text: &str) -> Option<String> {
        let ends_name = |c: char| matches!(c, '?' | '&' | ';' | '#' | '=' | '"' | '\'') || c.is_whitespace();
        let ends_value = |c: char| matches!(c, '&' | ';' | '#' | '"' | '\'') || c.is_whitespace();
        let mut masked = String::new();
        let mut copied = 0;
        for (at, _) in text.match_indices('=').filter(|(at, _)| *at > 0) {
            let begin = text[..at].rfind(ends_name).map_or(0, |before| {
                before + text[before..].chars().next().map_or(1, char::len_utf8)
            });
            if begin < copied {
                continue; // inside a value that was masked
            }
            let name = &text[begin..at];
            let hidden = match text[..begin].chars().next_back() {
                Some('?' | '&') => self.hides_in_query(name),
                _ => self.hides(name),
            };
            if hidden {
                let end = text[at + 1..]
                    .find(ends_value)
                    .map_or(text.len(), |length| at + 1 + length);
                masked.push_str(&text[copied..=at]);
                masked.push_str(MASKED);
                copied = end;
            }
        }
        (copied > 0).then(|| {
            masked.push_str(&text[copied..]);
            masked
        })
    }
}

/// `scheme://user:password@host` becomes `scheme://***@host`.
fn without_passwords(text: &str) -> Cow<'_, str> {
    if !text.contains("://") {
        return Cow::Borrowed(text);
    }
    let mut masked = String::new();
    let mut copied = 0;
    for (at, separator) in text.match_indices("://") {
        let begin = at + separator.len();
        let ends = |c: char| matches!(c, '/' | '?' | '#' | '"' | '\'') || c.is_whitespace();
        let end = text[begin..].find(ends).map_or(text.len(), |length| begin + length);
        if let Some(user) = text[begin..end].rfind('@').filter(|_| begin >= copied) {
            masked.push_str(&text[copied..begin]);
            masked.push_str(MASKED);
            copied = begin + user;
        }
    }
    match copied {
        0 => Cow::Borrowed(text),
        _ => Cow::Owned(masked + &text[copied..]),
    }
}

/// The characters of a name that are compared.
fn plain(name: &str) -> impl Iterator<Item = u8> + '_ {
    let counts = |byte: &u8| !matches!(byte, b'-' | b'_');
    name.bytes().filter(counts).map(|byte| byte.to_ascii_lowercase())
}

fn is_one_of(names: &[String], name: &str) -> bool {
    if name.len() > LONGEST_NAME {
        return false;
    }
    let length = plain(name).count();
    let is_same = |known: &String| known.len() == length && known.bytes().eq(plain(name));
    names.iter().any(is_same)
}

/// The names in a path such as `context.data['get-item'].items[0]`.
fn names(path: &str) -> impl Iterator<Item = &str> {
    path.split(['.', '[', ']', '\'']).filter(|name| !name.is_empty())
}

/// A value without its secrets.
#[derive(Debug, Clone, Copy)]
pub struct Masked<'a> {
    mask: &'a Mask,
    value: &'a Value,
    /// Whether the members of an object are parameters of a URL's query.
    in_query: bool,
}

impl Masked<'_> {
    /// Whether a member of this name is a secret.
    fn hides(&self, name: &str) -> bool {
        match self.in_query {
            true => self.mask.hides_in_query(name),
            false => self.mask.hides(name),
        }
    }
}

impl Serialize for Masked<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let inner = |value, in_query| Masked {
            mask: self.mask,
            value,
            in_query,
        };
        match self.value {
            Value::String(text) => serializer.serialize_str(&self.mask.string(text)),
            Value::Array(items) => serializer.collect_seq(items.iter().map(|item| inner(item, false))),
            Value::Object(members) => {
                let mut map = serializer.serialize_map(Some(members.len()))?;
                for (name, value) in members {
                    match self.hides(name) && !value.is_null() {
                        true => map.serialize_entry(name, MASKED)?,
                        false => map.serialize_entry(name, &inner(value, name == "query"))?,
                    }
                }
                map.end()
            }
            other => other.serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn masked(value: Value) -> Value {
        serde_json::from_str(&Mask::default().to_text(&value)).expect("JSON")
    }

    #[test]
    fn sensitive_headers_and_members_are_masked_at_any_depth() {
        let value = json!({
            "headers": { "Authorization": "Bearer abc", "X-API-Key": "k", "X_Api_Key": "k", "Accept": "text/plain" },
            "body": { "users": [{ "name": "Ada", "passWord": "x", "secret": { "a": 1 }, "token": null }] },
        });
        assert_eq!(
            masked(value),
            json!({
                "headers": { "Authorization": "***", "X-API-Key": "***", "X_Api_Key": "***", "Accept": "text/plain" },
                "body": { "users": [{ "name": "Ada", "passWord": "***", "secret": "***", "token": null }] },
            })
        );
    }

    #[test]
    fn keys_and_passwords_in_urls_are_masked() {
        for (url, expected) in [
            (
                "https://a.b/x?key=1&page=2&access_token=3#key=4",
                "https://a.b/x?key=***&page=2&access_token=***#key=4",
            ),
            ("https://user:pw@a.b/x?q=a@b", "https://***@a.b/x?q=a@b"),
            (
                "see https://a.b?sig=s%3D, then token=t;n=1",
                "see https://a.b?sig=*** then token=***;n=1",
            ),
            ("grant_type=x&client_secret=y", "grant_type=x&client_secret=***"),
            ("keyboard=1&key=ä", "keyboard=1&key=***"),
            ("a=b=c==", "a=b=c=="),
            ("=", "="),
            ("key=1", "key=1"),
        ] {
            assert_eq!(masked(json!({ "url": url })), json!({ "url": expected }));
        }
    }

    #[test]
    fn parameters_of_a_query_given_as_an_object_are_masked() {
        let value = json!({ "query": { "key": "k", "page": 1 }, "key": "order-1" });
        assert_eq!(
            masked(value),
            json!({ "query": { "key": "***", "page": 1 }, "key": "order-1" })
        );
    }

    #[test]
    fn values_that_a_condition_read_are_masked_by_their_paths() {
        let reads = json!({
            "context.data.login.access_token": "t",
            "context.data.login['x-api-key']": "k",
            "context.data.login.secret.part[0]": 1,
            "context.data.login.token": null,
            "trigger.query.key": "q",
            "trigger.key": "order-1",
            "trigger.user": { "name": "Ada", "password": "p" },
            "trigger.url": "https://a.b/?sig=s",
            "trigger.n": 5.0,
            "vars.limit": "v",
            "vars['a b']": "v",
            "vars": { "limit": "v" },
            "varsity": 1,
        });
        let Value::Object(reads) = reads else { unreachable!() };
        assert_eq!(
            Value::Object(Mask::default().of_reads(&reads)),
            json!({
                "context.data.login.access_token": "***",
                "context.data.login['x-api-key']": "***",
                "context.data.login.secret.part[0]": "***",
                "context.data.login.token": null,
                "trigger.query.key": "***",
                "trigger.key": "order-1",
                "trigger.user": { "name": "Ada", "password": "***" },
                "trigger.url": "https://a.b/?sig=***",
                "trigger.n": 5.0,
                "varsity": 1,
            })
        );
    }

    #[test]
    fn value_without_secrets_is_unchanged() {
        let value = json!({ "a": [1, 2.5, null, true, "x & y"], "b": { "ä": "\"" }, "n": 1e300 });
        assert_eq!(Mask::default().to_text(&value), value.to_string());
        assert!(matches!(Mask::default().of_text(&value.to_string()), Cow::Borrowed(_)));
        assert_eq!(Mask::default().of_text("not JSON, token=1"), "not JSON, token=***");
    }

    #[test]
    fn text_is_masked_however_its_names_are_written() {
        let mask = Mask::default();
        for (text, expected) in [
            (r#"{"tok\u0065n":"x"}"#, r#"{"token":"***"}"#),
            (r#"{ "a": [{ "X_API-key": 1 }] }"#, r#"{"a":[{"X_API-key":"***"}]}"#),
            (r#"{"query":{"sig":"x"}}"#, r#"{"query":{"sig":"***"}}"#),
            (r#"{"a":"token"}"#, r#"{"a":"token"}"#),
            (r#"["password", "x"]"#, r#"["password","x"]"#),
        ] {
            assert_eq!(mask.of_text(text), expected);
        }
        let untouched = r#"{ "a": "tokens", "sig": 1 }"#;
        assert_eq!(mask.of_text(untouched), r#"{"a":"tokens","sig":1}"#);
        let untouched = r#"{ "a": "tokens" }"#;
        assert!(matches!(mask.of_text(untouched), Cow::Borrowed(text) if text == untouched));
    }

    #[test]
    fn other_names_can_be_configured() {
        let mask = Mask::new(["X-My-Key"], ["q"]);
        let value = json!({ "x_my_key": 1, "password": 2, "url": "http://a/?q=1&key=2" });
        let expected = json!({ "x_my_key": "***", "password": 2, "url": "http://a/?q=***&key=2" });
        assert_eq!(mask.to_text(&value), expected.to_string());
    }

    #[test]
    fn long_text_of_separators_is_masked_in_linear_time() {
        for piece in ["=", "&=", "?", "://", "a=", "://@"] {
            let text = piece.repeat(300_000);
            Mask::default().string(&text);
        }
    }
}
