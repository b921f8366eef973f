//! Encrypted connections, against a server with a certificate of our own making.

use super::{ask, cluster, store};
use crate::{
    StoreError,
    conformance::cluster::{Cluster, execute},
    postgres::{PostgresSettings, PostgresStore},
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf, time::Duration};

/// A server that speaks TLS, as `localhost`.
struct Server {
    cluster: Cluster,
    folder: tempfile::TempDir,
}

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

impl Server {
    fn on(cluster: Cluster) -> Server {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        let (ours, another) = (authority(), authority());
        fs::write(file("ca.pem"), ours.pem()).unwrap();
        fs::write(file("another.pem"), another.pem()).unwrap();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &ours).unwrap();
        let data = cluster.folder().join("data");
        let owner = fs::metadata(&data).unwrap();
        for (name, text) in [("server.crt", certificate.pem()), ("server.key", key.serialize_pem())] {
            let path = data.join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            use std::os::unix::fs::MetadataExt;
            std::os::unix::fs::chown(&path, Some(owner.uid()), Some(owner.gid())).unwrap();
        }
        Server { cluster, folder }
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

async fn refused(url: &str) -> String {
    let settings = PostgresSettings {
        patience: Duration::from_millis(50),
        ..Default::default()
    };
    match PostgresStore::connect(url, settings).await {
        Err(error @ (StoreError::Unavailable(_) | StoreError::Unopenable { .. })) => error.to_string(),
        Err(other) => panic!("{other}"),
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
    let error = refused(&server.url("localhost", "sslmode=require")).await;
    assert!(error.contains("TLS"), "{error}");

    execute(&server.cluster.url("postgres"), "ALTER SYSTEM SET ssl = on").await;
    ask(&server.cluster.url("postgres"), "SELECT pg_reload_conf()").await;
    tokio::task::block_in_place(|| {
        server.cluster.stop(crate::conformance::cluster::Stop::Fast);
        server.cluster.start_again();
    });
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
    for url in [
        by_address("verify-full", "ca.pem"),
        by_address("verify-ca", "another.pem"),
        by_address("require", "another.pem"),
        server.url("localhost", "sslmode=verify-full"),
    ] {
        let error = refused(&url).await;
        assert!(error.contains("certificate"), "{url}: {error}");
    }
}
