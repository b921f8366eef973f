//! Golden pairs: `testdata/dataworkflows/NAME.json|jsonc|yaml` compiles to `NAME.plan.json`, or is
//! answered with `NAME.diagnostics.txt`, or both if there are warnings. Names that end in `.save`
//! are compiled to be saved, the others to be published.
//!
//! To add a test, add a document and run with `UPDATE_GOLDEN=1`; then read what was written.

use fermata_dialects::{
    Catalog, CatalogEntry, Compiled, Diagnostics, Document, DocumentLimits, Settings, Stage, compile, dataworkflows,
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, fs, path::Path};

/// A few actions, one of each sort.
struct Actions;

impl Catalog for Actions {
    fn find(&self, action: &str) -> Option<CatalogEntry> {
        let plain = CatalogEntry::default();
        match action {
            "core.echo" | "core.delay" | "core.template.render" => Some(plain),
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

/// What the files next to the document should hold.
fn answers(source: &[u8], name: &str) -> (Option<String>, Option<String>) {
    match run(source, name) {
        Ok((document, compiled)) => {
            let plan = serde_json::to_string_pretty(&compiled.plan).unwrap() + "\n";
            let warnings = document.report(compiled.warnings);
            let text = (!warnings.list().is_empty()).then(|| warnings.render(false));
            (Some(plan), text)
        }
        Err(problems) => (None, Some(problems.render(false))),
    }
}

fn documents() -> BTreeMap<String, Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/dataworkflows");
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if !name.ends_with(".plan.json") && !name.ends_with(".txt") {
            found.insert(name, fs::read(path).unwrap());
        }
    }
    found
}

#[test]
fn documents_have_the_expected_answers() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/dataworkflows");
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    let mut wrong = Vec::new();
    for (name, source) in documents() {
        let (plan, text) = answers(&source, &name);
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

#[test]
fn every_code_has_a_document() {
    let mut seen = BTreeMap::new();
    for (name, source) in documents() {
        let list = match run(&source, &name) {
            Ok((document, compiled)) => document.report(compiled.warnings).into_list(),
            Err(problems) => problems.into_list(),
        };
        for diagnostic in list {
            seen.insert(diagnostic.code, name.clone());
        }
    }
    let codes = [
        "CONDITION_ASSIGNS",
        "CONDITION_SYNTAX",
        "CYCLE",
        "DEPRECATED_ACTION",
        "DIALECT_NOT_SUPPORTED",
        "DISABLED_ACTION",
        "DUPLICATE_KEY",
        "DUPLICATE_NODE_ID",
        "EMPTY_DOCUMENT",
        "INVALID_KEY",
        "INVALID_PARAMETERS",
        "INVALID_TRIGGER_SCHEMA",
        "INVALID_VALUE",
        "MISSING_FIELD",
        "NODE_NOT_UPSTREAM",
        "NOT_UTF8",
        "NUMBER_OUT_OF_RANGE",
        "SUBWORKFLOW_NOT_SUPPORTED",
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
    ];
    for code in codes {
        assert!(seen.remove(code).is_some(), "no document shows {code}");
    }
    assert!(seen.is_empty(), "not in the list: {seen:?}");
}

/// The schema file, used by an editor, must judge as the engine does.
#[test]
fn the_schema_agrees() {
    let schema: Value = serde_json::from_str(dataworkflows::SCHEMA).unwrap();
    let schema = jsonschema::validator_for(&schema).unwrap();
    let structural = ["UNKNOWN_FIELD", "WRONG_TYPE", "INVALID_VALUE"];
    for (name, source) in documents() {
        let Ok(document) = Document::parse(&source, &name, &DocumentLimits::default()) else {
            continue;
        };
        match run(&source, &name) {
            Ok(_) => assert!(schema.is_valid(document.value()), "{name}"),
            Err(problems) if problems.list().iter().any(|problem| structural.contains(&problem.code)) => {
                assert!(!schema.is_valid(document.value()), "{name}");
            }
            Err(_) => {}
        }
    }
}
