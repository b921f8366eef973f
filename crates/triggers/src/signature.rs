//! Signatures of webhook requests.
//!
//! | scheme | header | signed | form | replay window |
//! | --- | --- | --- | --- | --- |
//! | `standardWebhooks` | `webhook-id`, `webhook-timestamp`, `webhook-signature` | `id.timestamp.body` | list of `v1,base64` | yes |
//! | `github` | `x-hub-signature-256` | body | `sha256=hex` | no |
//! | `stripe` | `stripe-signature` | `timestamp.body` | `t=…,v1=hex`, several `v1` | yes |
//! | `slack` | `x-slack-signature`, `x-slack-request-timestamp` | `v0:timestamp:body` | `v0=hex` | yes |
//! | `gitlab` | `x-gitlab-token` | nothing | the secret itself | no |
//! | `shopify` | `x-shopify-hmac-sha256` | body | base64 | no |
//! | `hmac` | configured | configured, default the body | configured | if a header has the time |
//!
//! What must stay true:
//!
//! * The raw bytes of the body are signed. Signatures are compared in constant time.
//! * The work does not depend on what is wrong: the body is hashed once for each secret even if headers are missing. The
//!   caller gives every sender the same answer; [`SignatureError`] is for the owner's delivery log.
//! * A header that a signature depends on must occur once: of two, one program would check the first and another use the second.

#[cfg(test)]
mod tests;

use crate::{
    config::{Problem, fields::Fields},
    hex,
    request::Headers,
};
use base64::{Engine, prelude::BASE64_STANDARD};
use fermata_core::Timestamp;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::time::Duration;

/// How far the time of a request may differ from the clock, unless it is configured.
pub const DEFAULT_TOLERANCE: Duration = Duration::from_secs(300);
/// The most secrets of one trigger, and the most signatures of one request that are compared.
const MOST: usize = 8;

/// How the provider signs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scheme {
    /// <https://www.standardwebhooks.com>
    StandardWebhooks,
    /// GitHub.
    GitHub,
    /// Stripe.
    Stripe,
    /// Slack.
    Slack,
    /// GitLab's secret token.
    GitLab,
    /// Shopify.
    Shopify,
    /// Any other HMAC-SHA256.
    Hmac(Box<HmacScheme>),
}

/// A configured HMAC-SHA256.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HmacScheme {
    /// The header with the signature, in lower case.
    pub header: String,
    /// What stands before the signature in the header.
    prefix: String,
    base64: bool,
    timestamp_header: Option<String>,
    /// What is signed before and after the body; `{timestamp}` is replaced.
    before: String,
    after: String,
}

/// The `signature` of a webhook's configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignatureConfig {
    /// How it is signed.
    pub scheme: Scheme,
    /// The names of the secrets. Any of them may have signed: that is how one is replaced by another.
    pub secrets: Vec<String>,
    /// How far the time of a request may differ from the clock.
    pub tolerance: Duration,
}

/// A request whose signature is right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// A hash of what was signed, with the time if that is signed: the same for a repeated request. `None` if the scheme signs nothing.
    pub digest: Option<String>,
}

/// Why a request is not accepted. For the owner of the trigger only.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// A header is not there.
    #[error("the request has no header `{0}`")]
    Missing(String),
    /// A header occurs more than once.
    #[error("the request has more than one header `{0}`")]
    Doubled(String),
    /// A header cannot be read.
    #[error("the header `{0}` is malformed")]
    Malformed(String),
    /// The time of the request is too far from the clock.
    #[error("the time of the request differs from the clock by {} s, more than the allowed {} s", .0, .1)]
    OutsideWindow(u64, u64),
    /// No secret gives this signature.
    #[error("the signature is wrong: the body was changed, or signed with another secret")]
    Wrong,
    /// A secret does not have the form that the scheme needs.
    #[error("a secret cannot be used: standardWebhooks needs base64, optionally after `whsec_`")]
    UnusableSecret,
    /// There is no secret to compare with.
    #[error("no secret has a value")]
    NoSecret,
}

/// What the headers of a request claim.
#[derive(Default)]
struct Claim {
    /// The signatures, decoded.
    signatures: Vec<Vec<u8>>,
    /// What is hashed before the body, and after it.
    before: String,
    after: String,
    /// Unix time in seconds.
    time: Option<i64>,
}

impl SignatureConfig {
    /// Reads the `signature` of a configuration.
    pub(crate) fn parse(value: &Value, pointer: &str) -> Result<Self, Vec<Problem>> {
        let mut fields = Fields::of(value, pointer)?;
        let hmac = Scheme::Hmac(Box::new(HmacScheme {
            header: String::new(),
            prefix: String::new(),
            base64: false,
            timestamp_header: None,
            before: String::new(),
            after: String::new(),
        }));
        let schemes = [
            ("standardWebhooks", &Scheme::StandardWebhooks),
            ("github", &Scheme::GitHub),
            ("stripe", &Scheme::Stripe),
            ("slack", &Scheme::Slack),
            ("gitlab", &Scheme::GitLab),
            ("shopify", &Scheme::Shopify),
            ("hmac", &hmac),
        ];
        if fields.value("scheme").is_none() {
            fields.wrong("scheme", "must name the scheme, such as `github` or `hmac`");
        }
        let scheme = fields.one_of("scheme", &schemes).cloned();
        let secrets = secrets(&mut fields);
        let tolerance = fields.duration("tolerance", Duration::from_secs(1));
        let scheme = match scheme {
            Some(Scheme::Hmac(_)) => Some(Scheme::Hmac(Box::new(HmacScheme::parse(&mut fields)))),
            other => {
                for key in ["header", "prefix", "encoding", "timestampHeader", "template"] {
                    if fields.value(key).is_some() && other.is_some() {
                        fields.wrong(key, "belongs to the scheme `hmac`");
                    }
                }
                other
            }
        };
        fields.finish()?;
        let Some(scheme) = scheme else {
            return Err(vec![Problem::new(pointer, "needs a scheme")]);
        };
        Ok(Self {
            scheme,
            secrets,
            tolerance: tolerance.unwrap_or(DEFAULT_TOLERANCE),
        })
    }

    /// Whether one of `secrets` signed this request, at a time near `now`.
    ///
    /// # Errors
    /// Why it is not accepted; the sender must not learn that.
    pub fn verify<S: AsRef<[u8]>>(
        &self,
        secrets: &[S],
        headers: &Headers,
        body: &[u8],
        now: Timestamp,
    ) -> Result<Verified, SignatureError> {
        let claim = self.claim(headers);
        let nothing = Claim::default();
        let read = claim.as_ref().unwrap_or(&nothing);
        let mut result = Err(SignatureError::NoSecret);
        for secret in secrets.iter().take(MOST) {
            let verdict = self.compare(secret.as_ref(), read, body);
            if result.is_err() {
                result = verdict;
            }
        }
        if secrets.is_empty() {
            // A secret without a value must not show in the time.
            let _ = std::hint::black_box(self.compare(b"none", read, body));
        }
        let claim = claim?;
        let verified = result?;
        if let Some(time) = claim.time {
            let distance = now.0.div_euclid(1_000_000).abs_diff(time);
            if distance > self.tolerance.as_secs() {
                return Err(SignatureError::OutsideWindow(distance, self.tolerance.as_secs()));
            }
        }
        Ok(verified)
    }

    /// Compares the signatures of a request with the one that `secret` gives.
    fn compare(&self, secret: &[u8], claim: &Claim, body: &[u8]) -> Result<Verified, SignatureError> {
        let decoded;
        let (key, usable) = match self.scheme {
            Scheme::StandardWebhooks => {
                let text = secret.strip_prefix(b"whsec_").unwrap_or(secret);
                decoded = BASE64_STANDARD.decode(text.trim_ascii()).unwrap_or_default();
                (decoded.as_slice(), !decoded.is_empty())
            }
            _ => (secret, !secret.is_empty()),
        };
        let mut mac = keyed(key);
        if let Scheme::GitLab = self.scheme {
            // The token is compared by its hash, so the time says nothing about the length that it should have.
            mac.update(claim.signatures.first().map_or(&[], Vec::as_slice));
            let mut expected = keyed(key);
            expected.update(key);
            let same = mac.verify(&expected.finalize().into_bytes()).is_ok();
            return match same && usable && !claim.signatures.is_empty() {
                true => Ok(Verified { digest: None }),
                false => Err(SignatureError::Wrong),
            };
        }
        mac.update(claim.before.as_bytes());
        mac.update(body);
        mac.update(claim.after.as_bytes());
        let mut right = false;
        for signature in &claim.signatures {
            right |= mac.clone().verify_slice(signature).is_ok();
        }
        match (usable, right) {
            (false, _) => Err(SignatureError::UnusableSecret),
            (true, false) => Err(SignatureError::Wrong),
            (true, true) => {
                let digest = Sha256::digest(mac.finalize().into_bytes());
                Ok(Verified {
                    digest: Some(hex(&digest[..16])),
                })
            }
        }
    }

    /// What the headers claim.
    fn claim(&self, headers: &Headers) -> Result<Claim, SignatureError> {
        match &self.scheme {
            Scheme::StandardWebhooks => {
                let id = once(headers, "webhook-id")?;
                let time = once(headers, "webhook-timestamp")?;
                let list = once(headers, "webhook-signature")?;
                let signatures = list.split(' ').filter_map(|entry| entry.strip_prefix("v1,"));
                Ok(Claim {
                    signatures: decoded(signatures, from_base64, "webhook-signature")?,
                    before: format!("{id}.{time}."),
                    after: String::new(),
                    time: Some(unix_time(time, "webhook-timestamp")?),
                })
            }
            Scheme::GitHub => Ok(Claim {
                signatures: prefixed(headers, "x-hub-signature-256", "sha256=", from_hex)?,
                ..Claim::default()
            }),
            Scheme::Stripe => stripe(headers),
            Scheme::Slack => {
                let time = once(headers, "x-slack-request-timestamp")?;
                Ok(Claim {
                    signatures: prefixed(headers, "x-slack-signature", "v0=", from_hex)?,
                    before: format!("v0:{time}:"),
                    after: String::new(),
                    time: Some(unix_time(time, "x-slack-request-timestamp")?),
                })
            }
            Scheme::GitLab => Ok(Claim {
                signatures: vec![once(headers, "x-gitlab-token")?.as_bytes().to_vec()],
                ..Claim::default()
            }),
            Scheme::Shopify => Ok(Claim {
                signatures: prefixed(headers, "x-shopify-hmac-sha256", "", from_base64)?,
                ..Claim::default()
            }),
            Scheme::Hmac(scheme) => scheme.claim(headers),
        }
    }
}

impl HmacScheme {
    fn parse(fields: &mut Fields<'_>) -> Self {
        let header = fields.text("header").map(str::to_ascii_lowercase);
        if header.is_none() {
            fields.wrong("header", "must name the header with the signature");
        }
        let prefix = fields.text("prefix").unwrap_or_default().to_owned();
        let base64 = fields
            .one_of("encoding", &[("hex", false), ("base64", true)])
            .unwrap_or(false);
        let timestamp_header = fields.text("timestampHeader").map(str::to_ascii_lowercase);
        let default = match timestamp_header {
            Some(_) => "{timestamp}.{body}",
            None => "{body}",
        };
        let template = fields.text("template").unwrap_or(default);
        let timestamps = usize::from(timestamp_header.is_some());
        if template.matches("{body}").count() != 1 || template.matches("{timestamp}").count() != timestamps {
            fields.wrong(
                "template",
                match timestamps {
                    0 => "must contain {body} once, and {timestamp} only with `timestampHeader`",
                    _ => "must contain {body} and {timestamp} once each",
                },
            );
        }
        let (before, after) = template.split_once("{body}").unwrap_or_default();
        Self {
            header: header.unwrap_or_default(),
            prefix,
            base64,
            timestamp_header,
            before: before.to_owned(),
            after: after.to_owned(),
        }
    }

    fn claim(&self, headers: &Headers) -> Result<Claim, SignatureError> {
        let decode = if self.base64 { from_base64 } else { from_hex };
        let signatures = prefixed(headers, &self.header, &self.prefix, decode)?;
        let Some(timestamp_header) = &self.timestamp_header else {
            return Ok(Claim {
                signatures,
                before: self.before.clone(),
                after: self.after.clone(),
                time: None,
            });
        };
        let time = once(headers, timestamp_header)?;
        Ok(Claim {
            signatures,
            before: self.before.replace("{timestamp}", time),
            after: self.after.replace("{timestamp}", time),
            time: Some(unix_time(time, timestamp_header)?),
        })
    }
}

/// `secret`: one name, or a list of names.
fn secrets(fields: &mut Fields<'_>) -> Vec<String> {
    let names: Option<Vec<String>> = match fields.value("secret") {
        Some(Value::String(name)) => Some(vec![name.clone()]),
        Some(Value::Array(names)) if !names.is_empty() && names.len() <= MOST => {
            names.iter().map(|name| name.as_str().map(str::to_owned)).collect()
        }
        _ => None,
    };
    let Some(names) = names else {
        fields.wrong("secret", "must be the name of a secret, or a list of names");
        return Vec::new();
    };
    if !names.iter().all(|name| fermata_expr::template::is_secret_name(name)) {
        fields.wrong(
            "secret",
            "must hold names of secrets (letters, digits and `_`), not their values",
        );
    }
    names
}

/// Stripe's header: `t=1492774577,v1=…,v1=…,v0=…`.
fn stripe(headers: &Headers) -> Result<Claim, SignatureError> {
    const HEADER: &str = "stripe-signature";
    let mut times = Vec::new();
    let mut signatures = Vec::new();
    for part in once(headers, HEADER)?.split(',') {
        match part.trim().split_once('=') {
            Some(("t", time)) => times.push(time),
            Some(("v1", signature)) => signatures.push(signature),
            _ => {}
        }
    }
    let [time] = times[..] else {
        return Err(SignatureError::Malformed(HEADER.to_owned()));
    };
    Ok(Claim {
        signatures: decoded(signatures.into_iter(), from_hex, HEADER)?,
        before: format!("{time}."),
        after: String::new(),
        time: Some(unix_time(time, HEADER)?),
    })
}

fn keyed(key: &[u8]) -> Hmac<Sha256> {
    // HMAC takes keys of any length; the other arm cannot be reached.
    Hmac::<Sha256>::new_from_slice(key).unwrap_or_else(|_| Hmac::new(&Default::default()))
}

/// The value of a header that must occur once.
fn once<'h>(headers: &'h Headers, name: &str) -> Result<&'h str, SignatureError> {
    let mut values = headers.all(name);
    match (values.next(), values.next()) {
        (Some(value), None) => Ok(value.trim()),
        (None, _) => Err(SignatureError::Missing(name.to_owned())),
        (Some(_), Some(_)) => Err(SignatureError::Doubled(name.to_owned())),
    }
}

/// The one signature of a header, after its prefix.
fn prefixed(
    headers: &Headers,
    header: &str,
    prefix: &str,
    decode: fn(&str) -> Option<Vec<u8>>,
) -> Result<Vec<Vec<u8>>, SignatureError> {
    decoded(once(headers, header)?.strip_prefix(prefix).into_iter(), decode, header)
}

fn decoded<'s>(
    signatures: impl Iterator<Item = &'s str>,
    decode: fn(&str) -> Option<Vec<u8>>,
    header: &str,
) -> Result<Vec<Vec<u8>>, SignatureError> {
    let decoded: Vec<Vec<u8>> = signatures.take(MOST).filter_map(decode).collect();
    match decoded.is_empty() {
        true => Err(SignatureError::Malformed(header.to_owned())),
        false => Ok(decoded),
    }
}

fn from_base64(text: &str) -> Option<Vec<u8>> {
    BASE64_STANDARD.decode(text).ok()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| Some(digit(pair[0])? << 4 | digit(*pair.get(1)?)?))
        .collect()
}

/// Unix time in seconds; a number that large can only be milliseconds.
fn unix_time(text: &str, header: &str) -> Result<i64, SignatureError> {
    const MILLISECONDS: i64 = 100_000_000_000;
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse::<i64>().ok().filter(|_| plain);
    match number.ok_or_else(|| SignatureError::Malformed(header.to_owned()))? {
        millis if millis >= MILLISECONDS => Ok(millis / 1000),
        seconds => Ok(seconds),
    }
}
