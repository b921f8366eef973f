//! A TCP proxy in front of the server that cuts a connection at a chosen moment.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU8, Ordering},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    task::JoinHandle,
};

/// When a connection is cut. Only the next matching connection is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Cut {
    Never = 0,
    /// At `BEGIN`, which the server does not receive.
    AtBegin,
    /// At `COMMIT`, which the server does not receive.
    BeforeCommit,
    /// After the server has executed `COMMIT`. Its response is dropped.
    AfterCommit,
    /// At `COMMIT`, which the server does not receive. The proxy waits until the server closes the connection.
    ByServer,
}

/// Forwards all data until a cut is requested.
pub(super) struct Proxy {
    pub(super) port: u16,
    cut: Arc<AtomicU8>,
    task: JoinHandle<()>,
}

impl Proxy {
    pub(super) async fn to(server: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let cut = Arc::new(AtomicU8::new(Cut::Never as u8));
        let shared = cut.clone();
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
                tokio::spawn(pass(client, server, shared.clone()));
            }
        });
        Proxy { port, cut, task }
    }

    pub(super) fn cut(&self, cut: Cut) {
        self.cut.store(cut as u8, Ordering::SeqCst);
    }

    /// Whether the cut was made.
    pub(super) fn done(&self) -> bool {
        self.cut.load(Ordering::SeqCst) == Cut::Never as u8
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn contains(bytes: &[u8], word: &[u8]) -> bool {
    bytes.windows(word.len()).any(|window| window == word)
}

async fn pass(client: TcpStream, server: TcpStream, cut: Arc<AtomicU8>) {
    let (mut from_client, to_client) = client.into_split();
    let (from_server, mut to_server) = server.into_split();
    let mute = Arc::new(AtomicBool::new(false));
    let back = tokio::spawn(pass_back(from_server, to_client, mute.clone()));
    let mut bytes = vec![0; 1 << 16];
    while let Ok(length @ 1..) = from_client.read(&mut bytes).await {
        let sent = &bytes[..length];
        let takes = |when: Cut| {
            let (now, never) = (when as u8, Cut::Never as u8);
            cut.compare_exchange(now, never, Ordering::SeqCst, Ordering::SeqCst)
                .is_ok()
        };
        let commit = contains(sent, b"COMMIT\0");
        if contains(sent, b"BEGIN\0") && takes(Cut::AtBegin) || commit && takes(Cut::BeforeCommit) {
            break;
        }
        if commit && takes(Cut::ByServer) {
            let _ = back.await;
            return;
        }
        if commit && takes(Cut::AfterCommit) {
            mute.store(true, Ordering::SeqCst);
            let _ = to_server.write_all(sent).await;
            let _ = back.await;
            return;
        }
        if to_server.write_all(sent).await.is_err() {
            break;
        }
    }
    back.abort();
}

/// Forwards the data of the server. Once `mute` is set it drops the data, and ends when the server confirms `COMMIT`.
async fn pass_back(mut from_server: OwnedReadHalf, mut to_client: OwnedWriteHalf, mute: Arc<AtomicBool>) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(length @ 1..) = from_server.read(&mut bytes).await {
        let sent = &bytes[..length];
        match mute.load(Ordering::SeqCst) {
            true if contains(sent, b"COMMIT\0") => return,
            true => {}
            false if to_client.write_all(sent).await.is_err() => return,
            false => {}
        }
    }
}
