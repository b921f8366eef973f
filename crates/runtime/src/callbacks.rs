//! Registered callbacks: services register their addresses under ids, and documents name the ids.
//!
//! What must stay true:
//! * An id is resolved when the request is sent, so a service can move without a new version of the workflows that name it.
//! * A document that names an unknown id is not published, and a callback that the current version of an active workflow names is
//!   not removed. Publishing and removing at the same moment do not exclude each other: the request fails then with
//!   `CALLBACK_NOT_REGISTERED`.

use crate::{
    audit::Recorder,
    caller::Caller,
    engine::{Engine, Shared},
    error::{EngineError, Refusal},
    reads::MAX_PAGE,
};
use fermata_core::{Failure, RunId, code};
use fermata_store::{
    callbacks::{CallbackFilter, RegisteredCallback, Registration},
    reads::Page,
};
use std::{fmt, sync::Arc, time::Duration};
use url::Url;
use uuid::Uuid;

/// The most callbacks of one registration.
pub const MAX_REGISTERED: usize = 500;

/// The longest id, name or address, in bytes.
const MAX_TEXT: usize = 2000;
const MAX_ID: usize = 255;

/// How many workflows a refusal names.
const SHOWN: u32 = 5;

/// The pause before an id is looked up again after an outage of the database.
const PAUSE: Duration = Duration::from_millis(500);

/// The registered callbacks, on behalf of one caller.
#[derive(Clone, Copy)]
pub struct Callbacks<'a> {
    pub(crate) engine: &'a Engine,
    /// The tenant of the caller; `None` if it sees every tenant.
    pub(crate) tenant: Option<&'a str>,
    /// Whose changes are recorded.
    pub(crate) caller: Option<&'a Caller>,
}

impl Engine {
    /// Registered callbacks, without a tenant: those that are shared, and in lists all. A request uses
    /// [`Session::callbacks`](crate::Session::callbacks).
    pub fn callbacks(&self) -> Callbacks<'_> {
        Callbacks {
            engine: self,
            tenant: None,
            caller: None,
        }
    }

    /// Registered callbacks of a tenant.
    pub fn callbacks_of<'a>(&'a self, tenant: &'a str) -> Callbacks<'a> {
        Callbacks {
            engine: self,
            tenant: Some(tenant).filter(|tenant| !tenant.is_empty()),
            caller: None,
        }
    }
}

/// The callbacks of a service.
#[derive(Debug, Clone, Default)]
pub struct NewCallbacks {
    /// The service.
    pub service_name: String,
    /// Where it runs, as it says; may be empty.
    pub environment: String,
    /// The beginning of all addresses.
    pub base_url: String,
    /// Ids, and the rest of their addresses.
    pub paths: Vec<(String, String)>,
}

/// The address of a registered callback.
pub fn address(callback: &RegisteredCallback) -> String {
    format!("{}{}", callback.base_url.trim_end_matches('/'), callback.path)
}

impl Callbacks<'_> {
    async fn record<T>(
        &self,
        action: &str,
        target: &str,
        change: impl Future<Output = Result<T, EngineError>>,
    ) -> Result<T, EngineError> {
        match self.caller {
            None => change.await,
            Some(caller) => {
                let engine = self.engine;
                Recorder { engine, caller }.record(action, target, change).await
            }
        }
    }

    /// Registers all callbacks of a registration, or none. The same service may register an id again.
    pub async fn register(&self, new: NewCallbacks) -> Result<Vec<RegisteredCallback>, EngineError> {
        if let Some(wrong) = wrong_registration(&new) {
            return Err(Refusal::InvalidCallback(wrong).into());
        }
        let registered_at = self.engine.shared.clock.now();
        let callbacks = new.paths.into_iter().map(|(id, path)| RegisteredCallback {
            id,
            tenant: self.tenant.unwrap_or_default().to_owned(),
            service_name: new.service_name.clone(),
            environment: new.environment.clone(),
            base_url: new.base_url.clone(),
            path,
            registered_at,
        });
        let callbacks: Vec<RegisteredCallback> = callbacks.collect();
        let store = &self.engine.shared.store;
        let ids: Vec<&str> = callbacks.iter().map(|callback| callback.id.as_str()).collect();
        let register = async { Ok(store.register_callbacks(callbacks.clone()).await?) };
        match self.record("callback.register", &ids.join(" "), register).await? {
            Registration::Registered => Ok(callbacks),
            Registration::Taken { id, service_name } => Err(Refusal::CallbackTaken { id, service_name }.into()),
        }
    }

    /// Callbacks by id and tenant, after `after` if it is given. Without a tenant: those of all tenants.
    pub async fn list(
        &self,
        after: Option<(String, String)>,
        limit: u32,
    ) -> Result<Page<RegisteredCallback>, EngineError> {
        let filter = CallbackFilter {
            tenant: self.tenant.map(str::to_owned),
            after,
            limit: limit.min(MAX_PAGE),
        };
        Ok(self.engine.shared.store.registered_callbacks(filter).await?)
    }

    /// Removes a callback, unless the current version of an active workflow names it.
    pub async fn remove(&self, id: &str) -> Result<(), EngineError> {
        let store = &self.engine.shared.store;
        let tenant = self.tenant.unwrap_or_default();
        let missing = || Refusal::CallbackNotRegistered(id.to_owned());
        if wrong_id(id).is_some() {
            return Err(missing().into());
        }
        // Plans are stored as compact JSON, and an id has no characters that JSON escapes.
        let named = format!(r#""callback_id":"{id}""#);
        let workflows = store.active_workflows_containing(tenant, &named, SHOWN).await?;
        if !workflows.is_empty() {
            let id = id.to_owned();
            return Err(Refusal::CallbackInUse { id, workflows }.into());
        }
        let delete = async { Ok(store.delete_callback(tenant, id).await?) };
        match self.record("callback.delete", id, delete).await? {
            true => Ok(()),
            false => Err(missing().into()),
        }
    }
}

/// What is wrong with a registration.
fn wrong_registration(new: &NewCallbacks) -> Option<String> {
    if new.service_name.is_empty() {
        return Some("`service_name` is missing".to_owned());
    }
    for (name, text) in [
        ("service_name", &new.service_name),
        ("environment", &new.environment),
        ("base_url", &new.base_url),
    ] {
        if text.len() > MAX_TEXT || text.chars().any(char::is_control) {
            return Some(format!(
                "`{name}` must have at most {MAX_TEXT} bytes and no control characters"
            ));
        }
    }
    if let Some(wrong) = wrong_base(&new.base_url) {
        return Some(format!("`base_url` {wrong}"));
    }
    if new.paths.is_empty() || new.paths.len() > MAX_REGISTERED {
        return Some(format!("`callbacks` must have 1 to {MAX_REGISTERED} members"));
    }
    new.paths.iter().find_map(|(id, path)| {
        let wrong = wrong_id(id).or_else(|| wrong_path(path));
        wrong.map(|wrong| format!("callback `{}`: {wrong}", id.chars().take(60).collect::<String>()))
    })
}

fn wrong_id(id: &str) -> Option<String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:-".contains(&byte);
    let right = !id.is_empty() && id.len() <= MAX_ID && id.bytes().all(fits);
    (!right).then(|| format!("its id must have 1 to {MAX_ID} letters, digits, `_`, `.`, `:` or `-`"))
}

fn wrong_base(text: &str) -> Option<&'static str> {
    let Ok(url) = Url::parse(text) else {
        return Some("must be a URL such as `https://billing.example.com/hooks`");
    };
    if !matches!(url.scheme(), "http" | "https") {
        return Some("must begin with `http://` or `https://`");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Some("must not contain a user or a password");
    }
    (url.query().is_some() || url.fragment().is_some()).then_some("must have no query and no fragment")
}

fn wrong_path(path: &str) -> Option<String> {
    let odd = |c: char| c.is_control() || c.is_whitespace() || c == '#' || c == '\\';
    let right = (path.is_empty() || path.starts_with('/')) && path.len() <= MAX_TEXT && !path.contains(odd);
    (!right).then(|| {
        format!("its `path` must be empty or begin with `/`, with at most {MAX_TEXT} bytes and no spaces or `#`")
    })
}

/// Finds the address of a callback when a request is sent.
#[derive(Clone)]
pub struct CallbackAddresses {
    shared: Arc<Shared>,
    run: RunId,
    workflow_uid: Uuid,
}

impl fmt::Debug for CallbackAddresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallbackAddresses")
    }
}

impl CallbackAddresses {
    pub(crate) fn new(shared: Arc<Shared>, run: RunId, workflow_uid: Uuid) -> CallbackAddresses {
        CallbackAddresses {
            shared,
            run,
            workflow_uid,
        }
    }

    /// Whether requests may be sent to registered callbacks only.
    pub fn registered_only(&self) -> bool {
        self.shared.settings.dialects.require_registered_callbacks
    }

    async fn look_up(&self, id: &str) -> Result<Option<RegisteredCallback>, EngineError> {
        let tenant = self.shared.workflows.tenant_of(self.workflow_uid).await?;
        Ok(self.shared.store.registered_callback(&tenant, id).await?)
    }

    /// The address of the callback with this id, of the tenant of the run's workflow or shared. An outage of the database is waited out; the time limit of the attempt applies.
    ///
    /// # Errors
    /// If no callback has this id.
    pub async fn find(&self, id: &str) -> Result<String, Failure> {
        loop {
            match self.look_up(id).await {
                Ok(Some(callback)) => return Ok(address(&callback)),
                Ok(None) => {
                    let message = format!(
                        "no callback is registered as `{id}`; register it with POST /api/v1/callbacks/register"
                    );
                    return Err(Failure::permanent(code::CALLBACK_NOT_REGISTERED, message));
                }
                Err(error) => {
                    let what = "a registered callback could not be read; trying again";
                    self.shared.health.retried(Some(self.run), &error, what);
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(base_url: &str, id: &str, path: &str) -> NewCallbacks {
        NewCallbacks {
            service_name: "billing".to_owned(),
            environment: String::new(),
            base_url: base_url.to_owned(),
            paths: vec![(id.to_owned(), path.to_owned())],
        }
    }

    #[test]
    fn wrong_registrations_are_named() {
        const BASE: &str = "https://billing.example/hooks";
        assert_eq!(wrong_registration(&new(BASE, "billing.charge:v2", "/charge?x=1")), None);
        assert_eq!(wrong_registration(&new(BASE, "a", "")), None);
        for (base_url, id, path, what) in [
            ("", "a", "/x", "`base_url`"),
            ("billing", "a", "/x", "`base_url`"),
            ("ftp://billing.example", "a", "/x", "http://"),
            ("https://user:secret@billing.example", "a", "/x", "password"),
            ("https://billing.example/?a=1", "a", "/x", "query"),
            ("https://billing.example/#a", "a", "/x", "fragment"),
            (BASE, "", "/x", "its id"),
            (BASE, "{{ state.id }}", "/x", "its id"),
            (BASE, "a", "x", "`path`"),
            (BASE, "a", "/x y", "`path`"),
            (BASE, "a", "@evil.example/", "`path`"),
        ] {
            let wrong = wrong_registration(&new(base_url, id, path)).unwrap_or_default();
            assert!(wrong.contains(what), "{base_url} {id} {path}: {wrong}");
            assert!(!wrong.contains("secret"), "{wrong}");
        }
        let without = NewCallbacks {
            paths: Vec::new(),
            ..new(BASE, "a", "/x")
        };
        assert!(wrong_registration(&without).is_some());
        let nameless = NewCallbacks {
            service_name: String::new(),
            ..new(BASE, "a", "/x")
        };
        assert!(wrong_registration(&nameless).is_some());
    }
}
