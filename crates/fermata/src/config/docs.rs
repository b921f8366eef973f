//! Generates `docs/configuration.md` from the doc comments of the sections and from the defaults.
//!
//! `UPDATE_DOCS=1 cargo test --workspace config` writes it; the same test without the variable checks it.

use super::{Config, sections::*};
use serde_json::Value;
use std::{fmt::Write, path::Path};

/// The lines about a section, and its keys with the lines about each.
pub type Docs = (
    &'static [&'static str],
    &'static [(&'static str, &'static [&'static str])],
);

/// Every section, in the order of the page.
const SECTIONS: &[(&str, Docs)] = &[
    ("server", Server::DOCS),
    ("auth", Auth::DOCS),
    ("memory", Memory::DOCS),
    ("database", DatabaseConfig::DOCS),
    ("database.postgres", Postgres::DOCS),
    ("log", Log::DOCS),
    ("orchestration", Orchestration::DOCS),
    ("orchestration.retry", Retry::DOCS),
    ("templates", Templates::DOCS),
    ("conditions", Conditions::DOCS),
    ("context", Context::DOCS),
    ("limits", DocumentLimits::DOCS),
    ("publish", Publish::DOCS),
    ("catalog", Catalog::DOCS),
    ("http", Http::DOCS),
    ("callbacks", Callbacks::DOCS),
    ("rate_limits", RateLimits::DOCS),
    ("secrets", SecretsConfig::DOCS),
    ("masking", Masking::DOCS),
    ("error_handling", ErrorHandling::DOCS),
    ("retention", RetentionConfig::DOCS),
    ("telemetry", Telemetry::DOCS),
    ("scalability", Scalability::DOCS),
    ("jsondagapi", Jsondagapi::DOCS),
    ("subworkflows", Subworkflows::DOCS),
    ("triggers", Triggers::DOCS),
];

const HEAD: &str = "\
# Configuration

<!-- Made by `UPDATE_DOCS=1 cargo test -p fermata config` from crates/fermata/src/config/sections.rs. Do not edit. -->

Defaults, then a TOML file (`--config FILE` or `FERMATA_CONFIG`), then environment variables, then flags; each wins over
the ones before it. The variable of a key is `FERMATA_<SECTION>__<KEY>`, such as
`FERMATA_ORCHESTRATION__RETRY__JITTER=false`.

Durations are whole milliseconds or text such as `\"250ms\"`, `\"30s\"`, `\"5m\"` or `\"1h30m\"`. Unknown keys and values that
cannot work are refused, all at once, each with the place it came from. §-numbers are those of the DataWorkflows
specification. A key that \"takes effect with\" something that is not built yet accepts only its default until then.
";

const TAIL: &str = "
## `[tiers.NAME]` and `[tenants]`

The limits of tenants, in tiers with names of your own: `workflows`, `tasks_per_workflow`, `executions_per_month`, `http_steps_at_once`,
`concurrent_runs` and `cron` ([limits.md](limits.md#tiers-of-tenants)).

```toml
[tiers.free]
workflows = 3
executions_per_month = 10000

[tenants]
acme = \"free\"
```

## `[vars]`

Names and values of your own, which expressions see as `vars`. They are recorded when a run starts, so a change does not
reach runs in flight.

```toml
[vars]
mailer = \"https://mail.example.com\"
```
";

fn page() -> String {
    let defaults = serde_json::to_value(Config::default()).unwrap();
    let text = |lines: &[&str]| lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
    let mut page = HEAD.to_owned();
    for (section, (about, keys)) in SECTIONS {
        let _ = write!(
            page,
            "\n## `[{section}]`\n\n{}\n\n| key | default | meaning |\n| --- | --- | --- |\n",
            text(about)
        );
        let values = section.split('.').fold(&defaults, |value, key| &value[key]);
        for (key, about) in *keys {
            let default = match &values[key] {
                Value::Null => "not set".to_owned(),
                Value::Object(entries) if entries.is_empty() => "none".to_owned(),
                Value::Object(_) => format!("see `[{section}.{key}]`"),
                value if key.ends_with("_ms") => format!("`{}`", duration(value.as_u64().unwrap())),
                value => format!("`{value}`"),
            };
            let _ = writeln!(page, "| `{key}` | {default} | {} |", text(about));
        }
    }
    page + TAIL
}

/// As one would write it.
fn duration(millis: u64) -> String {
    match millis {
        0 => "0".to_owned(),
        ms if ms % 3_600_000 == 0 => format!("\"{}h\"", ms / 3_600_000),
        ms if ms % 60_000 == 0 => format!("\"{}m\"", ms / 60_000),
        ms if ms % 1000 == 0 => format!("\"{}s\"", ms / 1000),
        ms => ms.to_string(),
    }
}

#[test]
fn every_key_is_documented() {
    let defaults = serde_json::to_value(Config::default()).unwrap();
    let mut keys = Vec::new();
    super::load::keys(&defaults, "", &mut keys);
    let named = ["vars", "tiers", "tenants"];
    keys.retain(|key| !named.contains(&key.as_str()) && !SECTIONS.iter().any(|(section, _)| section == key));
    let mut documented: Vec<String> = SECTIONS
        .iter()
        .flat_map(|(section, (_, keys))| keys.iter().map(move |(key, _)| format!("{section}.{key}")))
        .filter(|key| !SECTIONS.iter().any(|(section, _)| section == key))
        .collect();
    keys.sort();
    documented.sort();
    assert_eq!(keys, documented);
}

#[test]
fn the_page_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let page = page();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page,
        "docs/configuration.md is out of date; `UPDATE_DOCS=1 cargo test --workspace config` writes it"
    );
}
