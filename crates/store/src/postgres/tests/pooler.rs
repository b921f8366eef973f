//! Connections through a pooler, and to a read-only server.

use super::{cluster, query};
use crate::{
    StoreError,
    conformance::cluster::{Database, execute},
    postgres::{PostgresSettings, PostgresStore},
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// The startup messages of a server connection, and the connection.
type Backend = (Vec<u8>, TcpStream);

/// A pooler in transaction mode: a client has a server session from the first message of a transaction to its end.
struct Pooler {
    port: u16,
    task: JoinHandle<()>,
}

impl Drop for Pooler {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Default)]
struct Pool {
    /// Idle sessions by startup message, which contains user and database. The most recently returned one is used first.
    idle: Mutex<HashMap<Vec<u8>, Vec<Backend>>>,
}

impl Pool {
    async fn get(&self, startup: &[u8], server: u16) -> Backend {
        let idle = self.idle.lock().unwrap().get_mut(startup).and_then(Vec::pop);
        if let Some(backend) = idle {
            return backend;
        }
        let mut stream = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
        stream.write_all(startup).await.unwrap();
        let mut greeting = Vec::new();
        loop {
            let message = message(&mut stream).await.unwrap();
            greeting.extend_from_slice(&message);
            if message[0] == b'Z' {
                return (greeting, stream);
            }
        }
    }

    fn put(&self, startup: &[u8], backend: Backend) {
        let mut idle = self.idle.lock().unwrap();
        idle.entry(startup.to_vec()).or_default().push(backend);
    }
}

/// Reads one message including its type byte.
async fn message(from: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut head = [0; 5];
    from.read_exact(&mut head).await?;
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    let mut message = head.to_vec();
    message.resize(length + 1, 0);
    from.read_exact(&mut message[5..]).await?;
    Ok(message)
}

impl Pooler {
    async fn to(server: u16) -> Pooler {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let pool = Arc::new(Pool::default());
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let pool = pool.clone();
                tokio::spawn(async move { serve(client, server, &pool).await.ok() });
            }
        });
        Pooler { port, task }
    }
}

async fn serve(mut client: TcpStream, server: u16, pool: &Pool) -> std::io::Result<()> {
    let mut head = [0; 8];
    client.read_exact(&mut head).await?;
    if head[4..] == 80_877_103_u32.to_be_bytes() {
        client.write_all(b"N").await?; // no TLS
        client.read_exact(&mut head).await?;
    }
    let mut startup = head.to_vec();
    startup.resize(u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize, 0);
    client.read_exact(&mut startup[8..]).await?;
    let first = pool.get(&startup, server).await;
    client.write_all(&first.0).await?;
    pool.put(&startup, first);
    loop {
        let mut request = message(&mut client).await?;
        if request[0] == b'X' {
            return Ok(());
        }
        let (greeting, mut backend) = pool.get(&startup, server).await;
        // Requests are handled one by one; the clients of these tests do not pipeline.
        loop {
            backend.write_all(&request).await?;
            if !matches!(request[0], b'Q' | b'S') {
                request = message(&mut client).await?;
                continue;
            }
            let state = loop {
                let answer = message(&mut backend).await?;
                client.write_all(&answer).await?;
                if answer[0] == b'Z' {
                    break answer[5];
                }
            };
            if state == b'I' {
                break;
            }
            match message(&mut client).await {
                Ok(next) if next[0] != b'X' => request = next,
                // The client disconnected within a transaction: drop the server session, as poolers do.
                _ => return Ok(()),
            }
        }
        pool.put(&startup, (greeting, backend));
    }
}

fn short_timeouts() -> PostgresSettings {
    PostgresSettings {
        patience: Duration::from_millis(200),
        connect_timeout: Duration::from_secs(5),
        ..Default::default()
    }
}

async fn refused(url: &str) -> StoreError {
    match PostgresStore::connect(url, short_timeouts()).await {
        Ok(_) => panic!("it should have been refused"),
        Err(error) => error,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pooler_in_transaction_mode_is_refused() {
    let database = Database::new().await;
    let address: tokio_postgres::Config = database.url.parse().unwrap();
    let server = address.get_ports()[0];
    let pooler = Pooler::to(server).await;
    let url = database
        .url
        .replace(&format!(":{server}/"), &format!(":{}/", pooler.port));
    assert_ne!(url, database.url);
    assert_eq!(query(&url, "SELECT 1").await, "1", "the test pooler works");
    let error = refused(&url).await;
    assert!(matches!(error, StoreError::Unopenable { .. }), "{error}");
    assert!(error.to_string().contains("pool_mode = session"), "{error}");
    // No setting was changed in the shared sessions.
    assert_eq!(query(&url, "SHOW plan_cache_mode").await, "auto");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_only_server_is_refused_as_the_only_host() {
    let standby = cluster(false, &["default_transaction_read_only=on"]).await;
    let admin = standby.url("postgres?options=-c%20default_transaction_read_only%3Doff");
    execute(&admin, "CREATE DATABASE app").await;
    let error = refused(&standby.url("app")).await;
    assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
    let error = error.to_string();
    assert!(
        error.contains("is read-only") && error.contains("list all hosts"),
        "{error}"
    );
}
