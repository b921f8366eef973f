//! `[telemetry]`: the address of a collector, the headers for it, and the share of traces that are kept.

use reqwest::{
    Url,
    header::{HeaderMap, HeaderName, HeaderValue},
};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The path that spans are sent to, below the address of a collector.
const SPANS: &str = "v1/traces";

/// The address of a collector.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct OtlpEndpoint(Url);

impl OtlpEndpoint {
    /// The address for spans.
    pub fn spans(&self) -> Url {
        let mut url = self.0.clone();
        let path = url.path().trim_end_matches('/').to_owned();
        if !path.ends_with(SPANS) {
            url.set_path(&format!("{path}/{SPANS}"));
        }
        url
    }
}

impl TryFrom<String> for OtlpEndpoint {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let wrong = |why: &str| format!("`{text}` {why}; write it like http://127.0.0.1:4318");
        let url = Url::parse(&text).map_err(|_| wrong("is not a URL"))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(
                "the address of a collector must not hold a user name or a password; use otlp_headers".to_owned(),
            );
        }
        if !matches!(url.scheme(), "http" | "https") {
            return Err(wrong("is neither http nor https"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(wrong("has more than a path"));
        }
        Ok(OtlpEndpoint(url))
    }
}

impl From<OtlpEndpoint> for String {
    fn from(endpoint: OtlpEndpoint) -> String {
        endpoint.0.into()
    }
}

/// Headers for the collector, such as credentials. Shown as `***`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct OtlpHeaders(HeaderMap);

impl OtlpHeaders {
    pub fn map(&self) -> HeaderMap {
        self.0.clone()
    }
}

impl fmt::Debug for OtlpHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl TryFrom<String> for OtlpHeaders {
    type Error = &'static str;

    /// The values are secrets, so no error quotes them.
    fn try_from(text: String) -> Result<Self, Self::Error> {
        const WRONG: &str = "it must be headers like `authorization=Bearer TOKEN,x-team=flows`";
        let mut headers = HeaderMap::new();
        for pair in text.split(',').filter(|pair| !pair.trim().is_empty()) {
            let (name, value) = pair.split_once('=').ok_or(WRONG)?;
            let name = HeaderName::from_bytes(name.trim().as_bytes()).map_err(|_| WRONG)?;
            let mut value = HeaderValue::from_str(value.trim()).map_err(|_| WRONG)?;
            value.set_sensitive(true);
            headers.append(name, value);
        }
        Ok(OtlpHeaders(headers))
    }
}

impl From<OtlpHeaders> for String {
    fn from(_: OtlpHeaders) -> String {
        "***".to_owned()
    }
}

/// A number from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Ratio(pub f64);

impl TryFrom<f64> for Ratio {
    type Error = &'static str;

    fn try_from(number: f64) -> Result<Self, Self::Error> {
        match (0.0..=1.0).contains(&number) {
            true => Ok(Ratio(number)),
            false => Err("it must be from 0 to 1"),
        }
    }
}

impl From<Ratio> for f64 {
    fn from(ratio: Ratio) -> f64 {
        ratio.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_go_below_the_address() {
        let spans = |text: &str| OtlpEndpoint::try_from(text.to_owned()).map(|endpoint| endpoint.spans().to_string());
        for (text, url) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            (
                "https://collector.example.com/otlp/",
                "https://collector.example.com/otlp/v1/traces",
            ),
            ("http://c/v1/traces", "http://c/v1/traces"),
        ] {
            assert_eq!(spans(text).as_deref(), Ok(url));
        }
        for (text, says) in [
            ("collector:4318", "neither http nor https"),
            ("", "is not a URL"),
            ("http://me:secret@c", "must not hold"),
            ("http://c?key=1", "more than a path"),
        ] {
            let refused = spans(text).unwrap_err();
            assert!(refused.contains(says) && !refused.contains("secret"), "{refused}");
        }
    }

    #[test]
    fn headers_are_read_and_not_shown() {
        let headers = OtlpHeaders::try_from("authorization=Bearer a=b, x-team = flows,".to_owned()).unwrap();
        let map = headers.map();
        assert_eq!(
            (&map["authorization"], &map["x-team"]),
            (&"Bearer a=b".parse().unwrap(), &"flows".parse().unwrap())
        );
        assert!(map["authorization"].is_sensitive());
        assert_eq!(
            (format!("{headers:?}"), String::from(headers)),
            ("***".to_owned(), "***".to_owned())
        );
        for wrong in ["secret", "se cret=1", "a=b\u{1}"] {
            let refused = OtlpHeaders::try_from(wrong.to_owned()).unwrap_err();
            assert!(!refused.contains("secret"), "{refused}");
        }
    }
}
