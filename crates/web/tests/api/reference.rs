//! Checks that docs/api.md has every route, every error code and every status of a response.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn documented() -> String {
    fs::read_to_string(root().join("../../docs/api.md")).unwrap()
}

fn sources(folder: &Path, all: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        // It makes the OpenAPI document, in tests only.
        if path.file_stem().is_some_and(|name| name == "openapi") {
            continue;
        }
        match path.is_dir() {
            true => sources(&path, all),
            false => {
                let text = fs::read_to_string(&path).unwrap();
                let code = text.split("#[cfg(test)]").next().unwrap_or_default();
                all.push(code.to_owned());
            }
        }
    }
}

/// `(method, path)` of each route in the router's source.
pub fn routes() -> Vec<(String, String)> {
    let source = fs::read_to_string(root().join("src/api.rs")).unwrap();
    let mut routes = Vec::new();
    for call in source.split(".route(").skip(1) {
        let path = call.split('"').nth(1).unwrap();
        let handlers = call.split(".fallback(").next().unwrap();
        for method in ["get", "post", "put", "delete", "patch"] {
            if handlers.contains(&format!("{method}(")) {
                routes.push((method.to_uppercase(), path.to_owned()));
            }
        }
    }
    routes
}

#[test]
fn every_route_is_documented() {
    let text = documented();
    let routes = routes();
    assert!(routes.len() >= 20, "{routes:?}");
    let missing: Vec<_> = routes
        .iter()
        .filter(|(method, path)| {
            // These may be names of workflows; their GET and DELETE are those of any workflow.
            let is_name = path.ends_with("/validate") || path.ends_with("/dry-run");
            let twin = is_name && method != "POST";
            !twin && !text.contains(&format!("`{method} {path}`"))
        })
        .collect();
    assert!(missing.is_empty(), "docs/api.md does not mention {missing:?}");
}

#[test]
fn every_error_code_is_documented() {
    let mut all = Vec::new();
    sources(&root().join("src"), &mut all);
    let mut codes = BTreeSet::new();
    for text in all.iter().flat_map(|source| source.split('"').skip(1).step_by(2)) {
        let is_code = text.len() >= 5
            && text
                .bytes()
                .all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
            && text.bytes().any(|byte| byte.is_ascii_uppercase());
        let is_algorithm = text.len() == 5 && text[2..].bytes().all(|byte| byte.is_ascii_digit());
        if is_code && !is_algorithm {
            codes.insert(text);
        }
    }
    assert!(codes.len() >= 25 && codes.contains("WFENG005"), "{codes:?}");
    let text = documented();
    let missing: Vec<_> = codes
        .iter()
        .filter(|code| !text.contains(&format!("`{code}`")))
        .collect();
    assert!(missing.is_empty(), "docs/api.md does not explain {missing:?}");
}
