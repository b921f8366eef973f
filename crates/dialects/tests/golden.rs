//! Golden files: `testdata/DIALECT/NAME.json|jsonc|yaml` compiles to `NAME.plan.json`, or is refused
//! with `NAME.diagnostics.txt`, or has both if there are warnings. Names that end in `.save` are
//! compiled for saving, the others for publishing. Documents without a dialect (syntax errors, text
//! that is not UTF-8) are in the folder of the first one. What expressions can read is the same in all plans of a dialect
//! and is in `scope.txt`.
//!
//! To add a test, add a document and run with `UPDATE_GOLDEN=1`; then check what was written.

use fermata_dialects::{
    Catalog, CatalogEntry, Compiled, Diagnostics, Document, DocumentLimits, Settings, Stage, compile, dataworkflows,
    jsondagapi, runlater,
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// The folders of `testdata`, with the schemas of their documents.
const DIALECTS: [(&str, &str); 3] = [
    ("dataworkflows", dataworkflows::SCHEMA),
    ("runlater", runlater::SCHEMA),
    ("jsondagapi", jsondagapi::SCHEMA),
];

/// A few actions, one of each kind.
struct Actions;

impl Catalog for Actions {
    fn find(&self, action: &str) -> Option<CatalogEntry> {
        let plain = CatalogEntry::default();
        match action {
            "core.echo" | "core.delay" | "core.template.render" | "core.approval" | "core.subworkflow" => Some(plain),
            "callback" | "event" | "http.task" => Some(plain),
            "core.off" => Some(CatalogEntry {
                enabled: false,
                ..plain
            }),
            "core.old" => Some(CatalogEntry {
                deprecation: Some("use `core.echo` instead".to_owned()),
                ..plain
            }),
            "http.request" => Some(CatalogEntry {
                parameter_schema: Some(json!({
                    "type": "object",
                    "required": ["url"],
                    "additionalProperties": false,
                    "properties": {
                        "url": { "type": "string" },
                        "method": { "enum": ["GET", "POST", "PUT", "PATCH", "DELETE"] },
                        "headers": { "type": "object" },
                        "body": {},
                        "timeoutMs": { "type": "integer", "minimum": 1 }
                    }
                })),
                ..plain
            }),
            _ => None,
        }
    }

    fn names(&self) -> Vec<String> {
        ["core.echo", "core.delay", "core.template.render", "http.request"]
            .map(str::to_owned)
            .to_vec()
    }
}

fn run(source: &[u8], name: &str) -> Result<(Document, Compiled), Diagnostics> {
    let document = Document::parse(source, name, &DocumentLimits::default())?;
    let stage = if name.contains(".save.") {
        Stage::Save
    } else {
        Stage::Publish
    };
    let settings = Settings {
        max_nodes: 30,
        ..Settings::default()
    };
    let compiled = compile(&document, &settings, &Actions, stage)?;
    Ok((document, compiled))
}

/// The expected content of the files next to the document.
fn expected(source: &[u8], name: &str) -> (Option<String>, Option<String>) {
    match run(source, name) {
        Ok((document, compiled)) => {
            let mut plan = serde_json::to_value(&compiled.plan).unwrap();
            // It is the same for all documents of a dialect; see `scopes_match_their_golden_files`.
            plan.as_object_mut().unwrap().shift_remove("scope").unwrap();
            let plan = serde_json::to_string_pretty(&plan).unwrap() + "\n";
            let warnings = document.report(compiled.warnings);
            let text = (!warnings.list().is_empty()).then(|| warnings.render(false));
            (Some(plan), text)
        }
        Err(problems) => (None, Some(problems.render(false))),
    }
}

fn folder(dialect: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(dialect)
}

fn documents(dialect: &str) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder(dialect)).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if !name.ends_with(".plan.json") && !name.ends_with(".txt") {
            found.insert(name, fs::read(path).unwrap());
        }
    }
    found
}

#[test]
fn documents_compile_as_in_their_golden_files() {
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    let mut wrong = Vec::new();
    let all = DIALECTS.iter().flat_map(|(dialect, _)| {
        let documents = documents(dialect).into_iter();
        documents.map(|(name, source)| (folder(dialect), name, source))
    });
    for (folder, name, source) in all {
        let (plan, text) = expected(&source, &name);
        for (answer, ending) in [(plan, "plan.json"), (text, "diagnostics.txt")] {
            let stem = name.rsplit_once('.').map_or(name.as_str(), |(stem, _)| stem);
            let path = folder.join(format!("{stem}.{ending}"));
            let expected = fs::read_to_string(&path).ok();
            if answer == expected {
                continue;
            }
            match &answer {
                Some(answer) if update => fs::write(&path, answer).unwrap(),
                None if update => fs::remove_file(&path).unwrap(),
                _ => wrong.push(format!("{stem}.{ending}\n--- is now:\n{}", answer.unwrap_or_default())),
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "UPDATE_GOLDEN=1 accepts these:\n\n{}",
        wrong.join("\n")
    );
}

/// Published versions keep their scope; this test keeps it stable for new versions.
#[test]
fn scopes_match_their_golden_files() {
    for (dialect, _) in DIALECTS {
        let mut compiled = documents(dialect)
            .into_iter()
            .filter_map(|(name, source)| run(&source, &name).ok())
            .map(|(_, compiled)| serde_json::to_string_pretty(&compiled.plan.scope).unwrap() + "\n");
        let scope = compiled.next().expect("a document that compiles");
        assert!(
            compiled.all(|other| other == scope),
            "the scope of {dialect} depends on the document"
        );
        let path = folder(dialect).join("scope.txt");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&path, &scope).unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), scope, "{dialect}/scope.txt");
    }
}

/// A golden file without its document would never be checked.
#[test]
fn every_golden_file_has_a_document_and_every_folder_a_dialect() {
    for entry in fs::read_dir(folder("")).unwrap() {
        let name = entry.unwrap().file_name();
        assert!(
            DIALECTS.iter().any(|(dialect, _)| name == *dialect),
            "{name:?} is not run"
        );
    }
    for (dialect, _) in DIALECTS {
        let documents = documents(dialect);
        let stems: Vec<&str> = documents
            .keys()
            .filter_map(|name| Some(name.rsplit_once('.')?.0))
            .collect();
        for entry in fs::read_dir(folder(dialect)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let answer = name
                .strip_suffix(".plan.json")
                .or(name.strip_suffix(".diagnostics.txt"));
            assert!(
                answer.is_none_or(|stem| stems.contains(&stem)),
                "{dialect}/{name} has no document"
            );
        }
    }
}

/// The codes that the documents of each dialect must show, no more and no fewer.
const CODES: [(&str, &[&str]); 3] = [
    (
        "dataworkflows",
        &[
            "CONDITION_ASSIGNS",
            "CONDITION_SYNTAX",
            "CONFLICTING_FIELDS",
            "CYCLE",
            "DEPRECATED_ACTION",
            "DIALECT_NOT_SUPPORTED",
            "DISABLED_ACTION",
            "DUPLICATE_KEY",
            "DUPLICATE_NODE_ID",
            "DUPLICATE_TRIGGER",
            "EMPTY_DOCUMENT",
            "INVALID_HEADER",
            "INVALID_ID",
            "INVALID_KEY",
            "INVALID_PARAMETERS",
            "INVALID_RATE",
            "INVALID_TRIGGER_CONFIG",
            "INVALID_TRIGGER_SCHEMA",
            "INVALID_URL",
            "INVALID_VALUE",
            "LONGER_THAN_RUN",
            "MISPLACED_FIELD",
            "MISPLACED_SECRET",
            "MISSING_FIELD",
            "NAME_LOOKS_LIKE_ID",
            "NODE_NOT_UPSTREAM",
            "NOT_A_LIST",
            "NOT_A_WAIT",
            "NOT_UTF8",
            "RECURSIVE_WORKFLOW",
            "SECRET_NOT_ALLOWED",
            "SYNTAX",
            "TEMPLATE_SYNTAX",
            "TOO_DEEP",
            "TOO_MANY_NODES",
            "UNKNOWN_ACTION",
            "UNKNOWN_DIALECT",
            "UNKNOWN_FIELD",
            "UNKNOWN_NAME",
            "UNKNOWN_NODE",
            "UNKNOWN_NODE_REFERENCE",
            "UNREACHABLE_NODE",
            "UNSUPPORTED_YAML",
            "WRONG_TYPE",
        ],
    ),
    (
        "runlater",
        &[
            "CONDITION_SYNTAX",
            "CYCLE",
            "DOUBLED_NEED",
            "INCOMPLETE_PATH",
            "INVALID_CRON",
            "INVALID_DURATION",
            "INVALID_HEADER",
            "INVALID_RATE",
            "INVALID_URL",
            "INVALID_VALUE",
            "LONGER_THAN_RUN",
            "MISPLACED_FIELD",
            "MISSING_FIELD",
            "MIXED_STEP_TYPES",
            "NAME_LOOKS_LIKE_ID",
            "NODE_NOT_UPSTREAM",
            "NOTHING_THERE",
            "NOT_A_WAIT",
            "SHORT_TIMEOUT",
            "SYNTAX",
            "TEMPLATE_SYNTAX",
            "TOO_MANY_NODES",
            "TYPE_MISMATCH",
            "UNKNOWN_FIELD",
            "UNKNOWN_NAME",
            "UNKNOWN_NODE",
            "UNKNOWN_NODE_REFERENCE",
            "UNKNOWN_STATUS",
            "UNUSED_FIELD",
            "WRONG_TYPE",
        ],
    ),
    (
        "jsondagapi",
        &[
            "CONDITION_NOT_ALLOWED",
            "CONDITION_SYNTAX",
            "CYCLE",
            "DECISION_WITHOUT_EDGE",
            "DUPLICATE_EDGE",
            "DUPLICATE_NODE_ID",
            "DUPLICATE_OUTCOME",
            "EXECUTOR_NOT_ALLOWED",
            "INVALID_DEFAULT",
            "INVALID_HEADER",
            "INVALID_TRIGGER_SCHEMA",
            "INVALID_URL",
            "INVALID_VALUE",
            "MISPLACED_FIELD",
            "MISSING_FIELD",
            "MIXED_CONDITIONS",
            "NAME_LOOKS_LIKE_ID",
            "NOT_A_LIST",
            "NO_START_NODE",
            "OUTCOME_NOT_ALLOWED",
            "RECURSIVE_WORKFLOW",
            "SELF_LOOP",
            "SEVERAL_CALLBACKS",
            "TEMPLATE_SYNTAX",
            "TERMINAL_NODE_HAS_EDGE",
            "TOO_MANY_NODES",
            "UNKNOWN_FIELD",
            "UNKNOWN_NODE",
            "UNREACHABLE_NODE",
            "WRONG_TYPE",
        ],
    ),
];

#[test]
fn every_code_has_a_document() {
    for (dialect, codes) in CODES {
        let mut seen = BTreeMap::new();
        for (name, source) in documents(dialect) {
            let list = match run(&source, &name) {
                Ok((document, compiled)) => document.report(compiled.warnings).into_list(),
                Err(problems) => problems.into_list(),
            };
            for diagnostic in list {
                seen.insert(diagnostic.code, name.clone());
            }
        }
        for code in codes {
            assert!(seen.remove(code).is_some(), "no document of {dialect} shows {code}");
        }
        assert!(seen.is_empty(), "not in the list of {dialect}: {seen:?}");
    }
}

/// The schema files, which editors use, must accept the same documents as the engine.
#[test]
fn schemas_and_engine_agree() {
    let structural = [
        "UNKNOWN_FIELD",
        "WRONG_TYPE",
        "INVALID_VALUE",
        "MIXED_STEP_TYPES",
        "MISPLACED_FIELD",
    ];
    for (dialect, schema) in DIALECTS {
        let schema: Value = serde_json::from_str(schema).unwrap();
        let schema = jsonschema::validator_for(&schema).unwrap();
        let (mut fit, mut do_not) = (0, 0);
        for (name, source) in documents(dialect) {
            let Ok(document) = Document::parse(&source, &name, &DocumentLimits::default()) else {
                continue;
            };
            match run(&source, &name) {
                Ok(_) => {
                    assert!(schema.is_valid(document.value()), "{dialect}/{name}");
                    fit += 1;
                }
                Err(problems) if problems.list().iter().any(|problem| structural.contains(&problem.code)) => {
                    assert!(!schema.is_valid(document.value()), "{dialect}/{name}");
                    do_not += 1;
                }
                Err(_) => {}
            }
        }
        assert!(fit > 3 && do_not > 1, "{dialect}: {fit} documents fit, {do_not} do not");
    }
}

/// The schema also has the rules for which the engine has its own messages, for editors.
#[test]
fn the_runlater_schema_has_the_step_types() {
    let schema: Value = serde_json::from_str(runlater::SCHEMA).unwrap();
    let schema = jsonschema::validator_for(&schema).unwrap();
    let fits = |task: Value| schema.is_valid(&json!({ "name": "a", "tasks": { "a": task } }));
    let url = "https://example.com";
    for task in [
        json!({ "url": url, "method": "GET", "headers": {}, "body": [1], "retries": 0, "timeout": "1.5s" }),
        json!({ "sleep": 0.5, "needs": [], "if": null }),
        json!({ "sleep": "1d" }),
        json!({ "wait_for_webhook": {} }),
        json!({ "wait_for_webhook": { "timeout": 60 } }),
    ] {
        assert!(fits(task.clone()), "{task}");
    }
    for task in [
        json!({}),
        json!({ "url": url, "sleep": 1 }),
        json!({ "url": url, "wait_for_webhook": {} }),
        json!({ "sleep": 1, "wait_for_webhook": {} }),
        json!({ "sleep": 1, "method": "GET" }),
        json!({ "sleep": 1, "timeout": 1 }),
        json!({ "wait_for_webhook": {}, "body": 1 }),
        json!({ "sleep": "5 minutes" }),
        json!({ "sleep": -1 }),
        json!({ "sleep": true }),
        json!({ "url": url, "timeout": "soon" }),
        json!({ "wait_for_webhook": true }),
        json!({ "wait_for_webhook": { "timeout": "1 hour" } }),
    ] {
        assert!(!fits(task.clone()), "{task}");
    }
}

/// The documents in the manuals must be valid.
#[test]
fn the_documents_of_the_manuals_compile() {
    for (dialect, _) in DIALECTS {
        let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../docs/dialects/{dialect}.md"));
        let manual = fs::read_to_string(manual).unwrap();
        let mut shown = 0;
        for (kind, ending) in [("```json\n", "json"), ("```yaml\n", "yaml")] {
            for block in manual.split(kind).skip(1) {
                let source = block.split("```").next().unwrap();
                let (_, warnings) = expected(source.as_bytes(), &format!("{dialect}.{ending}"));
                assert_eq!(warnings, None, "{source}");
                shown += 1;
            }
        }
        assert!(shown > 0, "{dialect}");
    }
}
