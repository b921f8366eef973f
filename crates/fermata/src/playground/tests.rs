//! The playground over real connections.

use super::*;
use axum::{body::Bytes, extract::Path};
use reqwest::Client;
use serde_json::Value;
use std::sync::{Mutex, PoisonError};
use tokio::sync::Notify;

const PATIENCE: Duration = Duration::from_secs(30);

struct Guest {
    playground: Playground,
    client: Client,
}

impl Guest {
    async fn new() -> Guest {
        fermata_runtime::tls::install_provider();
        Guest {
            playground: Playground::open().await.unwrap(),
            client: Client::builder().no_proxy().timeout(PATIENCE).build().unwrap(),
        }
    }

    /// POSTs a body; status, media type and body.
    async fn post(&self, path: &str, key: &str, body: &str) -> Result<(u16, String, String), reqwest::Error> {
        let url = format!("http://{}{path}", self.playground.address);
        let request = self.client.post(url).header("idempotency-key", key);
        let answer = request.body(body.to_owned()).send().await?;
        let media = answer.headers().get("content-type");
        let media = media
            .and_then(|media| media.to_str().ok())
            .unwrap_or_default()
            .to_owned();
        Ok((answer.status().as_u16(), media, answer.text().await?))
    }

    async fn echo(&self, query: &str, key: &str) -> (u16, String) {
        let path = format!("/echo/a/b{query}");
        let (status, _, body) = self.post(&path, key, r#"{"amount": 42}"#).await.unwrap();
        (status, body)
    }
}

#[tokio::test]
async fn what_is_sent_comes_back() {
    let guest = Guest::new().await;
    let json = guest.post("/echo/charge", "k", r#"{"amount": 42}"#).await.unwrap();
    assert_eq!(
        json,
        (200, "application/json".to_owned(), r#"{"amount": 42}"#.to_owned())
    );
    let text = guest.post("/echo/charge?status=402", "k", "no money").await.unwrap();
    assert_eq!(
        text,
        (402, "text/plain; charset=utf-8".to_owned(), "no money".to_owned())
    );
    let (status, _, about) = {
        let url = format!("http://{}/", guest.playground.address);
        let answer = guest.client.get(url).send().await.unwrap();
        (answer.status().as_u16(), (), answer.text().await.unwrap())
    };
    assert!(
        status == 200 && about.contains("/echo/NAME") && about.contains("/pay"),
        "{about}"
    );
    let (status, refused) = guest.echo("?stauts=402", "k").await;
    assert!(status == 400 && refused.contains("there are only status"), "{refused}");
    let large = "x".repeat(MAX_BODY + 1);
    assert_eq!(guest.post("/echo/large", "k", &large).await.unwrap().0, 413);
    assert_eq!(guest.post("/nothing", "k", "").await.unwrap().0, 404);
}

#[tokio::test]
async fn the_first_requests_of_a_key_fail_if_asked() {
    let guest = Guest::new().await;
    let mut statuses = Vec::new();
    for key in ["one", "one", "two", "one", "two", "two", "one"] {
        statuses.push(guest.echo("?fail=2", key).await.0);
    }
    assert_eq!(statuses, [503, 503, 503, 200, 503, 200, 200]);
}

#[tokio::test]
async fn answers_go_wrong_as_asked() {
    let guest = Guest::new().await;
    let gone = guest.post("/echo/x?reset=true", "k", "{}").await.unwrap_err();
    assert!(
        gone.is_request() && !gone.is_timeout() && !gone.is_connect(),
        "{gone:?}"
    );
    let (status, media, half) = guest
        .post("/echo/x?broken=true", "k", r#"{"amount": 42}"#)
        .await
        .unwrap();
    assert_eq!(
        (status, media.as_str(), half.as_str()),
        (200, "application/json", r#"{"amoun"#)
    );
    let (_, _, half) = guest.post("/echo/x?broken=true", "k", "").await.unwrap();
    assert!(serde_json::from_str::<Value>(&half).is_err(), "{half}");
    assert_eq!(guest.echo("?size=300000", "k").await.1.len(), 300_000);
    // A pause is one: the answer is not there before.
    let began = std::time::Instant::now();
    assert_eq!(guest.echo("?delay=50ms", "k").await.0, 200);
    assert!(began.elapsed() >= Duration::from_millis(50));
}

/// A service that is called back; it answers the first calls with these statuses, the others with 200.
async fn called(statuses: Vec<u16>) -> (SocketAddr, Arc<(Mutex<Vec<Value>>, Notify)>) {
    let calls = Arc::new((Mutex::new(Vec::new()), Notify::new()));
    let seen = calls.clone();
    let answer = move |Path(_): Path<String>, body: Bytes| {
        let (seen, statuses) = (seen.clone(), statuses.clone());
        async move {
            let mut calls = seen.0.lock().unwrap_or_else(PoisonError::into_inner);
            calls.push(serde_json::from_slice(&body).unwrap());
            let status = statuses.get(calls.len() - 1).copied().unwrap_or(200);
            seen.1.notify_one();
            StatusCode::from_u16(status).unwrap()
        }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = Router::new().route("/wh/{token}", post(answer));
    tokio::spawn(async move { axum::serve(listener, app).await });
    (address, calls)
}

#[tokio::test]
async fn a_payment_callback_is_repeated_until_it_is_accepted() {
    let guest = Guest::new().await;
    let (address, calls) = called(vec![503]).await;
    let order = json!({ "amount": 42, "callback_url": format!("http://{address}/wh/token") });
    let path = "/pay?after=10ms&status=declined";
    let (status, _, answer) = guest.post(path, "k", &order.to_string()).await.unwrap();
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert!(status == 200 && answer["checkout_id"].is_string(), "{answer}");
    let both = async {
        while calls.0.lock().unwrap().len() < 2 {
            calls.1.notified().await;
        }
    };
    tokio::time::timeout(PATIENCE, both).await.expect("it is called twice");
    let calls = calls.0.lock().unwrap();
    assert_eq!(calls[0], calls[1]);
    assert_eq!(
        (&calls[0]["status"], &calls[0]["amount"]),
        (&json!("declined"), &json!(42))
    );
    assert!(calls[0]["payment_id"].as_str().unwrap().starts_with("pay_"));
}

#[tokio::test]
async fn an_order_that_cannot_be_called_back_is_refused() {
    let guest = Guest::new().await;
    for (path, order, says) in [
        ("/pay", r#"{"amount": 1}"#, "callback_url"),
        ("/pay", "{", "callback_url"),
        ("/pay", r#"{"callback_url": "http://example.com/"}"#, "of this machine"),
        ("/pay?after=1", r#"{"callback_url": "http://127.0.0.1/"}"#, "is missing"),
        (
            "/pay?when=1s",
            r#"{"callback_url": "http://127.0.0.1/"}"#,
            "only after and status",
        ),
    ] {
        let (status, _, refused) = guest.post(path, "k", order).await.unwrap();
        assert!(status == 400 && refused.contains(says), "{path} {order}: {refused}");
    }
}

#[tokio::test]
async fn it_is_gone_when_it_is_dropped() {
    let guest = Guest::new().await;
    assert_eq!(guest.echo("", "k").await.0, 200);
    let (client, address) = (guest.client.clone(), guest.playground.address);
    drop(guest);
    let gone = async {
        // A kept connection may answer until its task ends; a new one is refused for good.
        while TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.expect("it closes");
    drop(client);
}
