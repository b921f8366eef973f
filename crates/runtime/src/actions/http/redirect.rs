//! Redirects, followed one hop at a time, so that each hop is checked like the first request.
//!
//! | status | method | body |
//! | --- | --- | --- |
//! | 301, 302 | POST becomes GET, others stay | dropped with POST, else kept |
//! | 303 | GET (HEAD stays) | dropped |
//! | 307, 308 | stays | kept |
//!
//! Any other response, and one without `Location`, is the result. With [`Redirects::SameOrigin`] only 307 and 308 to the same
//! origin are followed.
//!
//! Headers are meant for the origin of the first URL. Another origin gets only those of [`SAFE`], since any other one
//! (`X-Api-Key`) may be a credential. The idempotency key is sent to the same host only, also from http to https: else the
//! service would take a repetition for a new request. A hop from https to http is refused, because it would send encrypted data
//! in the clear.

use super::{CORRELATION_ID, IDEMPOTENCY_KEY, X_ATTEMPT, request::Request};
use fermata_core::Failure;
use http::{HeaderMap, Method, StatusCode, header};
use schemars::JsonSchema;
use serde::Deserialize;
use std::str;
use url::Url;

/// Which redirects are followed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Redirects {
    /// All of them.
    #[default]
    Follow,
    /// 307 and 308 to the same origin, which repeat the request unchanged; any other redirect is the result.
    SameOrigin,
}

/// The largest number of hops.
pub(super) const MAX_REDIRECTS: usize = 10;

/// The headers that another origin gets too: they describe the body, the client and the call, and are no credentials.
const SAFE: [&str; 11] = [
    "accept",
    "accept-encoding",
    "accept-language",
    "content-encoding",
    "content-language",
    "content-length",
    "content-type",
    "user-agent",
    IDEMPOTENCY_KEY,
    CORRELATION_ID,
    X_ATTEMPT,
];
const ABOUT_THE_BODY: [header::HeaderName; 6] = [
    header::CONTENT_TYPE,
    header::CONTENT_LENGTH,
    header::CONTENT_ENCODING,
    header::CONTENT_LANGUAGE,
    header::CONTENT_LOCATION,
    header::TRANSFER_ENCODING,
];

/// If the response to `sent` is a redirect that is followed, turns `sent` into the next request. False if it is not.
pub(super) fn follow(
    sent: &mut Request,
    status: StatusCode,
    answer: &HeaderMap,
    redirects: Redirects,
) -> Result<bool, Failure> {
    let Some(location) = answer.get(header::LOCATION) else {
        return Ok(false);
    };
    let drops_body = match (status.as_u16(), redirects) {
        (307 | 308, Redirects::SameOrigin) if !stays(&sent.url, location.as_bytes()) => return Ok(false),
        (307 | 308, _) => false,
        (_, Redirects::SameOrigin) => return Ok(false),
        (301 | 302, Redirects::Follow) => sent.method == Method::POST,
        (303, Redirects::Follow) => true,
        _ => return Ok(false),
    };
    let to = target(&sent.url, location.as_bytes())?;
    let headers = &mut sent.headers;
    if drops_body {
        if sent.method != Method::HEAD {
            sent.method = Method::GET;
        }
        sent.body = None;
        ABOUT_THE_BODY.iter().for_each(|name| drop(headers.remove(name)));
    }
    if sent.url.origin() != to.origin() {
        let names: Vec<header::HeaderName> = headers.keys().cloned().collect();
        let unsafe_ones = names.iter().filter(|name| !SAFE.contains(&name.as_str()));
        unsafe_ones.for_each(|name| drop(headers.remove(name)));
    }
    if sent.url.host() != to.host() {
        headers.remove(IDEMPOTENCY_KEY);
    }
    sent.url = to;
    Ok(true)
}

/// Whether a redirect leads to the same origin. False if its URL is invalid.
fn stays(from: &Url, location: &[u8]) -> bool {
    target(from, location).is_ok_and(|to| to.origin() == from.origin())
}

fn target(from: &Url, location: &[u8]) -> Result<Url, Failure> {
    let refuse = |why: String| {
        let message = format!("the redirect of `{}` {why}", origin(from));
        Err(Failure::permanent("REDIRECT_REFUSED", message))
    };
    let Some(mut to) = str::from_utf8(location).ok().and_then(|text| from.join(text).ok()) else {
        return refuse("leads to something that is not a URL".to_owned());
    };
    match (from.scheme(), to.scheme()) {
        ("https", "http") => {
            return refuse(format!("leads from https to `{}`, which is not encrypted", origin(&to)));
        }
        (_, "http" | "https") => {}
        (_, scheme) => return refuse(format!("leads to a `{scheme}:` URL; only http and https can be called")),
    }
    // Only the node may set credentials, not the service.
    let _ = to.set_username("");
    let _ = to.set_password(None);
    Ok(to)
}

/// A URL for messages, without path and query, which may contain secrets.
pub(super) fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: Method, url: &str) -> Request {
        let mut request = Request {
            method,
            url: url.parse().unwrap(),
            headers: HeaderMap::new(),
            body: Some("body".into()),
        };
        for name in [
            "authorization",
            "cookie",
            "proxy-authorization",
            "idempotency-key",
            "host",
            "content-type",
            "user-agent",
            "x-correlation-id",
            "x-api-key",
            "x-own",
        ] {
            request.headers.insert(name, "set".parse().unwrap());
        }
        request
    }

    /// The request after a redirect; `None` if the answer is none.
    fn redirected(
        mut sent: Request,
        status: u16,
        location: &str,
        redirects: Redirects,
    ) -> Result<Option<Request>, Failure> {
        let mut headers = HeaderMap::new();
        headers.insert(header::LOCATION, location.parse().unwrap());
        let followed = follow(&mut sent, StatusCode::from_u16(status).unwrap(), &headers, redirects)?;
        Ok(followed.then_some(sent))
    }

    fn next(sent: Request, status: u16, location: &str) -> Result<Option<Request>, Failure> {
        redirected(sent, status, location, Redirects::Follow)
    }

    #[test]
    fn status_decides_method_and_body() {
        for (status, sent, method, keeps_body) in [
            (301, Method::POST, Method::GET, false),
            (302, Method::POST, Method::GET, false),
            (303, Method::POST, Method::GET, false),
            (307, Method::POST, Method::POST, true),
            (308, Method::POST, Method::POST, true),
            (301, Method::PUT, Method::PUT, true),
            (302, Method::DELETE, Method::DELETE, true),
            (303, Method::PUT, Method::GET, false),
            (303, Method::HEAD, Method::HEAD, false),
        ] {
            let next = next(request(sent.clone(), "http://a/x/y?z"), status, "../n?m")
                .unwrap()
                .unwrap();
            assert_eq!(next.url.as_str(), "http://a/n?m");
            assert_eq!(next.method, method, "{status} {sent}");
            assert_eq!(next.body.is_some(), keeps_body, "{status} {sent}");
            assert_eq!(next.headers.contains_key("content-type"), keeps_body, "{status} {sent}");
        }
    }

    #[test]
    fn response_that_is_no_redirect_is_the_result() {
        for status in [200, 300, 304, 305, 306, 404] {
            assert!(
                next(request(Method::GET, "http://a/"), status, "/b").unwrap().is_none(),
                "{status}"
            );
        }
        let mut sent = request(Method::GET, "http://a/");
        let bare = follow(&mut sent, StatusCode::FOUND, &HeaderMap::new(), Redirects::Follow);
        assert!(!bare.unwrap());
    }

    #[test]
    fn credentials_are_not_sent_to_another_origin() {
        let credentials = [
            "authorization",
            "cookie",
            "proxy-authorization",
            "host",
            "x-api-key",
            "x-own",
        ];
        for (from, to, keeps_credentials, keeps_key) in [
            ("http://a/", "/elsewhere", true, true),
            ("http://a/", "http://A:80/", true, true),
            ("http://a/", "//a/", true, true),
            ("http://a/", "https://a/", false, true),
            ("http://a/", "http://a:81/", false, true),
            ("http://a/", "http://b/", false, false),
            ("http://a/", "//b/", false, false),
            ("http://a/", "http://a.b/", false, false),
            ("http://a/", "http://a@b/", false, false),
            ("https://a/", "https://b/", false, false),
        ] {
            let next = next(request(Method::POST, from), 307, to).unwrap().unwrap();
            for name in credentials {
                assert_eq!(next.headers.contains_key(name), keeps_credentials, "{from} {to} {name}");
            }
            assert_eq!(next.headers.contains_key("idempotency-key"), keeps_key, "{from} {to}");
            for name in ["content-type", "user-agent", "x-correlation-id"] {
                assert!(next.headers.contains_key(name), "{from} {to} {name}");
            }
        }
    }

    #[test]
    fn same_origin_follows_only_307_and_308_within_the_origin() {
        for (status, to, follows) in [
            (307, "/b", true),
            (308, "http://A:80/b", true),
            (307, "https://a/b", false),
            (308, "http://a:81/b", false),
            (307, "http://b/", false),
            (308, "ftp://a/", false),
            (307, "http://", false),
            (301, "/b", false),
            (302, "/b", false),
            (303, "/b", false),
            (200, "/b", false),
        ] {
            let sent = request(Method::POST, "http://a/");
            let next = redirected(sent, status, to, Redirects::SameOrigin).unwrap();
            assert_eq!(next.is_some(), follows, "{status} {to}");
            if let Some(next) = next {
                assert!(next.method == Method::POST && next.body.is_some(), "{status} {to}");
            }
        }
    }

    #[test]
    fn redirect_url_cannot_set_credentials() {
        let next = next(request(Method::GET, "http://a/"), 302, "http://user:secret@b/").unwrap();
        assert_eq!(next.unwrap().url.as_str(), "http://b/");
    }

    #[test]
    fn other_schemes_and_downgrades_are_refused() {
        for (from, to, hint) in [
            ("https://a/", "http://a/?secret", "from https to `http://a`"),
            ("https://a/", "http://b/", "from https to `http://b`"),
            ("http://a/", "ftp://a/", "`ftp:`"),
            ("http://a/", "file:///etc/passwd", "`file:`"),
            ("http://a/", "gopher://127.0.0.1:6379/x", "`gopher:`"),
            ("http://a/", "data:text/plain,x", "`data:`"),
            ("http://a/", "http://", "not a URL"),
            ("http://a/", "http://1.2.3.4.5/", "not a URL"),
        ] {
            let failure = next(request(Method::GET, from), 302, to).unwrap_err();
            assert_eq!((failure.code.as_str(), failure.retriable), ("REDIRECT_REFUSED", false));
            assert!(failure.message.contains(hint), "{}", failure.message);
            assert!(!failure.message.contains("secret"), "{}", failure.message);
        }
    }
}
