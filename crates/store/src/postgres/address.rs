//! The address of a database, and how every connection to it is opened and set up.
//!
//! What must stay true:
//! * Every session commits durably (`synchronous_commit`), at the isolation level for which the statements are written.
//! * A session never scans a table when an index can be used: the planner has no statistics for a new table.
//! * Plans are generic (independent of parameter values), so they are the plans that the tests checked. They are
//!   discarded and made again as tables grow.

use super::{
    error::{PgError, describe},
    settings::PostgresSettings,
    tls::TlsOptions,
};
use crate::{Result, StoreError};
use deadpool_postgres::Connect;
use futures::future::BoxFuture;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_postgres::{
    Client, Config, Connection, Socket,
    config::{Host, TargetSessionAttrs},
    tls::MakeTlsConnect,
};
use tokio_postgres_rustls::MakeRustlsConnect;

/// The connection task of a session. The caller polls it.
pub(super) type Wire = Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

/// A connection whose sent data is not acknowledged by the network for this long counts as lost.
const NETWORK_TIMEOUT: Duration = Duration::from_secs(15);

/// A database and the settings to connect to it.
#[derive(Clone)]
pub(super) struct Address {
    config: Config,
    tls: MakeRustlsConnect,
    set_up: String,
    /// The address for messages: hosts, ports and database, without user and password.
    pub(super) place: String,
}

impl Address {
    /// Parses `postgres://user:password@host:port,host:port/database?option=value&…`.
    pub(super) fn parse(url: &str, settings: &PostgresSettings) -> Result<Address> {
        let wrong = |what: String| StoreError::Unopenable {
            path: "the PostgreSQL database".to_owned(),
            what,
        };
        if !["postgres://", "postgresql://"]
            .iter()
            .any(|scheme| url.starts_with(scheme))
        {
            let example = "postgres://user:password@host:5432/database";
            return Err(wrong(format!("its address is not a URL like `{example}`")));
        }
        let (url, tls_options) = split_tls(url).map_err(wrong)?;
        let mut config: Config = url.parse().map_err(|error| wrong(describe(&error)))?;
        let place = place(&config);
        let (mode, tls) = tls_options.connector().map_err(|what| StoreError::Unopenable {
            path: place.clone(),
            what,
        })?;
        config.ssl_mode(mode);
        if config.get_target_session_attrs() == TargetSessionAttrs::ReadOnly {
            return Err(wrong(
                "`target_session_attrs=read-only` selects a read-only server, but Fermata has to write; remove this option"
                    .to_owned(),
            ));
        }
        // Only one of several servers accepts writes, and a failover changes which one.
        if config.get_hosts().len() > 1 {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        if config.get_application_name().is_none() {
            config.application_name("fermata");
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(settings.connect_timeout);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(NETWORK_TIMEOUT);
        }
        if !url.contains("keepalives_idle=") {
            config.keepalives_idle(NETWORK_TIMEOUT);
        }
        Ok(Address {
            config,
            tls,
            set_up: set_up(settings),
            place,
        })
    }

    pub(super) fn is_one_host(&self) -> bool {
        self.config.get_hosts().len() == 1
    }

    /// Connects. The caller must poll the returned connection.
    pub(super) async fn open(&self) -> Result<(Client, Wire), tokio_postgres::Error> {
        self.config.connect(self.tls.clone()).await
    }

    /// Opens a session with all settings applied, and the task that polls its connection.
    pub(super) async fn session(&self) -> Result<(Client, JoinHandle<()>), tokio_postgres::Error> {
        let (client, task) = self.unset_session().await?;
        self.set_up(&client).await?;
        Ok((client, task))
    }

    /// The same as [`Address::session`], but without applying the settings.
    pub(super) async fn unset_session(&self) -> Result<(Client, JoinHandle<()>), tokio_postgres::Error> {
        let (client, wire) = self.open().await?;
        let task = tokio::spawn(async move {
            if let Err(error) = wire.await {
                tracing::warn!("the connection to the database was lost: {}", describe(&error));
            }
        });
        Ok((client, task))
    }

    /// Applies Fermata's settings to a new session.
    pub(super) async fn set_up(&self, client: &Client) -> Result<(), tokio_postgres::Error> {
        client.batch_execute(&self.set_up).await
    }

    /// The error for a database that cannot be opened.
    pub(super) fn unopenable(&self, error: &PgError) -> StoreError {
        StoreError::Unopenable {
            path: self.place.clone(),
            what: error.to_string(),
        }
    }
}

impl Connect for Address {
    fn connect(&self, _: &Config) -> BoxFuture<'_, Result<(Client, JoinHandle<()>), tokio_postgres::Error>> {
        Box::pin(self.session())
    }
}

/// Removes the TLS options from the URL: the driver supports only some of them.
fn split_tls(url: &str) -> Result<(String, TlsOptions), String> {
    let mut tls_options = TlsOptions::default();
    let Some((address, options)) = url.split_once('?') else {
        return Ok((url.to_owned(), tls_options));
    };
    let mut rest = Vec::new();
    for option in options.split('&').filter(|option| !option.is_empty()) {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        let place = match name {
            "sslmode" => &mut tls_options.mode,
            "sslrootcert" => &mut tls_options.root_certificates,
            "sslcert" => &mut tls_options.certificate,
            "sslkey" => &mut tls_options.key,
            _ => {
                rest.push(option);
                continue;
            }
        };
        *place = Some(decoded(value).ok_or_else(|| format!("the value of `{name}` is not valid percent-encoding"))?);
    }
    let url = match rest.is_empty() {
        true => address.to_owned(),
        false => format!("{address}?{}", rest.join("&")),
    };
    Ok((url, tls_options))
}

/// Decodes percent-encoding (`%2F`). `None` if it is invalid.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).ok()
}

/// `postgres://one:5432,two:5432/database`.
fn place(config: &Config) -> String {
    let ports = config.get_ports();
    let hosts = config.get_hosts().iter().enumerate().map(|(index, host)| {
        let name = match host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(path) => path.display().to_string(),
        };
        let port = ports.get(index).or(ports.first()).copied().unwrap_or(5432);
        format!("{name}:{port}")
    });
    let hosts = hosts.collect::<Vec<_>>().join(",");
    let database = config.get_dbname().or(config.get_user()).unwrap_or_default();
    format!("postgres://{hosts}/{database}")
}

fn set_up(settings: &PostgresSettings) -> String {
    // A stricter `synchronous_commit` (remote_apply) of the server is kept.
    let timeouts = [
        ("statement_timeout", settings.statement_timeout),
        ("lock_timeout", settings.lock_timeout),
        (
            "idle_in_transaction_session_timeout",
            settings.idle_in_transaction_timeout,
        ),
    ];
    let timeouts = timeouts.map(|(name, time)| format!("SET {name} = {};", time.as_millis().min(i32::MAX as u128)));
    format!(
        "{} SELECT set_config('synchronous_commit', 'on', false)
           WHERE current_setting('synchronous_commit') NOT IN ('on', 'remote_apply');
         SET default_transaction_isolation = 'read committed';
         SET client_min_messages = warning;
         SET plan_cache_mode = force_generic_plan;
         SET jit = off; SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off;
         SET enable_incremental_sort = off;
         SET enable_hashjoin = off; SET enable_mergejoin = off; SET random_page_cost = 1.1;",
        timeouts.concat()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Address> {
        Address::parse(url, &PostgresSettings::default())
    }

    #[test]
    fn several_hosts_select_the_writable_one() {
        let one = parse("postgres://u:secret@a/d").unwrap();
        assert_eq!(one.place, "postgres://a:5432/d");
        assert_eq!(one.config.get_target_session_attrs(), TargetSessionAttrs::Any);
        let two = parse("postgresql://u:secret@a:1,b:2/d?connect_timeout=3&keepalives_idle=7").unwrap();
        assert_eq!(two.place, "postgres://a:1,b:2/d");
        assert_eq!(two.config.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
        assert_eq!(two.config.get_connect_timeout(), Some(&Duration::from_secs(3)));
        assert_eq!(two.config.get_keepalives_idle(), Duration::from_secs(7));
        assert!(parse("postgres://a/d?target_session_attrs=read-only").is_err());
    }

    #[test]
    fn url_errors_name_the_mistake_and_hide_the_password() {
        for (url, word) in [
            ("mysql://u:secret@a/d", "postgres://user"),
            ("postgres://u:secret@a:port/d", "port"),
            ("postgres://u:secret@a/d?colour=blue", "colour"),
            ("postgres://u:secret@a/d?sslmode=perhaps", "perhaps"),
            (
                "postgres://u:secret@a/d?sslmode=verify-full&sslrootcert=%2Fnowhere.pem",
                "/nowhere.pem",
            ),
            ("postgres://u:secret@a/d?sslcert=a.pem", "sslkey"),
            ("postgres://u:secret@a/d?sslrootcert=%f", "sslrootcert"),
        ] {
            let error = parse(url).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains(word) && !error.contains("secret"), "{url}: {error}");
        }
    }

    #[test]
    fn tls_options_are_removed_from_the_url() {
        let (url, tls_options) =
            split_tls("postgres://a/d?sslmode=verify-full&x=1&sslrootcert=%2Fca%20x.pem&y=2").unwrap();
        assert_eq!(url, "postgres://a/d?x=1&y=2");
        assert_eq!(tls_options.mode.as_deref(), Some("verify-full"));
        assert_eq!(tls_options.root_certificates.as_deref(), Some("/ca x.pem"));
    }
}
