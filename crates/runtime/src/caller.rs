//! Who makes a request: principal, tenant, scopes and address.
//!
//! A caller is made once, where a request enters (`fermata_web` does it from the token). [`Engine::as_caller`] then gives
//! everything that this caller may do.
//!
//! What must stay true:
//! * A caller with a tenant never becomes one without: an empty tenant is not a tenant.
//! * Nothing here holds a token or a key, so a caller can be logged.
//!
//! [`Engine::as_caller`]: crate::Engine::as_caller

use fermata_store::runs::Principal;
use std::{fmt, net::IpAddr, sync::Arc};

/// A right that a token grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Read workflows, executions and the inbox.
    Read,
    /// Start and cancel executions, and answer requests.
    Execute,
    /// Create, change and delete workflows.
    Manage,
    /// Read templates.
    ReadTemplates,
    /// Create, change and delete templates.
    ManageTemplates,
    /// Keys, dead letters, runners and whatever else concerns the installation.
    Admin,
    /// Name another principal than one's own.
    OnBehalfOf,
}

impl Scope {
    /// All scopes.
    pub const ALL: [Scope; 7] = [
        Scope::Read,
        Scope::Execute,
        Scope::Manage,
        Scope::ReadTemplates,
        Scope::ManageTemplates,
        Scope::Admin,
        Scope::OnBehalfOf,
    ];

    /// Its name in tokens.
    pub fn as_str(self) -> &'static str {
        match self {
            Scope::Read => "workflows:read",
            Scope::Execute => "workflows:execute",
            Scope::Manage => "workflows:manage",
            Scope::ReadTemplates => "templates:read",
            Scope::ManageTemplates => "templates:manage",
            Scope::Admin => "admin",
            Scope::OnBehalfOf => "workflows:on-behalf-of",
        }
    }

    /// The scope of this name.
    pub fn parse(name: &str) -> Option<Scope> {
        Scope::ALL.into_iter().find(|scope| scope.as_str() == name)
    }
}

/// A set of scopes.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Scopes(u8);

impl Scopes {
    /// All scopes.
    pub fn all() -> Scopes {
        Scope::ALL.into_iter().collect()
    }

    /// The known scopes among these names. Other names are those of other services, and are ignored.
    pub fn of_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Scopes {
        names.into_iter().filter_map(Scope::parse).collect()
    }

    /// Whether it has this scope.
    pub fn has(self, scope: Scope) -> bool {
        self.0 & bit(scope) != 0
    }

    /// Whether it has all of these.
    pub fn includes(self, others: Scopes) -> bool {
        self.0 & others.0 == others.0
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The names.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let scopes = Scope::ALL.into_iter().filter(move |scope| self.has(*scope));
        scopes.map(Scope::as_str)
    }
}

fn bit(scope: Scope) -> u8 {
    1 << scope as u8
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<T: IntoIterator<Item = Scope>>(scopes: T) -> Scopes {
        Scopes(scopes.into_iter().fold(0, |all, scope| all | bit(scope)))
    }
}

/// The names, separated by spaces.
impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().collect::<Vec<_>>().join(" "))
    }
}

impl fmt::Debug for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scopes({self})")
    }
}

/// What a credential says about its owner. The same for all its requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The name of the credential, without its secret: `key:UUID`, `ISSUER#SUBJECT`, or `anonymous`. Limits are counted by it.
    pub credential: String,
    /// In whose name it acts; `None` without a credential.
    pub principal: Option<Principal>,
    /// `None` for a caller that sees every tenant.
    tenant: Option<String>,
    /// What it may do.
    pub scopes: Scopes,
}

impl Identity {
    /// An identity. An empty tenant is not a tenant, so it is refused.
    pub fn new(
        credential: String,
        principal: Option<Principal>,
        tenant: Option<String>,
        scopes: Scopes,
    ) -> Option<Identity> {
        let is_valid = tenant.as_deref().is_none_or(is_tenant);
        is_valid.then_some(Identity {
            credential,
            principal,
            tenant,
            scopes,
        })
    }

    /// A caller without a credential, where that is allowed: it may do everything.
    pub fn anonymous() -> Identity {
        Identity {
            credential: "anonymous".to_owned(),
            principal: None,
            tenant: None,
            scopes: Scopes::all(),
        }
    }

    /// The tenant; `None` for a caller that sees every tenant.
    pub fn tenant(&self) -> Option<&str> {
        self.tenant.as_deref()
    }
}

/// The longest name of a tenant, in bytes.
const MAX_TENANT: usize = 255;

/// Whether this is the name of a tenant.
pub fn is_tenant(name: &str) -> bool {
    (1..=MAX_TENANT).contains(&name.len()) && !name.chars().any(char::is_control)
}

/// Who makes a request, and from where. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Caller {
    identity: Arc<Identity>,
    address: Option<IpAddr>,
}

impl Caller {
    /// A caller.
    pub fn new(identity: Arc<Identity>, address: Option<IpAddr>) -> Caller {
        Caller { identity, address }
    }

    /// What its credential says.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Its tenant; `None` if it sees every tenant.
    pub fn tenant(&self) -> Option<&str> {
        self.identity.tenant()
    }

    /// Whether it has this scope.
    pub fn has(&self, scope: Scope) -> bool {
        self.identity.scopes.has(scope)
    }

    /// The address of the client, or of the proxy before this server.
    pub fn address(&self) -> Option<IpAddr> {
        self.address
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_are_read_from_their_names() {
        let scopes = Scopes::of_names(["workflows:read", "openid", "ADMIN", "workflows:execute", ""]);
        assert_eq!(scopes.to_string(), "workflows:read workflows:execute");
        assert!(scopes.has(Scope::Read) && !scopes.has(Scope::Admin));
        assert!(Scopes::all().includes(scopes) && !scopes.includes(Scopes::all()));
        assert_eq!(Scopes::all().names().count(), Scope::ALL.len());
        assert!(Scopes::default().is_empty() && scopes.includes(Scopes::default()));
    }

    #[test]
    fn an_empty_tenant_is_not_a_caller_without_a_tenant() {
        let of = |tenant: &str| Identity::new("x".to_owned(), None, Some(tenant.to_owned()), Scopes::all());
        for wrong in ["", "a\0", "a\n", &"a".repeat(256)] {
            assert_eq!(of(wrong), None, "{wrong:?}");
        }
        assert_eq!(of("acme").and_then(|identity| identity.tenant), Some("acme".to_owned()));
    }
}
