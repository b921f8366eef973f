//! Requests to webhooks.
//!
//! What must stay true:
//! * An unknown, disabled, unsigned and wrongly signed request have the same answer, and a signature is computed for each of
//!   them. A request that is not accepted is not recorded: a stranger cannot fill the database.
//! * What is accepted is durable before it is answered: as a run with its delivery, or as a delivery.

use super::{
    Occurred,
    deliver::{Occurrence, pending},
};
use crate::{
    engine::{Ended, Engine},
    error::{EngineError, Refusal},
    memory::Share,
};
use bytes::Bytes;
use fermata_store::triggers::{DeliveryState, Trigger, TriggerType};
use fermata_triggers::{
    Headers, Scheme, SignatureConfig, TriggerConfig, WebhookConfig,
    config::Respond,
    request::{BodyError, delivery_id, slack_challenge, trigger_of, visible_request},
    signature::{SignatureError, Verified},
};
use http::HeaderMap;
use serde_json::json;
use std::sync::{Arc, LazyLock};
use uuid::Uuid;

/// A request to a webhook.
#[derive(Debug, Clone)]
pub struct WebhookRequest {
    /// Its method.
    pub method: String,
    /// Its headers.
    pub headers: HeaderMap,
    /// What stands after `?` in its URL.
    pub query: Option<String>,
    /// Its body, as it was received.
    pub body: Bytes,
    /// The memory that the request is counted as.
    pub memory: Option<Arc<Share>>,
}

/// The answer to a request that was accepted.
#[derive(Debug, Clone)]
pub enum Received {
    /// What became of it, as far as that is known now.
    Accepted(Occurred),
    /// With `respond: result`: how its run ended, or `None` if it did not end in time or there is no run.
    Finished(Occurred, Option<Arc<Ended>>),
    /// A challenge that the provider wants back.
    Challenge(String),
}

/// A signature that is computed for requests to webhooks that do not exist.
static DECOY: LazyLock<Option<SignatureConfig>> = LazyLock::new(|| {
    let config = json!({ "signature": { "scheme": "github", "secret": "DECOY" } });
    match TriggerConfig::parse(fermata_triggers::TriggerType::Webhook, &config) {
        Ok(TriggerConfig::Webhook(config)) => config.signature,
        _ => None,
    }
});

impl Engine {
    /// Receives a request for the webhook with this path segment.
    ///
    /// # Errors
    /// [`Refusal::NoWebhook`] for whatever a stranger must not know; other refusals only after the signature was right.
    pub async fn receive_webhook(&self, segment: &str, request: WebhookRequest) -> Result<Received, EngineError> {
        let shared = &self.shared;
        let now = shared.clock.now();
        let headers = request.headers.iter();
        let headers = Headers::new(headers.map(|(name, value)| (name.as_str(), value.as_bytes())));
        let found = match Uuid::try_parse(segment) {
            Ok(segment) => shared.store.webhook(segment, now).await?,
            Err(_) => None,
        };
        let found = found.filter(|trigger| {
            trigger.enabled && trigger.kind == TriggerType::Webhook && shared.settings.triggers.enable_webhooks
        });
        let config = found.as_ref().and_then(config_of);
        let (Some(trigger), Some(config)) = (found, config) else {
            if let Some(decoy) = DECOY.as_ref() {
                // Its result does not matter. The work must not say that there is no such webhook.
                let verified = self.verify("", decoy, &headers, &request.body).await;
                let _ = std::hint::black_box(verified);
            }
            return Err(Refusal::NoWebhook.into());
        };
        let verified = match &config.signature {
            None => None,
            Some(signature) => match self.verify(&trigger.tenant, signature, &headers, &request.body).await {
                Ok(verified) => Some(verified),
                Err(error) => {
                    // Without the id: it is the URL of the webhook.
                    let (workflow, name) = (&trigger.workflow_id, trigger.name.as_deref());
                    tracing::info!(workflow, name, %error, "a request to a webhook was not accepted");
                    return Err(Refusal::NoWebhook.into());
                }
            },
        };
        let payload = trigger_of(&headers, &request.body).map_err(|error| match error {
            BodyError::UnsupportedType(_) => Refusal::UnsupportedBody(error.to_string()),
            BodyError::Malformed(_) => Refusal::InvalidBody(error.to_string()),
        })?;
        let is_slack = config
            .signature
            .as_ref()
            .is_none_or(|signature| signature.scheme == Scheme::Slack);
        if let Some(challenge) = slack_challenge(&payload).filter(|_| is_slack) {
            return Ok(Received::Challenge(challenge.to_owned()));
        }
        let signature = config.signature.as_ref();
        let visible = visible_request(&request.method, &headers, request.query.as_deref(), signature);
        let name = delivery_id(
            signature,
            verified.as_ref(),
            config.dedupe.as_ref(),
            &headers,
            &payload,
            &visible,
        );
        // Usually the requestId finds the run of a repeated delivery. Retention may have deleted that run.
        if let Some(name) = &name
            && let Some(there) = shared.store.occurrence(trigger.id, name).await?
            && there.state == DeliveryState::Started
            && shared.store.run(there.run).await?.is_none()
        {
            return Ok(Received::Accepted(Occurred::of(&there, true)));
        }
        let name = name.unwrap_or_else(|| shared.ids.next().to_string());
        let occurrence = Occurrence {
            delivery: pending(shared, &trigger, name),
            payload: Arc::new(payload),
            request: Arc::new(visible),
            memory: request.memory,
        };
        let occurred = match self.occur(&trigger, occurrence, request.body.len()).await {
            // The delivery is recorded. A stranger learns nothing about the workflow.
            Err(EngineError::Refused(Refusal::NotActive { .. } | Refusal::WorkflowNotFound(_))) => {
                return Err(Refusal::NoWebhook.into());
            }
            occurred => occurred?,
        };
        match config.respond {
            Respond::Accepted => Ok(Received::Accepted(occurred)),
            Respond::Result { timeout } => self.finish(occurred, timeout).await,
        }
    }

    /// Checks the signature of a request, with the secrets of the trigger's owner.
    async fn verify(
        &self,
        owner: &str,
        signature: &SignatureConfig,
        headers: &Headers,
        body: &Bytes,
    ) -> Result<Verified, SignatureError> {
        let shared = &self.shared;
        let (secrets, owner) = (shared.settings.secrets.clone(), owner.to_owned());
        let names = signature.secrets.clone();
        let secrets = shared.offload.elsewhere(move || secrets.values(&owner, &names)).await;
        signature.verify(&secrets, headers, body, shared.clock.now())
    }

    /// Waits for the end of the run.
    async fn finish(&self, occurred: Occurred, timeout: std::time::Duration) -> Result<Received, EngineError> {
        let deadline = tokio::time::Instant::now() + timeout;
        let mut occurred = occurred;
        while occurred.state.is_open() && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(self.shared.settings.poll_interval.min(timeout) / 10).await;
            match self.shared.store.delivery(occurred.delivery).await? {
                Some(delivery) => occurred = Occurred::of(&delivery, occurred.is_duplicate),
                None => break,
            }
        }
        let run = occurred.run.filter(|_| occurred.state == DeliveryState::Started);
        let left = deadline.saturating_duration_since(tokio::time::Instant::now());
        let ended = match run {
            Some(run) => self.wait(run, left).await?,
            None => None,
        };
        Ok(Received::Finished(occurred, ended))
    }
}

fn config_of(trigger: &Trigger) -> Option<WebhookConfig> {
    let config = serde_json::from_str(&trigger.config).ok()?;
    match TriggerConfig::parse(fermata_triggers::TriggerType::Webhook, &config).ok()? {
        TriggerConfig::Webhook(config) => Some(config),
        _ => None,
    }
}
