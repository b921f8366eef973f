//! A request as it is sent, and sent again after a redirect.

use bytes::Bytes;
use http::{HeaderMap, Method};
use url::Url;

/// What one call sends.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub method: Method,
    pub url: Url,
    pub headers: HeaderMap,
    pub body: Option<Bytes>,
}
