//! Encrypted connections, against a server with a certificate of our own making.

use super::{ask, cluster, store};
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

/// A server that speaks TLS, as `localhost`.
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
        let (ours, another) = (authority(&[]), authority(&[]));
        fs::write(file("ca.pem"), ours.pem()).unwrap();
        fs::write(file("another.pem"), another.pem()).unwrap();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &ours).unwrap();
        let server = Server { cluster, folder };
        server.hand_over(&certificate.pem(), &key.serialize_pem());
        server
    }

    /// Puts a certificate where the server finds it.
    fn hand_over(&self, certificate: &str, key: &str) {
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
        format!("postgres://fermata@{host}:{}/there?{options}", self.cluster.port())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

async fn encrypted(url: &str) -> bool {
    let store = store(url, PostgresSettings::default()).await;
    store.ping().await.unwrap();
    store.close().await.unwrap();
    // Asked of the sessions themselves: those of the store are all alike.
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
async fn sslmode_means_what_it_says() {
    let server = Server::on(cluster(false, &[]).await);
    execute(&server.cluster.url("postgres"), "CREATE DATABASE there").await;
    let ca = |name: &str| format!("sslrootcert={}", server.file(name).display());
    let plain = server.url("localhost", "sslmode=prefer");
    assert!(!encrypted(&plain).await, "this server cannot yet");
    let error = refused(&server.url("localhost", "sslmode=require")).await.to_string();
    assert!(error.contains("TLS"), "{error}");

    execute(&server.cluster.url("postgres"), "ALTER SYSTEM SET ssl = on").await;
    ask(&server.cluster.url("postgres"), "SELECT pg_reload_conf()").await;
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
    for (url, says) in [
        (
            by_address("verify-full", "ca.pem"),
            "is only valid for DnsName(\"localhost\")",
        ),
        (by_address("verify-ca", "another.pem"), "its issuer is not trusted"),
        (by_address("require", "another.pem"), "its issuer is not trusted"),
        (server.url("localhost", "sslmode=verify-full"), "sslrootcert=FILE"),
    ] {
        is_final(&refused(&url).await, says);
    }
    // The other host, which is away, may have a better one.
    let both = server.url(
        "127.0.0.1:1,127.0.0.1",
        &format!("sslmode=verify-ca&{}", ca("another.pem")),
    );
    let error = refused(&both).await;
    assert!(
        matches!(&error, StoreError::Unavailable(why) if why.contains("certificate is refused")),
        "{error}"
    );

    // As in PostgreSQL's manual: one certificate is the server's and its own authority.
    let itself = authority(&["localhost"]);
    server.hand_over(&itself.pem(), &itself.key().serialize_pem());
    server.start_again();
    fs::write(server.file("itself.pem"), itself.pem()).unwrap();
    assert!(encrypted(&by_address("verify-ca", "itself.pem")).await);
    assert!(encrypted(&server.url("localhost", &format!("sslmode=verify-full&{}", ca("itself.pem")))).await);
    for (url, says) in [
        (
            by_address("verify-full", "itself.pem"),
            "is only valid for DnsName(\"localhost\")",
        ),
        (
            by_address("verify-ca", "ca.pem"),
            "a self-signed certificate is accepted if sslrootcert",
        ),
    ] {
        is_final(&refused(&url).await, says);
    }
}

/// No retry helps, so it is not the error of a server that is away.
fn is_final(error: &StoreError, says: &str) {
    assert!(matches!(error, StoreError::Unopenable { .. }), "{error}");
    let told = error.to_string();
    assert!(
        told.contains("the server's certificate is refused: ") && told.contains(says),
        "{told}"
    );
}
