//! Refuses requests that web pages of other origins make.
//!
//! A browser sends the requests of any page to any server that it can reach, including one on the same machine. So these
//! requests are refused:
//! * `Origin` or `Sec-Fetch-Site` shows that a page of another origin made it (403),
//! * `Host` is not a name of this server: after DNS rebinding, a foreign page has the same origin (421),
//! * a write with a media type that a page may send without a CORS preflight (415).
//!
//! `Host` is checked on loopback listeners and for browsers. It may be an IP address, `localhost`, the host of
//! `server.public_url`, or one of `server.allowed_hosts`. Callbacks (`/wh/…`) and webhooks are exempt from all of this: their
//! URL is a credential that no foreign page has. An event in binary form may have any media type: a page cannot send its `ce-…`
//! headers without a preflight.

use crate::{
    Web,
    body::{DOCUMENT_TYPES, EVENT_TYPES, content_length, discard, is_document, media_type},
    envelope::CALLBACKS,
    error::ApiError,
};
use axum::{
    extract::Request,
    http::{
        HeaderMap, Method, StatusCode, Uri, header,
        uri::{Authority, Scheme},
    },
};
use std::net::{Ipv4Addr, Ipv6Addr};

/// The route that accepts events.
const EVENTS: &str = "/api/v1/events";

/// The host names of this server.
#[derive(Debug)]
pub(crate) struct HostNames {
    /// Whether the name is checked for every client, not only for browsers.
    is_strict: bool,
    /// In lower case, without port.
    allowed: Vec<String>,
}

impl HostNames {
    pub fn new(is_loopback: bool, allowed: &[String], public_url: &str) -> HostNames {
        let public = public_url.parse::<Uri>().ok();
        let public = public.as_ref().and_then(Uri::host).map(plain);
        HostNames {
            is_strict: is_loopback,
            allowed: allowed.iter().map(|name| plain(name)).chain(public).collect(),
        }
    }

    fn includes(&self, host: &str) -> bool {
        let host = plain(host);
        host == "localhost" || is_address(&host) || self.allowed.contains(&host)
    }
}

/// In lower case, without the trailing dot of an absolute name.
fn plain(host: &str) -> String {
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

fn is_address(host: &str) -> bool {
    let v6 = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    v6.is_some_and(|host| host.parse::<Ipv6Addr>().is_ok()) || host.parse::<Ipv4Addr>().is_ok()
}

/// The request, or why it is refused.
pub(crate) fn check(web: &Web, request: Request) -> Result<Request, ApiError> {
    let path = request.uri().path();
    if path.starts_with(CALLBACKS) || web.webhooks.is_webhook(request.method(), path) {
        return Ok(request);
    }
    match refusal(&web.names, &request) {
        None => Ok(request),
        Some(error) => {
            let (parts, body) = request.into_parts();
            discard(&parts.headers, body, &web.config);
            Err(error)
        }
    }
}

fn refusal(names: &HostNames, request: &Request) -> Option<ApiError> {
    let headers = request.headers();
    let host = match host(request) {
        Ok(host) => host,
        Err(error) => return Some(error),
    };
    if let Some(host) = &host
        && (names.is_strict || is_browser(headers))
        && !names.includes(host.host())
    {
        return Some(unknown_host(host.host()));
    }
    if is_foreign(names, headers, host.as_ref()) {
        return Some(foreign_origin());
    }
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    // The media type of a body of unknown length is checked when it is read.
    let has_body = content_length(headers).is_some_and(|length| length > 0);
    let expected = match request.uri().path() {
        EVENTS => EVENT_TYPES,
        _ => DOCUMENT_TYPES,
    };
    (!is_read && has_body && !is_document(headers) && !headers.contains_key("ce-id")).then(|| media_type(expected))
}

/// The host name that the client used; `None` if there is none, which HTTP/1.0 allows.
fn host(request: &Request) -> Result<Option<Authority>, ApiError> {
    if let Some(authority) = request.uri().authority() {
        return Ok(Some(authority.clone()));
    }
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let Some(value) = hosts.next() else { return Ok(None) };
    let authority = value.to_str().ok().filter(|text| !text.contains('@'));
    let authority = authority.and_then(|text| text.parse::<Authority>().ok());
    match authority {
        Some(authority) if hosts.next().is_none() => Ok(Some(authority)),
        _ => Err(ApiError::invalid(
            "the header `Host` must be one host name or IP address, with or without a port",
        )),
    }
}

const SEC_FETCH_SITE: &str = "sec-fetch-site";

fn is_browser(headers: &HeaderMap) -> bool {
    let agent = headers.get(header::USER_AGENT).map(|agent| agent.as_bytes());
    headers.contains_key(header::ORIGIN)
        || headers.contains_key(SEC_FETCH_SITE)
        || agent.is_some_and(|agent| agent.starts_with(b"Mozilla/"))
}

/// Whether a page of another origin made the request.
fn is_foreign(names: &HostNames, headers: &HeaderMap, host: Option<&Authority>) -> bool {
    let mut sites = headers.get_all(SEC_FETCH_SITE).iter();
    let mut origins = headers.get_all(header::ORIGIN).iter();
    sites.any(|site| !matches!(site.as_bytes(), b"same-origin" | b"none"))
        || origins.any(|origin| {
            let origin = origin.to_str().ok().and_then(|text| text.parse::<Uri>().ok());
            !origin.is_some_and(|origin| is_own(names, &origin, host))
        })
}

/// Whether an origin is this server: it has the host name and port that the client used, or its host name is in
/// `server.allowed_hosts` (a proxy may have changed `Host` and the port).
fn is_own(names: &HostNames, origin: &Uri, host: Option<&Authority>) -> bool {
    let (Some(scheme), Some(authority)) = (origin.scheme(), origin.authority()) else {
        return false;
    };
    let usual = if *scheme == Scheme::HTTPS { 443 } else { 80 };
    let place = |authority: &Authority| (plain(authority.host()), authority.port_u16().unwrap_or(usual));
    host.is_some_and(|host| place(host) == place(authority)) || names.allowed.contains(&plain(authority.host()))
}

fn foreign_origin() -> ApiError {
    let message = "this request was made by a web page of another origin; only pages of this server may call the API. \
                   If the server is behind a proxy, add its host names to `server.allowed_hosts`";
    ApiError::new(StatusCode::FORBIDDEN, "FOREIGN_ORIGIN", message)
}

fn unknown_host(host: &str) -> ApiError {
    let shown: String = host.chars().take(100).collect();
    let message = format!(
        "`{shown}` is not a host name of this server; use its IP address or localhost, or add the name to \
         `server.allowed_hosts`"
    );
    ApiError::new(StatusCode::MISDIRECTED_REQUEST, "UNKNOWN_HOST", message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    /// The code of the refusal of a POST with these headers, if there is one.
    fn refused(is_loopback: bool, headers: &[(&str, &str)]) -> Option<&'static str> {
        let names = HostNames::new(
            is_loopback,
            &["Flows.Example.com".to_owned()],
            "https://public.example:8443/x",
        );
        let mut request = Request::post("/api/v1/workflows");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        refusal(&names, &request.body(Body::empty()).unwrap()).map(|error| error.code)
    }

    #[test]
    fn hosts_are_addresses_localhost_or_listed() {
        for host in [
            "127.0.0.1:7070",
            "10.1.2.3",
            "[::1]:7070",
            "[fe80::1]",
            "localhost:1",
            "LOCALHOST.",
            "flows.example.com:80",
            "public.example",
        ] {
            assert_eq!(refused(true, &[("host", host)]), None, "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.nip.io",
            "2130706433",
            "0x7f.1",
        ] {
            assert_eq!(refused(true, &[("host", host)]), Some("UNKNOWN_HOST"), "{host}");
            assert_eq!(refused(false, &[("host", host)]), None, "{host}");
            for browser in [
                ("origin", "http://evil.example"),
                ("sec-fetch-site", "same-origin"),
                ("user-agent", "Mozilla/5.0 (X11)"),
            ] {
                assert_eq!(
                    refused(false, &[("host", host), browser]),
                    Some("UNKNOWN_HOST"),
                    "{host}"
                );
            }
        }
        assert_eq!(refused(true, &[]), None);
        for bad in ["", "a b", "user@localhost", "http://localhost"] {
            assert_eq!(refused(true, &[("host", bad)]), Some("INVALID_REQUEST"), "{bad}");
        }
        let two = [("host", "localhost"), ("host", "localhost")];
        assert_eq!(refused(true, &two), Some("INVALID_REQUEST"));
    }

    #[test]
    fn pages_of_other_origins_are_refused() {
        let from = |host, origin| refused(false, &[("host", host), ("origin", origin)]);
        assert_eq!(from("localhost:7070", "http://localhost:7070"), None);
        assert_eq!(from("127.0.0.1", "http://127.0.0.1:80"), None);
        assert_eq!(from("public.example", "https://public.example"), None);
        assert_eq!(
            from("127.0.0.1:7070", "https://flows.example.com"),
            None,
            "a proxy changed Host"
        );
        for origin in [
            "null",
            "",
            "https://evil.example",
            "http://localhost:3000",
            "http://127.0.0.1:7071",
            "https://localhost",
            "file://",
        ] {
            assert_eq!(from("localhost:7070", origin), Some("FOREIGN_ORIGIN"), "{origin}");
        }
        let site = |site| refused(false, &[("host", "localhost"), ("sec-fetch-site", site)]);
        for foreign in ["cross-site", "same-site", "something"] {
            assert_eq!(site(foreign), Some("FOREIGN_ORIGIN"), "{foreign}");
        }
        assert_eq!((site("same-origin"), site("none")), (None, None));
    }
}
