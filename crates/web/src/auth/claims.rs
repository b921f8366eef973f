//! The claims of a JWT (RFC 7519): whether they are valid now, and whom they name.

use super::{Denied, issuer::Issuer, seconds};
use crate::strict_json::Strict;
use fermata_core::Timestamp;
use fermata_runtime::{Identity, Scopes};
use fermata_store::runs::Principal;
use serde_json::{Map, Value};

/// Claims that scopes are read from. Identity providers use either, as text or as a list.
const SCOPES: [&str; 2] = ["scope", "scp"];

/// The longest subject, name or address, in bytes.
const MAX_TEXT: usize = 255;

/// The claims of a token.
pub(super) struct Claims(Map<String, Value>);

impl Claims {
    /// Reads claims. Two claims of the same name are refused: readers disagree about which one counts.
    pub(super) fn parse(json: &[u8]) -> Result<Claims, Denied> {
        match serde_json::from_slice(json) {
            Ok(Strict(Value::Object(claims))) => Ok(Claims(claims)),
            _ => Err(Denied::Invalid("its claims are not a JSON object")),
        }
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_str()
    }

    /// The issuer that the token names. Not verified yet.
    pub(super) fn issuer(&self) -> Option<&str> {
        self.text("iss")
    }

    /// A point in time, in seconds; `Ok(None)` if there is none.
    fn time(&self, name: &str) -> Result<Option<f64>, Denied> {
        let wrong = Denied::Invalid("`exp` and `nbf` must be numbers");
        match self.0.get(name) {
            None => Ok(None),
            Some(Value::Number(number)) => number.as_f64().filter(|time| time.is_finite()).map(Some).ok_or(wrong),
            Some(_) => Err(wrong),
        }
    }

    /// Checks audience and times. Returns when the token expires, the leeway included.
    pub(super) fn check(&self, issuer: &Issuer, now: Timestamp) -> Result<Timestamp, Denied> {
        let is_meant = match self.0.get("aud") {
            Some(Value::String(one)) => issuer.accepts(one),
            Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).any(|one| issuer.accepts(one)),
            _ => false,
        };
        if !is_meant {
            return Err(Denied::Invalid("it is for another audience"));
        }
        let (now, leeway) = (seconds(now) as f64, issuer.leeway().as_secs_f64());
        let expires = self.time("exp")?.ok_or(Denied::Invalid("it has no `exp`"))? + leeway;
        if expires <= now {
            return Err(Denied::Invalid("it has expired"));
        }
        if self.time("nbf")?.is_some_and(|begin| begin > now + leeway) {
            return Err(Denied::Invalid("it is not valid yet"));
        }
        // A number that does not fit is a very late time.
        Ok(Timestamp((expires * 1e6) as i64))
    }

    /// Whom the claims name.
    pub(super) fn identity(&self, issuer: &Issuer) -> Result<Identity, Denied> {
        let fits = |text: &&str| (1..=MAX_TEXT).contains(&text.len()) && !text.chars().any(char::is_control);
        let subject = self.text("sub").filter(fits);
        let subject = subject.ok_or(Denied::Invalid("`sub` must be a text of 1 to 255 bytes"))?;
        let other = |name| self.text(name).filter(fits).map(str::to_owned);
        let principal = Principal {
            user_id: subject.to_owned(),
            display_name: other("name"),
            email: other("email"),
        };
        let tenant = match self.0.get(issuer.tenant_claim()) {
            None | Some(Value::Null) => None,
            Some(Value::String(tenant)) => Some(tenant.clone()),
            Some(_) => return Err(Denied::Invalid("its tenant is not a text")),
        };
        let credential = format!("{}#{subject}", issuer.name());
        let identity = Identity::new(credential, Some(principal), tenant, self.scopes());
        identity.ok_or(Denied::Invalid(
            "its tenant is empty, too long or has control characters",
        ))
    }

    fn scopes(&self) -> Scopes {
        let mut names = Vec::new();
        for claim in SCOPES {
            match self.0.get(claim) {
                Some(Value::String(text)) => names.extend(text.split_ascii_whitespace()),
                Some(Value::Array(list)) => names.extend(list.iter().filter_map(Value::as_str)),
                _ => {}
            }
        }
        Scopes::of_names(names)
    }
}
