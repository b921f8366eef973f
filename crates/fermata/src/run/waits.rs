//! Waits and requests of a run without a server: an address for their callbacks, and answers from the command line.

use super::{Progress, clean};
use crate::{cli, input};
use anyhow::Context;
use fermata_core::{Kind, NodeId, Plan, RunId};
use fermata_runtime::{
    Engine,
    inbox::{Given, Reply},
};
use fermata_store::inbox::WaitRef;
use fermata_web::WebConfig;
use serde_json::Value;
use std::{
    collections::{HashMap, HashSet},
    future,
    time::Duration,
};
use tokio::net::TcpListener;

/// How often new requests are looked for.
const REQUEST_POLL: Duration = Duration::from_millis(50);

/// The steps of a plan that wait for a callback or for the answer of a request.
pub fn of(plan: &Plan) -> Vec<&NodeId> {
    let waits = |node: &&fermata_core::Node| matches!(node.kind, Kind::Wait { .. }) || is_request(node);
    plan.nodes.iter().filter(waits).map(|node| &node.id).collect()
}

/// Whether a node sends a request that is answered from outside. Each attempt has its own address.
fn is_request(node: &fermata_core::Node) -> bool {
    matches!(&node.kind, Kind::Request { answer, .. } if !answer.is_child())
}

/// Reads `--callback NAME=JSON`.
pub fn read(given: &[String], plan: &Plan) -> Result<HashMap<NodeId, Value>, String> {
    let waits = of(plan);
    let mut answers = HashMap::new();
    for text in given {
        let (name, value) = text
            .split_once('=')
            .ok_or_else(|| format!("--callback {text}: write it as NAME=JSON"))?;
        let Some(node) = waits.iter().find(|node| node.as_str() == name) else {
            let names: Vec<&str> = waits.iter().map(|node| node.as_str()).collect();
            let there = match names.is_empty() {
                true => "no step of this document does".to_owned(),
                false => format!("these do: {}", names.join(", ")),
            };
            return Err(format!("--callback {text}: `{name}` is not a step that waits; {there}"));
        };
        if answers.insert((*node).clone(), input::json_or_text(value)).is_some() {
            return Err(format!("--callback {text}: a wait is answered once"));
        }
    }
    Ok(answers)
}

/// The listener for callbacks.
pub struct CallbackServer {
    listener: TcpListener,
    /// The beginning of callback URLs.
    pub url: String,
}

impl CallbackServer {
    /// Listens on a free loopback port, if a step of the plan waits for a callback.
    pub async fn open(plan: &Plan) -> anyhow::Result<Option<CallbackServer>> {
        if of(plan).is_empty() {
            return Ok(None);
        }
        let listener = TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.context("there is no port for callbacks")?;
        let url = format!("http://{}", listener.local_addr()?);
        Ok(Some(CallbackServer { listener, url }))
    }

    /// Accepts callbacks until the process ends. Waits with an answer on the command line are answered at once; the
    /// addresses of the others are handed to `progress`.
    pub async fn serve(
        self,
        engine: &Engine,
        run: RunId,
        web: WebConfig,
        answers: HashMap<NodeId, Value>,
        plan: &Plan,
        progress: &Progress,
    ) -> anyhow::Result<()> {
        let requests: HashSet<NodeId> = plan
            .nodes
            .iter()
            .filter(|node| is_request(node))
            .map(|node| node.id.clone())
            .collect();
        let mut addresses = HashMap::new();
        for wait in engine
            .reads()
            .waits(run)
            .await?
            .into_iter()
            .filter(|wait| !requests.contains(&wait.node))
        {
            match answers.get(&wait.node) {
                // A wait that is closed already belongs to a skipped step, which has a line of its own.
                Some(payload) => drop(engine.answer(&wait.token, &payload.to_string()).await?),
                None => drop(addresses.insert(wait.node, format!("{}/wh/{}", self.url, wait.token))),
            }
        }
        progress.answer_at(addresses);
        // The run may have opened a wait before its address was known.
        progress.catch_up(&engine.reads().journal(run).await?);
        tokio::spawn(fermata_web::serve(
            self.listener,
            engine.clone(),
            web,
            future::pending(),
        ));
        if !requests.is_empty() {
            let answers = answers
                .into_iter()
                .filter(|(node, _)| requests.contains(node))
                .collect();
            tokio::spawn(answer_requests(engine.clone(), run, answers, requests, self.url));
        }
        Ok(())
    }
}

/// Answers a request. One that ended meanwhile is not answered; an answer that its node refuses is printed.
async fn give(engine: &Engine, node: &NodeId, token: String, payload: &Value) {
    let reply = Reply {
        of: WaitRef::Token(token),
        lease: None,
        tenant: None,
        payload: payload.clone(),
        is_json: true,
        by: None,
    };
    if let Ok(Given::Refused { why, problems }) = engine.inbox().answer(reply).await {
        cli::say(format_args!(
            "  {} refuses its answer: {}",
            clean(node.as_str()),
            clean(&why)
        ));
        for (pointer, problem) in problems {
            cli::say(format_args!("    {}: {}", clean(&pointer), clean(&problem)));
        }
    }
}

/// Answers requests as they are sent, or prints the address for the answer, until the run ends.
async fn answer_requests(
    engine: Engine,
    run: RunId,
    answers: HashMap<NodeId, Value>,
    requests: HashSet<NodeId>,
    url: String,
) {
    let mut seen = HashSet::new();
    let mut tick = tokio::time::interval(REQUEST_POLL);
    while let Ok(waits) = engine.reads().waits(run).await {
        let waiting = waiting(&engine, run).await.unwrap_or_default();
        let sent = waits
            .into_iter()
            .filter(|wait| wait.open && requests.contains(&wait.node) && waiting.contains(&wait.node));
        for wait in sent.filter(|wait| seen.insert(wait.token.clone())) {
            match answers.get(&wait.node) {
                Some(payload) => give(&engine, &wait.node, wait.token, payload).await,
                None => cli::say(format_args!(
                    "  {} waits for an answer: POST {url}/wh/{}",
                    clean(wait.node.as_str()),
                    wait.token
                )),
            }
        }
        tick.tick().await;
    }
}

/// The steps that wait for a callback now.
pub async fn waiting(engine: &Engine, run: RunId) -> anyhow::Result<Vec<NodeId>> {
    let overview = engine.reads().overview(run).await?;
    let waiting = overview.nodes.into_iter().filter(|node| node.is_waiting);
    Ok(waiting.map(|node| node.node).collect())
}
