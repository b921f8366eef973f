//! Flow control of a run: the keys of its document, rendered, and the limit of its tenant.
//!
//! | key | text | shared by |
//! | --- | --- | --- |
//! | `concurrency`, `rate`, `debounce`, `unique` | kind, tenant, workflow and rendered value | runs of the workflow with the same value |
//! | the tier's `concurrent_runs` | kind and tenant | runs of the tenant |
//!
//! What must stay true: a key never contains more than a bounded number of bytes, and texts of different tenants, workflows
//! and values differ. A run shares the places of ancestors that wait for it: its own would never become free. A run that no
//! ancestor waits for has its own.

use crate::{compiled::Compiled, settings::Settings, tiers::Tier};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use fermata_core::plan::{FlowControl, Source};
use fermata_expr::{
    Data,
    template::{Options, Template},
};
use fermata_store::flow::{Debounce, Flow, Key, PLACES, Place, Rate, RunFlow};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::{collections::BTreeMap, sync::Arc};
use uuid::Uuid;

/// The longest rendered value, in bytes.
const LONGEST_VALUE: usize = 1024;
/// The longest value that is part of a key; of longer ones their hash is.
const LONGEST_IN_KEY: usize = 128;

/// The parsed keys of a document.
#[derive(Default)]
pub(crate) struct FlowKeys {
    concurrency: Option<Template>,
    rate: Option<Template>,
    debounce: Option<Template>,
    unique: Option<Template>,
}

impl FlowKeys {
    pub(crate) fn new(control: Option<&FlowControl>, options: &Options) -> Result<FlowKeys, String> {
        let mut keys = FlowKeys::default();
        for (rule, key) in control.into_iter().flat_map(FlowControl::keys) {
            let parsed = Template::parse(key, options).map_err(|error| format!("`{key}`: {}", error.message))?;
            let place = match rule {
                "concurrency" => &mut keys.concurrency,
                "rate" => &mut keys.rate,
                "debounce" => &mut keys.debounce,
                _ => &mut keys.unique,
            };
            *place = Some(parsed);
        }
        Ok(keys)
    }
}

/// A key that cannot be rendered.
#[derive(Debug)]
pub(crate) struct KeyError {
    pub(crate) rule: &'static str,
    pub(crate) why: String,
}

/// The run whose flow control is wanted.
pub(crate) struct Subject<'a> {
    pub(crate) tenant: &'a str,
    pub(crate) workflow: Uuid,
    pub(crate) version: u32,
    pub(crate) trigger: &'a Value,
    pub(crate) spec: Option<&'a Value>,
    /// Keys whose places ancestors hold that wait for it.
    pub(crate) shares: &'a [String],
}

impl Settings {
    /// How a run is limited; `None` if it is not.
    pub(crate) fn flow_of(&self, compiled: &Compiled, of: &Subject<'_>) -> Result<Option<Box<Flow>>, KeyError> {
        match self.ignore_flow_control {
            true => Ok(None),
            false => flow_of(compiled, self.tiers.of(of.tenant), of),
        }
    }
}

fn flow_of(compiled: &Compiled, tier: Option<&Tier>, of: &Subject<'_>) -> Result<Option<Box<Flow>>, KeyError> {
    let control = compiled.plan.flow.as_ref();
    let tenants_limit = tier.and_then(|tier| tier.concurrent_runs);
    if control.is_none() && tenants_limit.is_none() && of.shares.is_empty() {
        return Ok(None);
    }
    let mut flow = Flow {
        shared: of.shares.to_vec(),
        ..Flow::default()
    };
    let key = |rule: &'static str, letter: char, template: Option<&Template>| -> Result<Key, KeyError> {
        let value = match template {
            Some(template) => render(compiled, template, of).map_err(|why| KeyError { rule, why })?,
            None => String::new(),
        };
        let in_key = match value.len() > LONGEST_IN_KEY || value.contains('\0') {
            true => format!("#{}", STANDARD.encode(Sha256::digest(&value))),
            false => format!("={value}"),
        };
        Ok(Key::of_workflow(letter, of.workflow, of.tenant, &in_key, value))
    };
    let keys = &compiled.flow;
    if let Some(control) = control {
        if control.unique.is_some() {
            flow.unique = Some(key("unique", 'u', keys.unique.as_ref())?);
        }
        if let Some(rule) = &control.debounce {
            flow.debounce = Some(Debounce {
                key: key("debounce", 'd', keys.debounce.as_ref())?,
                quiet_ms: rule.quiet_ms,
                max_ms: rule.max_ms,
            });
        }
        if let Some(rule) = &control.rate {
            flow.rate = Some(Rate {
                key: key("rate", 'r', keys.rate.as_ref())?,
                limit: rule.limit,
                period_ms: rule.period_ms,
            });
        }
        if let Some(rule) = &control.concurrency {
            flow.places.push(Place {
                key: key("concurrency", PLACES, keys.concurrency.as_ref())?,
                limit: rule.limit,
                version: of.version,
                refuse: rule.refuse,
                tenant: false,
            });
        }
    }
    if let Some(limit) = tenants_limit {
        flow.places.push(Place {
            key: Key::of_tenant(of.tenant),
            limit,
            version: 0,
            refuse: false,
            tenant: true,
        });
    }
    flow.places.retain(|place| !of.shares.contains(&place.key.key));
    Ok((!flow.is_empty()).then(|| Box::new(flow)))
}

/// The keys whose places the awaited children of a run share.
pub(crate) fn shared_with_children(flow: Option<&Flow>) -> Arc<[String]> {
    let Some(flow) = flow else { return Arc::default() };
    let own = flow.places.iter().map(|place| place.key.key.clone());
    own.chain(flow.shared.iter().cloned()).collect()
}

/// The same for a stored run.
pub(crate) fn shared_by(flow: Option<&RunFlow>) -> Arc<[String]> {
    shared_with_children(flow.map(|flow| &flow.flow))
}

/// Renders a key over what is known when a run starts.
fn render(compiled: &Compiled, template: &Template, of: &Subject<'_>) -> Result<String, String> {
    let mut roots = BTreeMap::new();
    let null = Value::Null;
    for name in &compiled.plan.scope.names {
        let data = match &name.source {
            Source::Trigger => Data::Json(of.trigger),
            Source::Spec => Data::Json(of.spec.unwrap_or(&null)),
            Source::State => {
                let members = of.trigger.as_object().into_iter().flatten();
                roots.extend(members.map(|(name, value)| (name.as_str(), Data::Json(value))));
                continue;
            }
            _ => continue,
        };
        crate::scope::place(&mut roots, &name.path, data);
    }
    let rendered = template.render(&Data::Object(roots), &compiled.templates);
    let value = match rendered.map_err(|error| error.message)? {
        Value::Null => return Err("it is null".to_owned()),
        Value::String(text) => text,
        other => other.to_string(),
    };
    match value.len() {
        0 => Err("it is empty".to_owned()),
        length if length > LONGEST_VALUE => Err(format!("it has {length} bytes; at most {LONGEST_VALUE} are allowed")),
        _ => Ok(value),
    }
}
