//! Limits the requests of each caller, in this process.
//!
//! What must stay true: a refused request is not read further, and takes nothing from other callers.

use crate::{body, door::Web, error::ApiError};
use axum::{
    extract::Request,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode},
    response::Response,
};
use fermata_runtime::{
    Caller,
    rate::{Allowance, Rate, RateLimiter},
};
use std::{
    hash::{BuildHasher, RandomState},
    time::{Duration, Instant},
};

const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// Counts the requests of callers. Callers are known by a hash, so no token is kept.
pub(crate) struct RequestRate {
    limiter: RateLimiter<u64>,
    hasher: RandomState,
}

impl RequestRate {
    pub fn new(rate: Rate) -> RequestRate {
        RequestRate {
            limiter: RateLimiter::new(rate),
            hasher: RandomState::new(),
        }
    }
}

/// Counts a request of a caller, or refuses it. Requests without a credential count by the address of their client. Routes that
/// need no caller are not limited.
pub(crate) fn count(web: &Web, request: Request) -> Result<(Request, Option<Allowance>), ApiError> {
    let caller = request.extensions().get::<Caller>();
    let (Some(rate), Some(caller)) = (&web.request_rate, caller) else {
        return Ok((request, None));
    };
    let identity = caller.identity();
    let address = caller.address().filter(|_| identity.principal.is_none());
    let key = rate.hasher.hash_one((&identity.credential, address));
    let allowance = rate.limiter.count(&key, Instant::now());
    if allowance.retry_after.is_none() {
        return Ok((request, Some(allowance)));
    }
    let (parts, body) = request.into_parts();
    body::discard(&parts.headers, body, &web.config);
    let message = "this token has sent too many requests; nothing was changed. `Retry-After` says when to continue";
    Err(refused(allowance, message.to_owned()))
}

/// The error for a refused request.
pub(crate) fn refused(allowance: Allowance, message: String) -> ApiError {
    ApiError {
        retry_after: Some(seconds(allowance.retry_after.unwrap_or_default()).max(1)),
        allowance: Some(Box::new(allowance)),
        ..ApiError::new(StatusCode::TOO_MANY_REQUESTS, "RATE_LIMITED", message)
    }
}

/// Adds the headers of the limit, unless the response has those of another one.
pub(crate) fn tell(response: &mut Response, allowance: Allowance) {
    if !response.headers().contains_key(&LIMIT) {
        write(response.headers_mut(), allowance);
    }
}

/// Writes the headers of a limit.
pub(crate) fn write(headers: &mut HeaderMap, allowance: Allowance) {
    headers.insert(LIMIT, HeaderValue::from(allowance.limit));
    headers.insert(REMAINING, HeaderValue::from(allowance.remaining));
    headers.insert(RESET, HeaderValue::from(seconds(allowance.reset)));
}

/// Whole seconds, rounded up.
fn seconds(time: Duration) -> u32 {
    let whole = u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
    whole.saturating_add(u32::from(time.subsec_nanos() > 0))
}
