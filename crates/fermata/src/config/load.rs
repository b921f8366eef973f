//! Loads the configuration: defaults, then the file, then the environment, then the command line.
//!
//! Every value is checked by itself, so that all problems are reported at once, each with its origin.

use super::{Config, refused};
use fermata_expr::nearest;
use fermata_runtime::{SECRET_PREFIX, Secrets};
use serde_json::Value as Known;
use std::{fmt, path::PathBuf, sync::Arc};
use toml::{
    Table, Value,
    de::{DeTable, DeValue},
};

const PREFIX: &str = "FERMATA_";
/// The section whose keys users choose.
const FREE_SECTION: &str = "vars";
/// Names under these are those of workflows, tiers and tenants.
const NAMED: [&[&str]; 3] = [&["retention", "workflows"], &["tiers"], &["tenants"]];

/// Where values come from, besides the defaults.
#[derive(Debug, Default)]
pub struct Given {
    /// Defaults of one command, in place of the usual ones: key, value.
    pub presets: Vec<(&'static str, Value)>,
    /// A TOML file.
    pub file: Option<PathBuf>,
    /// The environment.
    pub environment: Vec<(String, String)>,
    /// Flags of the command line: flag, key, value.
    pub flags: Vec<(&'static str, &'static str, Value)>,
}

impl Given {
    /// The environment of this process, and a file.
    pub fn here(file: Option<PathBuf>) -> Given {
        let readable = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Given {
            presets: Vec::new(),
            file,
            environment: std::env::vars_os().filter_map(readable).collect(),
            flags: Vec::new(),
        }
    }

    /// Sets another default for one command.
    pub fn preset(mut self, key: &'static str, value: impl Into<Value>) -> Given {
        self.presets.push((key, value.into()));
        self
    }

    /// Sets a key from a flag, if the flag was given.
    pub fn flag(mut self, flag: &'static str, key: &'static str, value: Option<String>) -> Given {
        self.flags.extend(value.map(|value| (flag, key, Value::String(value))));
        self
    }
}

/// All problems of a configuration, one line each.
#[derive(Debug, PartialEq, Eq)]
pub struct Problems(Vec<String>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

impl std::error::Error for Problems {}

/// Loads the configuration, or returns all its problems.
pub fn load(given: Given) -> Result<Config, Problems> {
    let mut loader = Loader {
        known: serde_json::to_value(Config::default()).unwrap_or_default(),
        table: Table::new(),
        problems: Vec::new(),
    };
    for (key, value) in given.presets {
        merge(&mut loader.table, nest(&key.split('.').collect::<Vec<_>>(), value));
    }
    if let Some(path) = &given.file {
        loader.file(path);
    }
    for (name, text) in &given.environment {
        loader.variable(name, text);
    }
    for (flag, key, value) in given.flags {
        let path: Vec<&str> = key.split('.').collect();
        loader.set(&path, value, &Origin::Flag(flag));
    }
    if !loader.problems.is_empty() {
        return Err(Problems(loader.problems));
    }
    let whole: Result<Config, _> = loader.table.try_into();
    let mut config = whole.map_err(|error| Problems(vec![error.message().to_owned()]))?;
    let unknown = config
        .tenants
        .iter()
        .filter(|(_, tier)| !config.tiers.contains_key(*tier));
    let unknown = unknown.map(|(tenant, tier)| {
        let near = nearest(tier, config.tiers.keys().map(String::as_str));
        let near = near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
        format!("`tenants.{tenant}`: there is no tier `{tier}`{near}")
    });
    let unknown: Vec<String> = unknown.collect();
    if !unknown.is_empty() {
        return Err(Problems(unknown));
    }
    let folder = config.secrets.folder.as_ref().map(|folder| folder.path().to_owned());
    config.known_secrets = Arc::new(Secrets::new(given.environment, folder));
    Ok(config)
}

/// Where a value comes from, for messages.
enum Origin<'a> {
    File { name: &'a str, line: usize },
    Variable(&'a str),
    Flag(&'a str),
}

impl fmt::Display for Origin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File { name, line } => write!(f, "{name}:{line}"),
            Origin::Variable(name) => write!(f, "environment variable {name}"),
            Origin::Flag(flag) => f.write_str(flag),
        }
    }
}

impl Origin<'_> {
    /// A key as it is written in this origin.
    fn spell(&self, path: &str) -> String {
        match self {
            Origin::Variable(_) => format!("{PREFIX}{}", path.replace('.', "__").to_uppercase()),
            Origin::File { .. } | Origin::Flag(_) => path.to_owned(),
        }
    }
}

struct Loader {
    /// All keys with their defaults.
    known: Known,
    table: Table,
    problems: Vec<String>,
}

impl Loader {
    fn file(&mut self, path: &std::path::Path) {
        let name = path.display().to_string();
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) => {
                self.problems
                    .push(format!("the configuration file {name} cannot be read: {error}"));
                return;
            }
        };
        let line_of = |at: usize| 1 + text[..at.min(text.len())].matches('\n').count();
        let syntax = |error: toml::de::Error| {
            let line = line_of(error.span().map_or(0, |span| span.start));
            format!("{name}:{line}: {}", error.message().replace('\n', ", "))
        };
        let (values, places) = match (text.parse::<Table>(), DeTable::parse(&text)) {
            (Ok(values), Ok(places)) => (values, places.into_inner()),
            (Err(error), _) | (_, Err(error)) => return self.problems.push(syntax(error)),
        };
        let place = |path: &[&str]| Origin::File {
            name: &name,
            line: line_of(offset(&places, path)),
        };
        self.section(&values, &mut Vec::new(), &place);
    }

    fn section<'a, 'o>(&mut self, table: &'a Table, path: &mut Vec<&'a str>, place: &dyn Fn(&[&str]) -> Origin<'o>) {
        for (key, value) in table {
            path.push(key);
            match value {
                Value::Table(inner) if self.is_section(path) => self.section(inner, path, place),
                value => self.set(path, value.clone(), &place(path)),
            }
            path.pop();
        }
    }

    fn variable(&mut self, name: &str, text: &str) {
        if name.starts_with(SECRET_PREFIX) {
            return;
        }
        let Some(key) = name.strip_prefix(PREFIX).map(str::to_lowercase) else {
            return;
        };
        if !key.contains("__") {
            return self.without_section(name, &key);
        }
        let path: Vec<&str> = key.split("__").collect();
        let origin = Origin::Variable(name);
        let literal = toml::from_str::<Table>(&format!("value = {text}"))
            .ok()
            .filter(|table| table.len() == 1)
            .and_then(|mut table| table.remove("value"));
        let as_text = Value::String(text.to_owned());
        let value = match literal {
            Some(literal) if path[0] == FREE_SECTION || check(&path, as_text.clone()).is_err() => literal,
            _ => as_text,
        };
        self.set(&path, value, &origin);
    }

    /// A name without `__` is not a key: orchestrators set FERMATA_PORT and the like for a service of that name. It is a mistake
    /// if it is the name of a key with one underscore too few.
    fn without_section(&mut self, name: &str, key: &str) {
        let (mut all, origin) = (Vec::new(), Origin::Variable(name));
        keys(&self.known, "", &mut all);
        let is_meant = |known: &&String| known.contains('.') && known.replace('.', "_") == key;
        if let Some(meant) = all.iter().find(is_meant) {
            let meant = origin.spell(meant);
            let problem = format!("{origin}: two underscores separate sections and keys; write `{meant}`");
            self.problems.push(problem);
        }
    }

    fn set(&mut self, path: &[&str], value: Value, origin: &Origin) {
        let key = path.join(".");
        let problem = if self.is_unknown(path) {
            Some(format!(
                "unknown key `{}`{}",
                origin.spell(&key),
                self.suggest(path, origin)
            ))
        } else if self.is_section(path) || path == [FREE_SECTION] && !value.is_table() {
            Some(format!("`{key}` is a section with keys of its own, not a value"))
        } else {
            let wrong = check(path, value.clone()).err();
            wrong.map(|wrong| match origin {
                Origin::Flag(_) => wrong,
                _ => format!("`{key}`: {wrong}"),
            })
        };
        match problem {
            Some(problem) => self.problems.push(format!("{origin}: {problem}")),
            None => merge(&mut self.table, nest(path, value)),
        }
    }

    fn at(&self, path: &[&str]) -> Option<&Known> {
        path.iter().try_fold(&self.known, |known, key| known.get(key))
    }

    fn is_unknown(&self, path: &[&str]) -> bool {
        path.first() != Some(&FREE_SECTION)
            && !NAMED.iter().any(|named| path.starts_with(named))
            && self.at(path).is_none()
    }

    fn is_section(&self, path: &[&str]) -> bool {
        path != [FREE_SECTION] && !NAMED.contains(&path) && self.at(path).is_some_and(Known::is_object)
    }

    /// The key that was probably meant: one of that name in another section, or a similar one in the same section.
    fn suggest(&self, path: &[&str], origin: &Origin) -> String {
        let mut all = Vec::new();
        keys(&self.known, "", &mut all);
        let last = path.last().copied().unwrap_or_default();
        let elsewhere = all.into_iter().find(|key| key.rsplit('.').next() == Some(last));
        let meant = elsewhere.or_else(|| self.similar(path));
        meant.map_or(String::new(), |key| format!("; did you mean `{}`?", origin.spell(&key)))
    }

    /// The path with its first unknown name replaced by the nearest known one.
    fn similar(&self, path: &[&str]) -> Option<String> {
        let wrong = (0..path.len()).find(|at| self.at(&path[..=*at]).is_none())?;
        let names = self.at(&path[..wrong])?.as_object()?.keys();
        let mut meant = path.to_vec();
        meant[wrong] = nearest(path[wrong], names.map(String::as_str))?;
        self.at(&meant).is_some().then(|| meant.join("."))
    }
}

/// Every section and key below `known`, dotted.
pub(super) fn keys(known: &Known, prefix: &str, all: &mut Vec<String>) {
    for (key, value) in known.as_object().into_iter().flatten() {
        let path = match prefix {
            "" => key.clone(),
            prefix => format!("{prefix}.{key}"),
        };
        keys(value, &path, all);
        all.push(path);
    }
}

/// Checks the value of one key.
fn check(path: &[&str], value: Value) -> Result<(), String> {
    let alone: Result<Config, _> = nest(path, value).try_into();
    let given = alone.map_err(|error| plain(error.message()))?;
    let Some(feature) = refused::waits_for(&path.join(".")) else {
        return Ok(());
    };
    let value_of = |config: &Config| {
        let all = serde_json::to_value(config).unwrap_or_default();
        path.iter().fold(all, |mut value, key| value[*key].take())
    };
    let default = value_of(&Config::default());
    match value_of(&given) == default {
        true => Ok(()),
        false => Err(format!(
            "takes effect with {feature}, which this version does not have: remove the key, or leave it at `{default}`"
        )),
    }
}

/// Replaces the names of Rust types by words.
fn plain(message: &str) -> String {
    let message = message.split('\n').next().unwrap_or_default();
    let mut text = message.to_owned();
    for (name, words) in [
        ("u32", "a whole number"),
        ("u64", "a whole number"),
        ("usize", "a whole number"),
        ("f64", "a number"),
    ] {
        text = text.replace(&format!("expected {name}"), &format!("expected {words}"));
    }
    text
}

fn nest(path: &[&str], value: Value) -> Table {
    let mut table = Table::new();
    match path {
        [] => {}
        [key] => {
            table.insert((*key).to_owned(), value);
        }
        [key, rest @ ..] => {
            table.insert((*key).to_owned(), Value::Table(nest(rest, value)));
        }
    }
    table
}

fn merge(into: &mut Table, from: Table) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Value::Table(old)), Value::Table(new)) => merge(old, new),
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}

/// The place of the last key of `path` in the file.
fn offset(places: &DeTable, path: &[&str]) -> usize {
    let Some((key, rest)) = path.split_first() else {
        return 0;
    };
    let Some((name, value)) = places.iter().find(|(name, _)| name.get_ref() == key) else {
        return 0;
    };
    match (rest, value.get_ref()) {
        ([_, ..], DeValue::Table(inner)) => offset(inner, rest),
        _ => name.span().start,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Database;
    use std::io::Write;

    fn given(file: &str, environment: &[(&str, &str)], flags: &[(&'static str, &'static str, &str)]) -> Given {
        let mut config = tempfile::NamedTempFile::new().unwrap();
        config.write_all(file.as_bytes()).unwrap();
        let (_, path) = config.keep().unwrap();
        Given {
            presets: vec![
                ("log.level", Value::String("warn".to_owned())),
                ("server.listen", "from-preset:1".into()),
            ],
            file: Some(path),
            environment: environment
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            flags: flags
                .iter()
                .map(|(flag, key, value)| (*flag, *key, Value::String((*value).to_owned())))
                .collect(),
        }
    }

    fn try_load(given: Given) -> Result<Config, Vec<String>> {
        let path = given.file.clone().unwrap();
        let loaded = load(given);
        std::fs::remove_file(&path).unwrap();
        let name = path.display().to_string();
        loaded.map_err(|problems| problems.0.iter().map(|line| line.replace(&name, "f.toml")).collect())
    }

    #[test]
    fn later_sources_win() {
        let file = r#"
            server.listen = "from-file:1"
            [database]
            url = "sqlite:from-file.db"
            [orchestration]
            max_parallel_actions = 3
            default_action_timeout_ms = "5m"
            [vars]
            region = "eu"
            deep = { a = 1 }
        "#;
        let environment = [
            ("FERMATA_SERVER__LISTEN", "from-env:1"),
            ("FERMATA_DATABASE__URL", "sqlite:from-env.db"),
            ("FERMATA_ORCHESTRATION__RETRY__JITTER", "false"),
            ("FERMATA_ORCHESTRATION__PARK_AFTER_MS", "250"),
            ("FERMATA_ORCHESTRATION__SHUTDOWN_GRACE_MS", "2s"),
            ("FERMATA_TEMPLATES__NULL_VALUE_REPLACEMENT", "0"),
            ("FERMATA_VARS__LIMIT", "10"),
            ("FERMATA_VARS__NAME", "ten"),
            ("FERMATA_PORT", "tcp://10.0.0.1:7070"),
            ("HOME", "/"),
        ];
        let config = try_load(given(
            file,
            &environment,
            &[("--listen", "server.listen", "from-flag:1")],
        ))
        .unwrap();
        assert_eq!(config.server.listen.as_deref(), Some("from-flag:1"));
        assert_eq!(config.log.level, "warn");
        assert_eq!(config.database.url, Database::Sqlite("from-env.db".into()));
        let settings = config.settings();
        assert_eq!(settings.max_parallel_actions, 3);
        assert_eq!(settings.dialects.policies.timeout_ms, 300_000);
        assert_eq!(settings.park_after.as_millis(), 250);
        assert_eq!(settings.shutdown_grace.as_millis(), 2000);
        assert!(!settings.dialects.policies.retry.jitter);
        assert_eq!(settings.dialects.policies.retry.max_attempts, 4);
        assert_eq!(settings.dialects.templates.null_text, "0");
        assert_eq!(
            serde_json::to_value(&settings.vars).unwrap(),
            serde_json::json!({"region": "eu", "deep": {"a": 1}, "limit": 10, "name": "ten"})
        );
    }

    #[test]
    fn all_problems_are_told_with_their_places() {
        let file = "listen = 1\n[orchestration]\nmax_paralel_actions = 3\nmax_active_runs = \"many\"\nretry = 3\n\
                    default_workflow_timeout_ms = \"1y\"\n[log]\nformat = \"xml\"\n[conditions]\nmax_statements = -1\n\
                    [orchestration.unknown]\nx = 1\n";
        let environment = [
            ("FERMATA_SERVER__LISTN", "x"),
            ("FERMATA_LIMITS__MAX_NODES_PER_WORKFLOW", "0"),
            ("FERMATA_VARS", "3"),
            ("FERMATA_DATABASE_URL", "sqlite:x.db"),
        ];
        let problems = try_load(given(
            file,
            &environment,
            &[("--database", "database.url", "postgres://a:secret@c:d/e")],
        ));
        let expected = [
            "f.toml:1: unknown key `listen`; did you mean `server.listen`?",
            "f.toml:4: `orchestration.max_active_runs`: invalid type: string \"many\", expected a whole number",
            "f.toml:3: unknown key `orchestration.max_paralel_actions`; did you mean \
             `orchestration.max_parallel_actions`?",
            "f.toml:5: `orchestration.retry` is a section with keys of its own, not a value",
            "f.toml:6: `orchestration.default_workflow_timeout_ms`: `y` is not a unit; write it like 250ms, 30s, \
             5m, 2h, 1d or 1h30m",
            "f.toml:11: unknown key `orchestration.unknown`",
            "f.toml:8: `log.format`: unknown variant `xml`, expected `text` or `json`",
            "f.toml:10: `conditions.max_statements`: invalid value: integer `-1`, expected a whole number",
            "environment variable FERMATA_SERVER__LISTN: unknown key `FERMATA_SERVER__LISTN`; did you mean \
             `FERMATA_SERVER__LISTEN`?",
            "environment variable FERMATA_LIMITS__MAX_NODES_PER_WORKFLOW: `limits.max_nodes_per_workflow`: it must be \
             at least 1",
            "environment variable FERMATA_DATABASE_URL: two underscores separate sections and keys; write \
             `FERMATA_DATABASE__URL`",
            "--database: the PostgreSQL database cannot be opened: invalid connection string: invalid value for option `port`",
        ];
        let mut problems = problems.unwrap_err();
        let mut expected = expected.map(str::to_owned).to_vec();
        problems.sort();
        expected.sort();
        assert_eq!(problems, expected);
    }

    #[test]
    fn what_is_out_of_scope_is_refused_with_the_reason() {
        let file = "[scalability]\nenable_distributed_locking = true\nredis_connection_string = \"redis://:secret@r\"\n\
                    [triggers]\nscheduler_provider = \"Hangfire\"\n";
        let problems = try_load(given(file, &[], &[])).unwrap_err();
        let expected = [
            "f.toml:2: `scalability.enable_distributed_locking`: locks in Redis are out of scope",
            "f.toml:3: `scalability.redis_connection_string`: Redis is out of scope",
            "f.toml:5: `triggers.scheduler_provider`: the scheduler `Hangfire` is out of scope",
        ];
        assert_eq!(problems.len(), expected.len(), "{problems:?}");
        for (problem, expected) in problems.iter().zip(expected) {
            assert!(
                problem.starts_with(expected) && !problem.contains("secret"),
                "{problem}"
            );
        }
        let harmless =
            "[scalability]\nenable_distributed_locking = false\n[triggers]\nscheduler_provider = \"Quartz\"\n";
        assert!(try_load(given(harmless, &[], &[])).is_ok());
    }

    #[test]
    fn what_is_not_built_accepts_only_its_default() {
        let file = "[catalog]\nauto_register_actions_on_startup = false\nvalidate_action_schemas_on_startup = false\n";
        let problems = try_load(given(file, &[], &[])).unwrap_err();
        assert_eq!(problems.len(), 2, "{problems:#?}");
        assert!(
            problems
                .iter()
                .all(|line| line.contains("which this version does not have"))
        );
        let expected = "f.toml:2: `catalog.auto_register_actions_on_startup`: takes effect with an editable catalog, which \
                        this version does not have: remove the key, or leave it at `true`";
        assert!(problems.iter().any(|line| line == expected), "{problems:#?}");
        let environment = [("FERMATA_CATALOG__VALIDATE_ACTION_SCHEMAS_ON_STARTUP", "false")];
        assert_eq!(try_load(given("", &environment, &[])).unwrap_err().len(), 1);
        let defaults = "[subworkflows]\nmax_nesting_depth = 6\ndefault_child_timeout_ms = \"2h\"\n\
                        [triggers]\nenable_webhooks = false\nwebhook_base_path = \"/hooks\"\nmax_chain_depth = 3\n";
        assert!(try_load(given(defaults, &[], &[])).is_ok());
    }

    #[test]
    fn broken_toml_has_a_line() {
        let problems = try_load(given("[server]\nlisten = \n", &[], &[])).unwrap_err();
        assert!(problems[0].starts_with("f.toml:2: "), "{problems:?}");
        let missing = Given {
            file: Some("/nowhere/f.toml".into()),
            ..Given::default()
        };
        let problems = load(missing).unwrap_err().to_string();
        assert!(problems.contains("/nowhere/f.toml cannot be read"), "{problems}");
    }
}
