//! `POST /pay`: a payment provider. It accepts an order at once and calls back when the payment is complete.
//!
//! What must stay true: only loopback addresses are called back, redirects are not followed, and the number of payments
//! in progress is bounded.

use super::{Playing, Refused, echo::pause};
use axum::{
    Json,
    body::Bytes,
    extract::{Query, State},
    response::{IntoResponse, Response},
};
use reqwest::{Client, Url, redirect::Policy};
use serde::Deserialize;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use uuid::Uuid;

/// The most payments in progress.
const MOST: usize = 1000;
/// How long a payment takes by default.
const USUAL: Duration = Duration::from_secs(1);
/// The pauses between the attempts to call back.
const PAUSES: [u64; 5] = [100, 300, 1000, 3000, 10_000];
const PATIENCE: Duration = Duration::from_secs(10);

/// Sends the callbacks.
pub struct Payments {
    client: Client,
    room: Arc<Semaphore>,
}

impl Payments {
    pub fn new() -> Result<Payments, reqwest::Error> {
        let client = Client::builder()
            .no_proxy()
            .redirect(Policy::none())
            .timeout(PATIENCE)
            .build()?;
        Ok(Payments {
            client,
            room: Arc::new(Semaphore::new(MOST)),
        })
    }
}

#[derive(Debug, Deserialize)]
struct Order {
    #[serde(default)]
    amount: Value,
    callback_url: String,
}

pub async fn pay(
    State(playing): State<Playing>,
    Query(query): Query<Vec<(String, String)>>,
    body: Bytes,
) -> Result<Response, Refused> {
    let (mut after, mut status) = (USUAL, "paid".to_owned());
    for (name, value) in query {
        match name.as_str() {
            "after" => after = pause(&value).map_err(|what| Refused(format!("`after={value}`: {what}")))?,
            "status" => status = value,
            _ => return Err(Refused(format!("`{name}`: there are only after and status"))),
        }
    }
    let order: Order = serde_json::from_slice(&body)
        .map_err(|error| Refused(format!("an order with `callback_url` is needed: {error}")))?;
    let url = loopback(&order.callback_url)?;
    let room = playing.payments.room.clone().try_acquire_owned();
    let room = room.map_err(|_| Refused(format!("{MOST} payments are in progress already")))?;
    let id = Uuid::new_v4().simple().to_string();
    let paid = json!({ "status": status, "payment_id": format!("pay_{id}"), "amount": order.amount });
    let client = playing.payments.client.clone();
    tokio::spawn(async move {
        tokio::time::sleep(after).await;
        call_back(client, url, paid, room).await;
    });
    Ok(Json(json!({ "checkout_id": format!("chk_{id}") })).into_response())
}

/// Accepts only loopback URLs.
fn loopback(text: &str) -> Result<Url, Refused> {
    let url = Url::parse(text).map_err(|error| Refused(format!("`callback_url` is not a URL: {error}")))?;
    let host = url.host_str().unwrap_or_default();
    let literal = host.trim_start_matches('[').trim_end_matches(']');
    let address = literal.parse::<std::net::IpAddr>();
    let here = host == "localhost" || address.is_ok_and(|address| address.is_loopback());
    match url.scheme() == "http" && here {
        true => Ok(url),
        false => Err(Refused(
            "`callback_url` must be an http URL of this machine, such as http://127.0.0.1:7070/wh/…".to_owned(),
        )),
    }
}

/// Calls until the call is accepted, or refused for good.
async fn call_back(client: Client, url: Url, paid: Value, _room: OwnedSemaphorePermit) {
    let mut pauses = PAUSES.into_iter();
    loop {
        let request = client.post(url.clone()).header("content-type", "application/json");
        let answer = request.body(paid.to_string()).send().await;
        let final_answer = answer.is_ok_and(|answer| !answer.status().is_server_error());
        match pauses.next() {
            Some(pause) if !final_answer => tokio::time::sleep(Duration::from_millis(pause)).await,
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_called_back() {
        for url in [
            "http://127.0.0.1:7070/wh/x",
            "http://127.1/",
            "http://localhost:1/",
            "http://[::1]:8/",
        ] {
            assert!(loopback(url).is_ok(), "{url}");
        }
        for url in [
            "https://127.0.0.1/",
            "http://10.0.0.1/",
            "http://example.com/",
            "http://localhost.example.com/",
            "http://127.0.0.1@example.com/",
            "http://[::ffff:10.0.0.1]/",
            "file:///etc/passwd",
            "nonsense",
        ] {
            assert!(loopback(url).is_err(), "{url}");
        }
    }
}
