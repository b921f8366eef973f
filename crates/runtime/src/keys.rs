//! API keys: `fk_ID_SECRET`. The id finds the key in the store, the secret proves that the caller has it.
//!
//! What must stay true:
//! * The text of a key exists only in the answer to its creation. The store has its hash: the secret is random and long, so a
//!   plain SHA-256 cannot be searched.
//! * Hashes are compared in constant time, also for an id that does not exist.
//! * A key grants nothing that its creator does not have.

use crate::{
    audit::Recorder,
    caller::{Caller, Identity, Scope, Scopes, is_tenant},
    engine::Engine,
    error::{EngineError, Refusal},
    reads::MAX_PAGE,
};
use fermata_core::Timestamp;
use fermata_store::{
    audit::describe,
    keys::{ApiKey, KeyFilter},
    reads::Page,
    runs::Principal,
};
use sha2::{Digest, Sha256};
use std::{fmt, time::Duration};
use uuid::Uuid;

/// The beginning of every key.
pub const PREFIX: &str = "fk_";

/// The longest name of a key, in bytes.
const MAX_NAME: usize = 100;

/// A key that is to be created.
#[derive(Debug, Clone, Default)]
pub struct NewKey {
    /// What it is for.
    pub name: String,
    /// Its tenant, if it has one.
    pub tenant: Option<String>,
    /// What it may do.
    pub scopes: Scopes,
    /// How long it is accepted; for ever if `None`.
    pub expires_in: Option<Duration>,
}

/// The text of a key: a credential. It is not shown in debug output.
pub struct KeyText(String);

impl KeyText {
    /// The text.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for KeyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyText(***)")
    }
}

/// Makes a key. The record is to be stored; the text is shown once.
///
/// # Errors
/// [`Refusal::InvalidKey`] says what is wrong.
pub fn make(new: NewKey, by: &str, now: Timestamp) -> Result<(ApiKey, KeyText), Refusal> {
    let wrong = |what: &str| Err(Refusal::InvalidKey(what.to_owned()));
    if new.name.is_empty() || new.name.len() > MAX_NAME || new.name.chars().any(char::is_control) {
        return wrong("`name` must have 1 to 100 bytes and no control characters");
    }
    if new.scopes.is_empty() {
        let known = Scopes::all().names().collect::<Vec<_>>().join(", ");
        return Err(Refusal::InvalidKey(format!(
            "`scopes` must name at least one of {known}"
        )));
    }
    if new.tenant.as_deref().is_some_and(|tenant| !is_tenant(tenant)) {
        return wrong("the tenant must have 1 to 255 bytes and no control characters");
    }
    if new.tenant.is_none() && !new.scopes.has(Scope::Admin) {
        return wrong(
            "a key without a tenant sees all tenants, so it needs the scope `admin`; otherwise name a tenant",
        );
    }
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let expires_at = new.expires_in.map(|time| now.plus_millis(millis(time)));
    if expires_at.is_some_and(|at| at <= now) {
        return wrong("the key would have expired already");
    }
    let id = Uuid::now_v7();
    let secret = [Uuid::new_v4().simple(), Uuid::new_v4().simple()];
    let text = KeyText(format!("{PREFIX}{}_{}{}", id.simple(), secret[0], secret[1]));
    let key = ApiKey {
        id,
        name: new.name,
        tenant: new.tenant.unwrap_or_default(),
        scopes: new.scopes.to_string(),
        hash: hash(text.reveal()),
        created_at: now,
        created_by: by.to_owned(),
        expires_at,
        revoked_at: None,
    };
    Ok((key, text))
}

fn hash(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether two hashes are the same. The time does not depend on where they differ.
fn is_same(a: &str, b: &str) -> bool {
    let differing = a.bytes().zip(b.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
    a.len() == b.len() && std::hint::black_box(differing) == 0
}

/// The id in the text of a key.
fn id_of(text: &str) -> Option<Uuid> {
    let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
    let is_hex = |text: &str, length| text.len() == length && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_hex(id, 32) && is_hex(secret, 64))
        .then(|| Uuid::try_parse(id).ok())
        .flatten()
}

/// The owner of a key that is accepted.
#[derive(Debug, Clone)]
pub struct KeyOwner {
    /// What the key grants.
    pub identity: Identity,
    /// When it stops being accepted.
    pub expires_at: Option<Timestamp>,
}

impl Engine {
    /// The owner of a key; `None` if the key is unknown, revoked or expired.
    ///
    /// # Errors
    /// If the store cannot be read. Then the key must not be accepted.
    pub async fn key_owner(&self, text: &str) -> Result<Option<KeyOwner>, EngineError> {
        let Some(id) = id_of(text) else { return Ok(None) };
        let given = hash(text);
        let stored = self.shared.store.api_key(id).await?;
        let of_none = "0".repeat(given.len());
        let is_right = is_same(&given, stored.as_ref().map_or(&of_none, |key| &key.hash));
        let Some(key) = stored.filter(|_| is_right) else {
            return Ok(None);
        };
        let is_over = key.expires_at.is_some_and(|at| at <= self.now());
        if key.revoked_at.is_some() || is_over {
            return Ok(None);
        }
        let principal = Principal {
            user_id: format!("key:{}", key.name),
            display_name: Some(key.name),
            email: None,
        };
        let tenant = (!key.tenant.is_empty()).then_some(key.tenant);
        let scopes = Scopes::of_names(key.scopes.split(' '));
        let identity = Identity::new(format!("key:{id}"), Some(principal), tenant, scopes);
        Ok(identity.map(|identity| KeyOwner {
            identity,
            expires_at: key.expires_at,
        }))
    }
}

/// API keys, on behalf of one caller.
#[derive(Clone, Copy)]
pub struct Keys<'a> {
    engine: &'a Engine,
    caller: &'a Caller,
}

impl<'a> Keys<'a> {
    pub(crate) fn new(engine: &'a Engine, caller: &'a Caller) -> Keys<'a> {
        Keys { engine, caller }
    }

    fn recorder(&self) -> Recorder<'_> {
        Recorder {
            engine: self.engine,
            caller: self.caller,
        }
    }

    /// Creates a key of the caller's tenant, with scopes that the caller has.
    pub async fn create(&self, mut new: NewKey) -> Result<(ApiKey, KeyText), EngineError> {
        let identity = self.caller.identity();
        new.tenant = match (self.caller.tenant(), new.tenant) {
            (Some(own), Some(named)) if named != own => return Err(Refusal::OtherTenant.into()),
            (Some(own), _) => Some(own.to_owned()),
            (None, named) => named,
        };
        if !identity.scopes.includes(new.scopes) {
            let what = "a key can have only scopes that its creator has";
            return Err(Refusal::Forbidden(what.to_owned()).into());
        }
        let principal = identity.principal.as_ref().map(|principal| principal.user_id.as_str());
        let by = principal.unwrap_or(&identity.credential);
        let (key, text) = make(new, by, self.engine.now())?;
        let add = async {
            describe(|row| {
                row.tenant.clone_from(&key.tenant);
                row.detail = Some(format!("{}: {}", key.name, key.scopes));
            });
            Ok(self.engine.shared.store.add_api_key(key.clone()).await?)
        };
        self.recorder().record("key.create", &key.id.to_string(), add).await?;
        Ok((key, text))
    }

    /// Keys, newest first; only those of the caller's tenant, if it has one.
    pub async fn list(&self, filter: KeyFilter) -> Result<Page<ApiKey>, EngineError> {
        let limit = filter.limit.min(MAX_PAGE);
        let tenant = match (self.caller.tenant(), filter.tenant) {
            (Some(own), Some(named)) if named != own => return Ok(Page::default()),
            (Some(own), _) => Some(own.to_owned()),
            (None, named) => named,
        };
        let filter = KeyFilter {
            tenant,
            limit,
            ..filter
        };
        Ok(self.engine.shared.store.api_keys(filter).await?)
    }

    /// Revokes a key. Processes that accepted it a moment ago refuse it within five seconds.
    pub async fn revoke(&self, id: Uuid) -> Result<(), EngineError> {
        let store = &self.engine.shared.store;
        let revoke = async {
            // A key of another tenant stays unknown. The row of one that is revoked belongs to the tenant of the key.
            let key = store.api_key(id).await?;
            let own = |key: &ApiKey| self.caller.tenant().is_none_or(|tenant| tenant == key.tenant);
            if let Some(key) = key.filter(own) {
                describe(|row| {
                    row.tenant = key.tenant;
                    row.detail = Some(format!("{}: {}", key.name, key.scopes));
                });
            }
            let revoked = store.revoke_api_key(id, self.caller.tenant(), self.engine.now());
            Ok(revoked.await?)
        };
        match self.recorder().record("key.revoke", &id.to_string(), revoke).await? {
            true => Ok(()),
            false => Err(Refusal::KeyNotFound(id).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(tenant: Option<&str>, scopes: &[Scope]) -> NewKey {
        NewKey {
            name: "ci".to_owned(),
            tenant: tenant.map(str::to_owned),
            scopes: scopes.iter().copied().collect(),
            expires_in: Some(Duration::from_secs(1)),
        }
    }

    #[test]
    fn only_the_hash_of_a_key_is_kept() {
        let (key, text) = make(new(Some("acme"), &[Scope::Read]), "ada", Timestamp(0)).unwrap();
        let secret = text.reveal().rsplit('_').next().unwrap();
        assert_eq!(secret.len(), 64);
        assert!(!format!("{key:?} {text:?}").contains(secret));
        assert_eq!((id_of(text.reveal()), key.hash), (Some(key.id), hash(text.reveal())));
        assert_eq!(key.expires_at, Some(Timestamp(1_000_000)));
        let (_, other) = make(new(Some("acme"), &[Scope::Read]), "ada", Timestamp(0)).unwrap();
        assert_ne!(text.reveal(), other.reveal());
    }

    #[test]
    fn wrong_keys_are_refused() {
        let wrong = |new: NewKey| make(new, "ada", Timestamp(0)).unwrap_err().to_string();
        assert!(wrong(new(None, &[Scope::Read])).contains("without a tenant"));
        assert!(wrong(new(Some(""), &[Scope::Read])).contains("tenant"));
        assert!(wrong(new(Some("acme"), &[])).contains("workflows:execute"));
        let nameless = NewKey {
            name: String::new(),
            ..new(Some("acme"), &[Scope::Read])
        };
        assert!(wrong(nameless).contains("name"));
        let over = NewKey {
            expires_in: Some(Duration::ZERO),
            ..new(Some("acme"), &[Scope::Read])
        };
        assert!(wrong(over).contains("expired"));
        assert!(make(new(None, &[Scope::Admin]), "ada", Timestamp(0)).is_ok());
    }

    #[test]
    fn ids_are_read_from_keys_only() {
        let (key, text) = make(new(Some("acme"), &[Scope::Read]), "ada", Timestamp(0)).unwrap();
        let text = text.reveal();
        assert_eq!(
            id_of(&text.to_uppercase().replace("FK_", "fk_")),
            Some(key.id),
            "but the hash differs"
        );
        for wrong in [
            "",
            "fk_",
            &text[1..],
            &text[..text.len() - 1],
            &format!("{text}0"),
            &text.replace("fk_", "FK_"),
        ] {
            assert_eq!(id_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn hashes_are_compared_whole() {
        assert!(is_same("ab", "ab") && is_same("", ""));
        for (a, b) in [("ab", "aa"), ("ab", "bb"), ("a", "ab"), ("ab", "")] {
            assert!(!is_same(a, b), "{a} {b}");
        }
    }
}
