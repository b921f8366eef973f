//! Who may call the API: `[auth]`.

use super::{Config, Database};
use crate::cli::Usage;
use fermata_runtime::Role;
use fermata_web::{Algorithm, AuthConfig, IssuerConfig, KeySource, Loose, SharedSecret};
use serde::{Deserialize, Serialize};
use std::{net::SocketAddr, path::PathBuf, time::Duration};

/// How far the clocks of an issuer and of this machine may differ, unless it is set.
const LEEWAY: Duration = Duration::from_secs(60);

/// An issuer as it is written.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Written {
    issuer: String,
    audience: Audience,
    #[serde(skip_serializing_if = "Option::is_none")]
    jwks_url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jwks_file: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    secret_file: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    algorithms: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant_claim: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    leeway_seconds: Option<u32>,
}

/// One audience, or several.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Several(Vec<String>),
}

impl Default for Audience {
    fn default() -> Self {
        Audience::Several(Vec::new())
    }
}

/// An issuer, checked. Files are read when the server starts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct Issuer(Written);

impl From<Issuer> for Written {
    fn from(issuer: Issuer) -> Written {
        issuer.0
    }
}

impl TryFrom<Written> for Issuer {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        if written.issuer.is_empty() {
            return Err(
                "`issuer` must be the claim `iss` of its tokens, such as `https://login.example.com/`".to_owned(),
            );
        }
        let wrong = |what: String| format!("issuer `{}`: {what}", written.issuer);
        if written.audiences().is_empty() || written.audiences().iter().any(String::is_empty) {
            let what = "`audience` must name this server, as in the claim `aud` of its tokens";
            return Err(wrong(what.to_owned()));
        }
        let sources = [
            written.jwks_url.is_some(),
            written.jwks_file.is_some(),
            written.secret_file.is_some(),
        ];
        if sources.into_iter().filter(|is_set| *is_set).count() != 1 {
            return Err(wrong("set one of `jwks_url`, `jwks_file` and `secret_file`".to_owned()));
        }
        if let Some(url) = &written.jwks_url {
            KeySource::url(url).map_err(|what| wrong(format!("`jwks_url`: {what}")))?;
        }
        written.algorithms().map_err(wrong)?;
        if written.tenant_claim.as_ref().is_some_and(String::is_empty) {
            return Err(wrong("`tenant_claim` must not be empty".to_owned()));
        }
        Ok(Issuer(written))
    }
}

impl Written {
    fn audiences(&self) -> Vec<String> {
        match &self.audience {
            Audience::One(one) => vec![one.clone()],
            Audience::Several(several) => several.clone(),
        }
    }

    /// The algorithms that its tokens may be signed with. Those with a shared secret need one, and the others a public key.
    fn algorithms(&self) -> Result<Vec<Algorithm>, String> {
        let fitting: &[Algorithm] = match self.secret_file {
            Some(_) => &Algorithm::SHARED,
            None => &Algorithm::PUBLIC,
        };
        let Some(names) = &self.algorithms else {
            return Ok(fitting.to_vec());
        };
        let known = fitting.iter().map(|one| one.as_str()).collect::<Vec<_>>().join(", ");
        let read = |name: &String| {
            let algorithm = Algorithm::parse(name).filter(|one| fitting.contains(one));
            algorithm.ok_or_else(|| format!("`algorithms`: `{name}` does not fit its keys; those that do are {known}"))
        };
        match names.is_empty() {
            true => Err(format!("`algorithms` must name at least one of {known}")),
            false => names.iter().map(read).collect(),
        }
    }
}

impl Issuer {
    /// The issuer, with the files that it names.
    fn open(&self) -> Result<IssuerConfig, String> {
        let written = &self.0;
        let read = |path: &PathBuf| {
            std::fs::read(path).map_err(|error| {
                format!(
                    "issuer `{}`: {} cannot be read: {error}",
                    written.issuer,
                    path.display()
                )
            })
        };
        let keys = match (&written.jwks_url, &written.jwks_file, &written.secret_file) {
            (Some(url), ..) => KeySource::url(url)?,
            (None, Some(path), _) => {
                read(path)?;
                KeySource::File(path.clone())
            }
            (None, None, Some(path)) => {
                let secret = read(path)?.trim_ascii().to_vec();
                KeySource::Shared(SharedSecret::new(secret).map_err(|what| format!("{}: {what}", path.display()))?)
            }
            (None, None, None) => return Err("an issuer needs keys".to_owned()),
        };
        Ok(IssuerConfig {
            issuer: written.issuer.clone(),
            audiences: written.audiences(),
            algorithms: written.algorithms()?,
            keys,
            tenant_claim: written.tenant_claim.clone().unwrap_or_else(|| "tenant_id".to_owned()),
            leeway: written
                .leeway_seconds
                .map_or(LEEWAY, |seconds| Duration::from_secs(seconds.into())),
        })
    }
}

impl Config {
    /// How callers of a server at this address are authenticated. A server that other machines can reach must say so itself.
    pub fn auth_at(&self, address: SocketAddr) -> Result<AuthConfig, Usage> {
        let serves = matches!(self.server.role, Role::All | Role::Api);
        let is_loose = match (self.auth.allow_loose_auth, address.ip().is_loopback()) {
            (Some(loose), _) => loose,
            (None, true) => true,
            (None, false) if !self.auth.issuers.is_empty() || !serves => false,
            (None, false) => return Err(unprotected(address, self)),
        };
        let issuers = self.auth.issuers.iter().map(Issuer::open);
        Ok(AuthConfig {
            allow_loose: if is_loose { Loose::Allowed } else { Loose::Refused },
            issuers: issuers
                .collect::<Result<_, _>>()
                .map_err(|what| Usage(format!("auth.issuers: {what}")))?,
            ..AuthConfig::default()
        })
    }
}

fn unprotected(address: SocketAddr, config: &Config) -> Usage {
    let database = match &config.database.url {
        Database::Sqlite(path) => format!("sqlite:{}", path.display()),
        Database::Postgres(_) | Database::Memory => "postgres://…".to_owned(),
    };
    Usage(format!(
        "the server would listen on {address}, where other machines reach it, and [auth] does not say who may call it.\n\
         To require tokens, configure\n\
         \x20 [auth]\n\
         \x20 allow_loose_auth = false          # or FERMATA_AUTH__ALLOW_LOOSE_AUTH=false\n\
         and create the first API key with\n\
         \x20 fermata keys create --name admin --scopes admin,workflows:read,workflows:manage,workflows:execute --database {database}\n\
         or name your identity provider in [[auth.issuers]].\n\
         To let everyone who reaches the address do everything, for instance behind a proxy that checks callers, configure\n\
         \x20 [auth]\n\
         \x20 allow_loose_auth = true           # or FERMATA_AUTH__ALLOW_LOOSE_AUTH=true\n\
         docs/security.md explains both. On a loopback address such as 127.0.0.1 none of this is needed."
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ISSUER: &str = "[[auth.issuers]]\nissuer = \"https://login.example.com/\"\naudience = \"fermata\"\n";

    fn config(text: &str) -> Result<Config, String> {
        toml::from_str(text).map_err(|error: toml::de::Error| error.message().to_owned())
    }

    #[test]
    fn a_server_that_others_reach_needs_a_decision() {
        let at = |text: &str, address: &str| {
            let auth = config(text).unwrap().auth_at(address.parse().unwrap());
            auth.map(|auth| auth.allow_loose).map_err(|error| error.to_string())
        };
        let url = format!("{ISSUER}jwks_url = \"https://login.example.com/keys\"");
        for (text, here, elsewhere) in [
            ("", Loose::Allowed, None),
            ("[auth]\nallow_loose_auth = true", Loose::Allowed, Some(Loose::Allowed)),
            ("[auth]\nallow_loose_auth = false", Loose::Refused, Some(Loose::Refused)),
            (&url, Loose::Allowed, Some(Loose::Refused)),
            ("[server]\nrole = \"runner\"", Loose::Allowed, Some(Loose::Refused)),
        ] {
            assert_eq!(at(text, "127.0.0.1:1"), Ok(here), "{text}");
            assert_eq!(at(text, "[::1]:1"), Ok(here), "{text}");
            for address in ["0.0.0.0:7070", "[::]:7070", "192.168.1.2:7070"] {
                assert_eq!(at(text, address).ok(), elsewhere, "{text} {address}");
            }
        }
        let refused = at("", "0.0.0.0:7070").unwrap_err();
        for word in [
            "0.0.0.0:7070",
            "allow_loose_auth = false",
            "allow_loose_auth = true",
            "fermata keys create",
            "auth.issuers",
        ] {
            assert!(refused.contains(word), "{refused}");
        }
    }

    #[test]
    fn issuers_are_checked() {
        let wrong = |rest: &str| config(&format!("{ISSUER}{rest}")).map(drop).unwrap_err();
        assert!(wrong("").contains("jwks_url"), "{}", wrong(""));
        assert!(wrong("jwks_url = \"https://a/\"\njwks_file = \"a\"").contains("one of"));
        assert!(wrong("jwks_url = \"http://login.example.com/keys\"").contains("https://"));
        assert!(wrong("jwks_url = \"https://u:p@login.example.com/\"").contains("password"));
        assert!(wrong("jwks_file = \"a\"\nalgorithms = [\"HS256\"]").contains("HS256"));
        assert!(wrong("jwks_file = \"a\"\nalgorithms = [\"none\"]").contains("none"));
        assert!(wrong("secret_file = \"a\"\nalgorithms = [\"RS256\"]").contains("RS256"));
        assert!(wrong("jwks_file = \"a\"\nalgorithms = []").contains("at least one"));
        assert!(wrong("jwks_file = \"a\"\nkeys = 1").contains("keys"));
        let nameless = config("[[auth.issuers]]\njwks_file = \"a\"").map(drop).unwrap_err();
        assert!(nameless.contains("`issuer`"), "{nameless}");
        let deaf = config("[[auth.issuers]]\nissuer = \"a\"\njwks_file = \"a\"")
            .map(drop)
            .unwrap_err();
        assert!(deaf.contains("`audience`"), "{deaf}");
        assert!(config(&format!("{ISSUER}jwks_url = \"http://127.0.0.1:1/keys\"")).is_ok());
    }

    #[test]
    fn secrets_are_read_from_files_and_never_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        let text = format!("{ISSUER}secret_file = {path:?}\n[auth]\nallow_loose_auth = false");
        let open = || config(&text).unwrap().auth_at("127.0.0.1:1".parse().unwrap());
        assert!(open().unwrap_err().to_string().contains("cannot be read"));
        std::fs::write(&path, "too short\n").unwrap();
        assert!(open().unwrap_err().to_string().contains("32 bytes"));
        let secret = "0123456789abcdef0123456789abcdef";
        std::fs::write(&path, format!("{secret}\n")).unwrap();
        assert!(!format!("{:?}", open().unwrap()).contains(secret));
    }
}
