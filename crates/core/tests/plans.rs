//! Stored plans of every format can always be loaded.
//!
//! `plans/v1/*.json` are plans as the releases with that format stored them. Never edit them: if a test here fails,
//! published versions would no longer run. Give a new field a default, or increase the format version and add an upcast.
//! Add a plan for each new field; the last test names the missing ones.

use fermata_core::{PlanError, StoredPlan};
use serde_json::{Value, json};
use std::{collections::BTreeSet, fs, path::Path};

fn stored() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plans/v1");
    let mut found: Vec<_> = fs::read_dir(folder)
        .expect("the folder of plans")
        .map(|entry| entry.expect("an entry").path())
        .map(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            (name, fs::read_to_string(&path).expect("a readable plan"))
        })
        .collect();
    found.sort();
    assert!(!found.is_empty());
    found
}

/// Whether `new` contains everything in `old`; lists must have the same order.
fn contains(new: &Value, old: &Value) -> bool {
    match (new, old) {
        (Value::Object(new), Value::Object(old)) => old
            .iter()
            .all(|(key, old)| new.get(key).is_some_and(|new| contains(new, old))),
        (Value::Array(new), Value::Array(old)) => {
            new.len() == old.len() && new.iter().zip(old).all(|(new, old)| contains(new, old))
        }
        (new, old) => new == old,
    }
}

#[test]
fn stored_plans_load_unchanged() {
    for (name, text) in stored() {
        let plan = StoredPlan::decode(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let again = plan.encode();
        let (new, old): (Value, Value) = (from(&again), from(&text));
        assert!(contains(&new["plan"], &old["plan"]), "{name} became\n{new:#}");
        assert_eq!(
            StoredPlan::decode(&again).expect("what was just written"),
            plan,
            "{name}"
        );
    }
}

fn from(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn nodes_and_edges_keep_their_order() {
    let (_, text) = stored().remove(0);
    let mut value = from(&text);
    let nodes = value["plan"]["nodes"].as_array_mut().expect("nodes");
    let ids: Vec<_> = nodes.iter().map(|node| node["id"].clone()).collect();
    let plan = StoredPlan::decode(&value.to_string()).expect("a valid plan");
    let loaded: Vec<_> = plan.nodes.iter().map(|node| json!(node.id)).collect();
    assert_eq!(loaded, ids);
}

#[test]
fn newer_plan_format_is_reported_as_too_new() {
    for text in [r#"{"v":2,"plan":{}}"#, r#"{"graph":[1],"v":7}"#] {
        let error = StoredPlan::decode(text).expect_err("it is too new");
        assert!(matches!(error, PlanError::TooNew(_)), "{error}");
    }
}

#[test]
fn damaged_plan_is_an_error() {
    let (_, text) = stored().remove(0);
    let mut dangling = from(&text);
    dangling["plan"]["nodes"][0]["edges"] = json!([{ "target": 4711, "when": "success" }]);
    let texts = [
        "",
        "{}",
        "[]",
        r#"{"v":0}"#,
        r#"{"v":1}"#,
        &text[..text.len() / 2],
        &dangling.to_string(),
    ];
    for text in texts {
        let error = StoredPlan::decode(text).expect_err(text);
        assert!(!matches!(error, PlanError::TooNew(_)), "{error}");
    }
}

/// The paths of all members, without list indexes.
fn members(at: &str, value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                // Data of the document, or names chosen by its author.
                let opaque =
                    ["parameters", "triggerSchema", "triggerDefaults", "failedWith", "fixed"].contains(&key.as_str());
                let path = format!("{at}.{key}");
                if !opaque {
                    members(&path, value, found);
                }
                found.insert(path);
            }
        }
        Value::Array(list) => list.iter().for_each(|value| members(at, value, found)),
        Value::String(word) => {
            found.insert(format!("{at}={word}"));
        }
        _ => {}
    }
}

/// Every field and variant of the newest format must occur in a fixture.
#[test]
fn stored_plans_cover_every_field_and_variant() {
    let mut found = BTreeSet::new();
    for (_, text) in stored() {
        members("", &from(&text)["plan"], &mut found);
    }
    let expected = [
        ".workflow .displayName .dialect .timeoutMs .triggerSchema .triggerDefaults .language=script .language=paths .language=logic",
        ".onFailure=failFast .onFailure=continue",
        ".templates.strict .templates.nullText .templates.loops .templates.functions",
        ".context.mode .context.keysToInclude .context.maxContextSizeBytes .context.overflowBehavior",
        ".nodes.id .nodes.kind.action .nodes.kind.parameters .nodes.kind.timeoutMs",
        ".nodes.kind.type=action .nodes.kind.type=sleep .nodes.kind.type=wait .nodes.kind.type=request .nodes.kind.type=pass",
        ".nodes.kind.answer.type=any .nodes.kind.answer.type=state .nodes.kind.answer.type=outcome",
        ".nodes.kind.answer.type=children .nodes.kind.answer.items .nodes.kind.answer.maxConcurrency .nodes.kind.answer.maxItems",
        ".nodes.kind.answer.onItemFailure=fail .nodes.kind.answer.onItemFailure=continue",
        ".nodes.kind.answer.type=approval .nodes.kind.answer.type=child .nodes.kind.answer.outcomes",
        ".nodes.kind.retryOnTimeout .nodes.kind.timeoutCode .nodes.mergesIntoState .nodes.title .nodes.edges.outcome",
        ".nodes.route=outcome .nodes.route=exactlyOne .outputs=changed .outputs.selected.name .outputs.selected.from",
        ".nodes.join=any .nodes.join=all .nodes.join.guard .nodes.route=parallel .nodes.route=firstMatch",
        ".nodes.policies.timeoutMs .nodes.policies.retry.maxAttempts .nodes.policies.retry.baseDelayMs",
        ".nodes.policies.retry.backoffFactor .nodes.policies.retry.jitter .nodes.policies.rerenderOnRetry",
        ".nodes.edges.target .nodes.edges.condition",
        ".nodes.edges.when=success .nodes.edges.when=failure .nodes.edges.when=always .nodes.edges.when=unhandled",
        ".scope.names.path .scope.names.source=trigger .scope.names.source=spec .scope.names.source=vars",
        ".scope.names.source=waits .scope.names.source=entries .scope.names.source=state .scope.names.source.fixed",
        ".scope.entries.succeeded.output .scope.entries.answered.object .scope.entries.failed.object",
        ".scope.entries.skipped.object .scope.entries.skipped.object.name .scope.entries.skipped.object.optional",
        ".scope.entries.answered.object.form=status .scope.entries.answered.object.form=null",
        ".scope.entries.failed.object.form=node .scope.entries.failed.object.form.object.form=errorCode",
        ".scope.entries.failed.object.form.object.form=errorMessage",
        ".flow.concurrency.limit .flow.concurrency.key .flow.concurrency.refuse .flow.rate.limit .flow.rate.periodMs .flow.rate.key",
        ".flow.debounce.quietMs .flow.debounce.maxMs .flow.debounce.key .flow.unique.key",
        ".scope.words.pending .scope.words.running .scope.words.sleeping .scope.words.waiting",
        ".scope.words.succeeded .scope.words.answered .scope.words.failed .scope.words.failedWith .scope.words.skipped",
    ];
    for expected in expected.iter().flat_map(|line| line.split(' ')) {
        assert!(found.contains(expected), "no plan in tests/plans contains {expected}");
    }
}
