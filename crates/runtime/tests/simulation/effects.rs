//! The effects of the engine: each attempt is checked at the moment it begins.

use super::{
    scenario::Script,
    world::{Effect, Life, Tracked, World},
};
use fermata_core::{Kind, Phase, Status, Timestamp};
use fermata_runtime::actions::Call;

impl World {
    /// An attempt begins. Only attempts have effects.
    pub fn begin(&self, life: Life, call: &Call, parameters: String) -> (usize, Script) {
        let now = self.now();
        let mut inner = self.lock();
        let (run, node, attempt) = (call.run, call.node.clone(), call.attempt);
        let same = |effect: &&Effect| effect.run == run && effect.node == node && effect.attempt == attempt;
        let before: Vec<Effect> = inner.effects.iter().filter(same).cloned().collect();
        let (request, epoch, mistaken, wrong) = match inner.runs.get(&run) {
            None => (String::new(), 0, false, Some("its run is not durable".to_owned())),
            Some(tracked) => {
                let mistaken = tracked.mistaken.contains(&life);
                let wrong = if mistaken {
                    None
                } else {
                    objection(tracked, call, life, now)
                };
                (tracked.request.1.clone(), tracked.epoch, mistaken, wrong)
            }
        };
        let short = inner.short(run);
        inner.note(now, || format!("{life} calls {short} {node} {attempt} {parameters}"));
        if let Some(wrong) = wrong {
            inner.violate(
                now,
                format!("{node} of {short} (attempt {attempt}) was called, but {wrong}"),
            );
        }
        let repeated = before
            .iter()
            .any(|effect| effect.epoch == epoch && !effect.mistaken && !mistaken);
        if repeated || (!before.is_empty() && self.scenario.is_calm()) {
            let what = format!("{node} of {short} (attempt {attempt}) was called twice without any need");
            inner.violate(now, what);
        }
        if !before.is_empty() {
            inner.count("call repeated");
        }
        if let Some(plan) = inner.runs.get(&run).map(|tracked| tracked.run.plan().clone())
            && let Some(ix) = plan.find(node.as_str())
        {
            let own_key =
                plan.node(ix).policies.rerender_on_retry || matches!(plan.node(ix).kind, Kind::Request { .. });
            let expected = match own_key {
                true => format!("{run}:{node}:{attempt}"),
                false => format!("{run}:{node}"),
            };
            if call.idempotency_key != expected {
                inner.violate(now, format!("the key {} should be {expected}", call.idempotency_key));
            }
        }
        let differs = |effect: &&Effect| effect.key == call.idempotency_key && effect.parameters != parameters;
        if let Some(other) = inner.effects.iter().find(differs) {
            let what = format!("key {} came with {parameters} and with {}", other.key, other.parameters);
            inner.violate(now, what);
        }
        let script = self
            .scenario
            .script(&request, node.as_str(), attempt, before.len() as u32);
        inner.effects.push(Effect {
            run,
            node,
            attempt,
            key: call.idempotency_key.clone(),
            parameters,
            epoch,
            mistaken,
            state: (!call.state.is_null()).then(|| call.state.to_string()),
            outputs: None,
            link: None,
        });
        (inner.effects.len() - 1, script)
    }

    pub fn succeeded(&self, ticket: usize, outputs: String, link: Option<String>) {
        let mut inner = self.lock();
        let effect = &mut inner.effects[ticket];
        effect.outputs = Some(outputs);
        effect.link = link;
    }
}

/// Why this attempt must not begin now.
fn objection(tracked: &Tracked, call: &Call, life: Life, now: Timestamp) -> Option<String> {
    let ix = tracked.run.plan().find(call.node.as_str())?;
    if tracked.holder != Some(life) {
        return Some(format!("{:?} holds the run", tracked.holder));
    }
    if tracked.run.status() != Status::Running {
        return Some(format!("the run is {}", tracked.run.status()));
    }
    if tracked.stop_known {
        return Some("the run is stopping".to_owned());
    }
    if tracked.run.paused_at().is_some() {
        return Some("the run is paused".to_owned());
    }
    match &tracked.run.node(ix).phase {
        Phase::Open(open) if open.attempt != call.attempt => Some(format!("attempt {} is due", open.attempt)),
        Phase::Open(open) if open.due > now => Some(format!("it is due at {}", open.due.0)),
        Phase::Open(open) if open.requested => Some("its request was sent before".to_owned()),
        Phase::Open(_) => None,
        phase => Some(format!("the node is {phase:?}")),
    }
}
