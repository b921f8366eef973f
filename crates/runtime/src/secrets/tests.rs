//! Secrets of owners: where values come from, and that echoes of them are removed.

use super::*;
use fermata_expr::{
    Data,
    template::{Options, ValueTemplate},
};
use serde_json::json;
use std::fs;

fn environment(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

/// A folder that is removed at the end of the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        let path = std::env::temp_dir().join(format!("fermata-secrets-{}", uuid::Uuid::now_v7()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn secrets(&self) -> Secrets {
        Secrets::new(environment(&[]), Some(self.0.clone()))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn value(found: Result<Option<Secret>, Unusable>) -> Option<String> {
    found.unwrap().map(|secret| secret.expose().to_owned())
}

#[test]
fn variables_with_the_prefix_are_secrets() {
    let given = environment(&[
        ("FERMATA_SECRET_TOKEN", "abc"),
        ("FERMATA_SECRET_a__B", "x"),
        ("FERMATA_SECRET_", "no name"),
        ("FERMATA_SECRET_1A", "no name either"),
        ("FERMATA_SECRETS__FOLDER", "/x"),
        ("TOKEN", "other"),
    ]);
    let secrets = Secrets::new(given, None);
    assert_eq!(secrets.variables.keys().collect::<Vec<_>>(), ["TOKEN", "a__B"]);
    assert_eq!(value(secrets.find("", "TOKEN")).as_deref(), Some("abc"));
    assert_eq!(value(secrets.find("", "token")), None);
    assert!(!format!("{secrets:?}").contains("abc"));
}

#[test]
fn files_are_read_again_each_time() {
    let folder = Folder::new();
    let secrets = folder.secrets();
    assert_eq!(value(secrets.find("", "KEY")), None);
    for (text, expected) in [
        ("one\n", "one"),
        ("two\r\n", "two"),
        ("three\n\n", "three\n"),
        (" 4 ", " 4 "),
    ] {
        folder.write("KEY", text);
        assert_eq!(value(secrets.find("", "KEY")).as_deref(), Some(expected));
    }
    fs::remove_file(folder.0.join("KEY")).unwrap();
    assert_eq!(value(secrets.find("", "KEY")), None);
}

#[test]
fn unusable_files_are_named_and_not_shown() {
    let folder = Folder::new();
    folder.write("EMPTY", "\n");
    folder.write("BINARY", [b'Q', 0xFF, b'y']);
    folder.write("LONG", "Q".repeat(LONGEST + 1));
    folder.write("FULL", "x".repeat(LONGEST) + "\r\n");
    let secrets = folder.secrets();
    for (name, what) in [
        ("EMPTY", "is empty"),
        ("BINARY", "is not UTF-8 text"),
        ("LONG", "is longer than"),
    ] {
        let error = secrets.find("", name).unwrap_err();
        assert!(
            error.message.starts_with(&format!("the secret `{name}` {what}")),
            "{error:?}"
        );
        assert!(!error.retriable && !error.message.contains('Q'), "{error:?}");
    }
    assert_eq!(value(secrets.find("", "FULL")).map(|text| text.len()), Some(LONGEST));
}

#[test]
fn owners_have_their_own_secrets() {
    let folder = Folder::new();
    folder.write("KEY", "the operator's");
    folder.write("acme/KEY", "of acme");
    folder.write("%2E./KEY", "of two dots");
    folder.write("a%2Fb/KEY", "of a/b");
    let mut secrets = folder.secrets();
    secrets.variables.insert("VARIABLE".to_owned(), "v".to_owned().into());
    for (owner, expected) in [
        ("", Some("the operator's")),
        ("acme", Some("of acme")),
        ("..", Some("of two dots")),
        ("a/b", Some("of a/b")),
        ("other", None),
        (".", None),
        ("KEY", None),
    ] {
        assert_eq!(value(secrets.find(owner, "KEY")).as_deref(), expected, "{owner}");
    }
    assert_eq!(value(secrets.find("", "VARIABLE")).as_deref(), Some("v"));
    assert_eq!(value(secrets.find("acme", "VARIABLE")), None);
    assert_eq!(value(secrets.find("", "acme")), None, "a folder is not a secret");
}

fn resolved(parameters: Value, trigger: Value, pairs: &[(&str, &str)], allowed: bool) -> Result<Value, Failure> {
    let options = Options::default();
    let template = ValueTemplate::parse(&parameters, &options).unwrap();
    let scope = Data::object([("trigger", Data::Json(&trigger))]);
    let rendered = template.render(&scope, &options).unwrap();
    let names: Vec<String> = rendered.secret_names().into_iter().map(str::to_owned).collect();
    let found = Secrets::new(environment(pairs), None).all("", &names);
    insert("", &found, allowed, rendered).map(|(value, _)| value)
}

#[test]
fn only_references_are_resolved() {
    let parameters = json!({ "a": "Bearer {{ secrets.TOKEN }}", "b": ["{{ trigger.text }}"], "c": "{{ trigger.text }} {{secrets['TOKEN']}}" });
    let trigger = json!({ "text": "{{ secrets.TOKEN }}" });
    let value = resolved(parameters, trigger, &[("FERMATA_SECRET_TOKEN", "s3cret")], true);
    let expected = json!({ "a": "Bearer s3cret", "b": ["{{ secrets.TOKEN }}"], "c": "{{ secrets.TOKEN }} s3cret" });
    assert_eq!(value.unwrap(), expected);
}

#[test]
fn failures_name_the_secret() {
    let parameters = json!({ "a": "{{ secrets.TOKEN }}" });
    let unknown = resolved(parameters.clone(), json!({}), &[], true).unwrap_err();
    assert_eq!(
        (unknown.code.as_str(), unknown.retriable),
        (code::TEMPLATE_ERROR, false)
    );
    assert_eq!(
        unknown.message,
        "the secret `TOKEN` is unknown; set the environment variable FERMATA_SECRET_TOKEN, or add a file `TOKEN` to `secrets.folder`"
    );
    let known = [("FERMATA_SECRET_TOKEN", "s3cret")];
    let recorded = resolved(parameters, json!({}), &known, false).unwrap_err();
    assert!(recorded.message.contains("`TOKEN` cannot be used here") && !recorded.message.contains("s3cret"));
    let many = json!({ "a": vec!["{{ secrets.TOKEN }}"; 20] });
    let long = "x".repeat(LONGEST);
    let too_long = resolved(many, json!({}), &[("FERMATA_SECRET_TOKEN", &long)], true);
    assert!(
        too_long.unwrap_err().message.contains("longer than"),
        "the sum is limited"
    );
}
