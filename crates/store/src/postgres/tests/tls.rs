//! TLS connections to a server with a test certificate.

use super::{cluster, query, store};
use crate::{
    StoreError,
    conformance::cluster::{Cluster, Stop, execute},
    postgres::{PostgresSettings, PostgresStore},
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::PathBuf,
    time::Duration,
};

/// A server with TLS, whose certificate is for `localhost`.
struct Server {
    cluster: Cluster,
    folder: tempfile::TempDir,
}

fn authority(names: &[&str]) -> CertifiedIssuer<'static, KeyPair> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

impl Server {
    fn on(cluster: Cluster) -> Server {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        let (issuer, another) = (authority(&[]), authority(&[]));
        fs::write(file("ca.pem"), issuer.pem()).unwrap();
        fs::write(file("another.pem"), another.pem()).unwrap();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        let server = Server { cluster, folder };
        server.install(&certificate.pem(), &key.serialize_pem());
        server
    }

    /// Writes a certificate into the data directory of the server.
    fn install(&self, certificate: &str, key: &str) {
        let data = self.cluster.folder().join("data");
        let owner = fs::metadata(&data).unwrap();
        for (name, text) in [("server.crt", certificate), ("server.key", key)] {
            let path = data.join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            std::os::unix::fs::chown(&path, Some(owner.uid()), Some(owner.gid())).unwrap();
        }
    }

    fn start_again(&self) {
        tokio::task::block_in_place(|| {
            self.cluster.stop(Stop::Fast);
            self.cluster.start_again();
        });
    }

    fn url(&self, host: &str, options: &str) -> String {
        format!("postgres://fermata@{host}:{}/app?{options}", self.cluster.port())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

async fn encrypted(url: &str) -> bool {
    let store = store(url, PostgresSettings::default()).await;
    store.ping().await.unwrap();
    store.close().await.unwrap();
    // All sessions of a store are opened in the same way, so one more is representative.
    let address = super::super::address::Address::parse(url, &PostgresSettings::default()).unwrap();
    let (client, task) = address.session().await.unwrap();
    let row = client
        .query_one("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()", &[])
        .await
        .unwrap();
    task.abort();
    row.get(0)
}

async fn refused(url: &str) -> StoreError {
    let settings = PostgresSettings {
        patience: Duration::from_millis(50),
        ..Default::default()
    };
    match PostgresStore::connect(url, settings).await {
        Err(error) => error,
        Ok(_) => panic!("{url} should be refused"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sslmode_matches_libpq() {
    let server = Server::on(cluster(false, &[]).await);
    execute(&server.cluster.url("postgres"), "CREATE DATABASE app").await;
    let ca = |name: &str| format!("sslrootcert={}", server.file(name).display());
    let plain = server.url("localhost", "sslmode=prefer");
    assert!(!encrypted(&plain).await, "TLS is still off");
    let error = refused(&server.url("localhost", "sslmode=require")).await.to_string();
    assert!(error.contains("TLS"), "{error}");

    execute(&server.cluster.url("postgres"), "ALTER SYSTEM SET ssl = on").await;
    query(&server.cluster.url("postgres"), "SELECT pg_reload_conf()").await;
    server.start_again();
    for options in [
        "sslmode=prefer".to_owned(),
        "sslmode=require".to_owned(),
        format!("sslmode=verify-full&{}", ca("ca.pem")),
        format!("sslmode=verify-ca&{}", ca("ca.pem")),
        format!("sslmode=require&{}", ca("ca.pem")),
    ] {
        assert!(encrypted(&server.url("localhost", &options)).await, "{options}");
    }
    assert!(!encrypted(&server.url("localhost", "sslmode=disable")).await);
    // The certificate is for localhost, not for this address.
    let by_address =
        |mode: &str, authority: &str| server.url("127.0.0.1", &format!("sslmode={mode}&{}", ca(authority)));
    assert!(encrypted(&by_address("verify-ca", "ca.pem")).await);
    for (url, expected) in [
        (
            by_address("verify-full", "ca.pem"),
            "is only valid for DnsName(\"localhost\")",
        ),
        (by_address("verify-ca", "another.pem"), "its issuer is not trusted"),
        (by_address("require", "another.pem"), "its issuer is not trusted"),
        (server.url("localhost", "sslmode=verify-full"), "sslrootcert=FILE"),
    ] {
        is_final(&refused(&url).await, expected);
    }
    // The other host, which is down, may have a valid certificate, so this is not final.
    let both = server.url(
        "127.0.0.1:1,127.0.0.1",
        &format!("sslmode=verify-ca&{}", ca("another.pem")),
    );
    let error = refused(&both).await;
    assert!(
        matches!(&error, StoreError::Unavailable(why) if why.contains("certificate is refused")),
        "{error}"
    );

    // A self-signed certificate, as in the manual of PostgreSQL.
    let self_signed = authority(&["localhost"]);
    server.install(&self_signed.pem(), &self_signed.key().serialize_pem());
    server.start_again();
    fs::write(server.file("self-signed.pem"), self_signed.pem()).unwrap();
    assert!(encrypted(&by_address("verify-ca", "self-signed.pem")).await);
    let full = format!("sslmode=verify-full&{}", ca("self-signed.pem"));
    assert!(encrypted(&server.url("localhost", &full)).await);
    for (url, expected) in [
        (
            by_address("verify-full", "self-signed.pem"),
            "is only valid for DnsName(\"localhost\")",
        ),
        (
            by_address("verify-ca", "ca.pem"),
            "a self-signed certificate is accepted if sslrootcert",
        ),
    ] {
        is_final(&refused(&url).await, expected);
    }
}

/// Checks for the error of a refused certificate. A retry does not help, so it must not be `Unavailable`.
fn is_final(error: &StoreError, expected: &str) {
    assert!(matches!(error, StoreError::Unopenable { .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("the server's certificate is refused: ") && text.contains(expected),
        "{text}"
    );
}
