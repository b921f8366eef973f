//! Reads documents of the operator's own configuration over HTTP, such as the keys of an identity provider.

use super::{
    client::{Client, connection_failure},
    guard::{Guard, GuardedResolver, SystemLookup},
    request::Request,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use http_body_util::BodyExt;
use std::{sync::Arc, time::Duration};
use url::Url;

/// A client for addresses that the operator configured: private networks are allowed, redirects are not followed.
#[derive(Clone)]
pub struct Fetcher(Client);

impl Fetcher {
    /// A client with its own connections.
    ///
    /// # Errors
    /// If TLS cannot be set up.
    pub fn new() -> Result<Fetcher, rustls::Error> {
        let client = Client::new(GuardedResolver {
            guard: Guard::OPEN,
            lookup: Arc::new(SystemLookup),
            stand_ins: Vec::new(),
        })?;
        Ok(Fetcher(client))
    }

    /// The body of a 200 response, at most this long and within this time.
    ///
    /// # Errors
    /// Why there is none, for the log.
    pub async fn get(&self, url: &Url, most: usize, time: Duration) -> Result<Vec<u8>, String> {
        let read = tokio::time::timeout(time, self.read(url, most)).await;
        read.unwrap_or_else(|_| Err(format!("there was no complete response within {} ms", time.as_millis())))
    }

    async fn read(&self, url: &Url, most: usize) -> Result<Vec<u8>, String> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        let agent = HeaderValue::from_static(concat!("fermata/", env!("CARGO_PKG_VERSION")));
        headers.insert(header::USER_AGENT, agent);
        let request = Request {
            method: Method::GET,
            url: url.clone(),
            headers,
            body: None,
        };
        let mut response = self.0.send(&request).await.map_err(|failure| failure.message)?;
        if response.status() != StatusCode::OK {
            return Err(format!("the status of the response is {}", response.status().as_u16()));
        }
        let mut bytes = Vec::new();
        while let Some(frame) = response.frame().await {
            let frame = frame.map_err(|error| connection_failure(&*error).message)?;
            let Ok(chunk) = frame.into_data() else { continue };
            if bytes.len() + chunk.len() > most {
                return Err(format!("the response is longer than {most} bytes"));
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }
}
