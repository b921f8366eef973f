//! Concurrency keys: never more runs than the limit at once, judged by the calls that the service received. Tenants do not
//! share keys.
//!
//! A run is active at least from its first recorded call to its last one. Calls whose response was lost are left out: a process
//! that was stopped may send one long after its run went on elsewhere.

use super::{Found, Rule, Rules, effects::recorded_call};
use crate::chaos::evidence::{Evidence, Micros, RunRows};
use serde_json::Value;
use std::collections::BTreeMap;

/// The member of the trigger that is the key of the rig's workflows.
pub const KEY: &str = "word";

/// When runs begin (1) and end (-1).
type Edges = Vec<(Micros, i64)>;

pub(super) fn check(rules: &Rules, evidence: &Evidence, found: &mut Found) {
    let times: BTreeMap<u64, Micros> = evidence.effects.iter().map(|call| (call.call, call.at)).collect();
    let mut keys: BTreeMap<(&str, &str, String), (u64, Edges)> = BTreeMap::new();
    for rows in evidence.runs.values() {
        let workflow = rules.workflows.get(&rows.workflow);
        let limit = workflow.and_then(|(workflow, _)| workflow.document["concurrency"]["limit"].as_u64());
        let (Some(limit), Some((from, to))) = (limit, active(rows, &times)) else {
            continue;
        };
        let key = rows.trigger.get(KEY).map(Value::to_string).unwrap_or_default();
        let (_, edges) = keys
            .entry((&rows.workflow, &rows.tenant, key))
            .or_insert((limit, Vec::new()));
        // A run that ends in the same microsecond as another begins has ended before.
        edges.extend([(from, 1), (to, -1)]);
    }
    for ((workflow, tenant, key), (limit, mut edges)) in keys {
        edges.sort_unstable();
        let mut now = 0;
        for (at, change) in edges {
            now += change;
            if now > limit as i64 {
                let what = format!(
                    "{now} runs of `{workflow}` of the tenant `{tenant}` with the key {key} were active at {at}; \
                     the limit is {limit}"
                );
                found.add(Rule::Place, None, what);
                break;
            }
        }
    }
}

/// The times of the first and the last recorded call of a run, if it made several.
fn active(rows: &RunRows, times: &BTreeMap<u64, Micros>) -> Option<(Micros, Micros)> {
    let calls = rows.attempts.iter().filter_map(recorded_call);
    let calls = calls.filter_map(|call| times.get(&call).copied());
    let (first, last) = calls.fold((Micros::MAX, Micros::MIN), |(first, last), at| {
        (first.min(at), last.max(at))
    });
    (first < last).then_some((first, last))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::{
        check::tests::{attempt_of, effect_at, finished_run},
        workflows,
    };
    use serde_json::json;
    use std::time::Duration;
    use uuid::Uuid;

    /// The violations if runs with these keys, `tenant/key`, called the service at these times, first and last.
    fn broken(runs: &[(&str, Micros, Micros)]) -> usize {
        let mut evidence = Evidence::default();
        for (number, (key, from, to)) in (0..).zip(runs) {
            let (tenant, key) = key.split_once('/').unwrap_or(("", key));
            let (first, last) = (2 * number, 2 * number + 1);
            let rows = RunRows {
                tenant: tenant.to_owned(),
                trigger: json!({ KEY: key }),
                attempts: vec![attempt_of("one", first), attempt_of("two", last)],
                ..finished_run("keyed")
            };
            evidence.runs.insert(Uuid::from_u128(u128::from(number)), rows);
            evidence.effects.extend([effect_at(first, *from), effect_at(last, *to)]);
        }
        let rules = Rules::new(&workflows::all("http://127.0.0.1:1"), Duration::from_secs(2));
        let mut found = Found::default();
        check(&rules, &evidence, &mut found);
        found.violations.len()
    }

    #[test]
    fn more_runs_than_the_limit_are_found() {
        assert_eq!(
            broken(&[("a", 1, 5), ("a", 2, 6), ("a", 6, 9), ("b", 1, 9), ("b", 1, 9)]),
            0
        );
        assert_eq!(broken(&[("a", 1, 5), ("a", 2, 6), ("a", 4, 9)]), 1);
        assert_eq!(broken(&[("a", 1, 5), ("a", 2, 6), ("blue/a", 4, 9)]), 0);
    }
}
