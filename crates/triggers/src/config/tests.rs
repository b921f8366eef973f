//! Configurations that are accepted, and what is said about those that are not.

use super::*;
use serde_json::json;

#[test]
fn configurations_are_accepted() {
    for (kind, config) in [
        (TriggerType::Manual, json!({})),
        (TriggerType::Webhook, json!({})),
        (TriggerType::Webhook, json!({"respond": "accepted"})),
        (TriggerType::Webhook, json!({"respond": "result", "timeout": "10s"})),
        (
            TriggerType::Webhook,
            json!({"signature": {"scheme": "github", "secret": "GITHUB_WEBHOOK"}}),
        ),
        (
            TriggerType::Webhook,
            json!({"signature": {"scheme": "stripe", "secret": ["NEW", "OLD"], "tolerance": "1m"}}),
        ),
        (
            TriggerType::Webhook,
            json!({"signature": {"scheme": "hmac", "secret": "S", "header": "X-Sig", "prefix": "v1=",
            "encoding": "base64", "timestampHeader": "X-Time", "template": "{timestamp}:{body}"}}),
        ),
        (TriggerType::Webhook, json!({"dedupe": "trigger.order.id"})),
        (TriggerType::Webhook, json!({"dedupe": "request.headers.x-request-id"})),
        (
            TriggerType::Schedule,
            json!({"cron": "0 9 * * MON-FRI", "timeZone": "Europe/Berlin"}),
        ),
        (
            TriggerType::Schedule,
            json!({"every": "15m", "overlap": "skip", "jitter": "1m"}),
        ),
        (TriggerType::Schedule, json!({"at": "2026-12-01T09:00:00Z"})),
        (
            TriggerType::Schedule,
            json!({"every": "1s", "catchUp": {"mode": "all", "window": "1d"}}),
        ),
        (TriggerType::Event, json!({"type": "order.created"})),
        (
            TriggerType::Event,
            json!({"type": "order.*", "source": "/shop/*", "match": {"country": "DE"}}),
        ),
    ] {
        let parsed = TriggerConfig::parse(kind, &config);
        assert_eq!(parsed.map(|parsed| parsed.kind()), Ok(kind), "{config}");
    }
}

#[test]
fn every_problem_is_reported_with_its_place() {
    for (kind, config, expected) in [
        (
            TriggerType::Manual,
            json!({"x": 1}),
            vec!["/x is not a known key; there are none here"],
        ),
        (
            TriggerType::Manual,
            json!([]),
            vec!["the configuration must be an object"],
        ),
        (
            TriggerType::Webhook,
            json!({"respnd": "result", "signature": {"scheme": "githup", "secret": "S"}}),
            vec![
                "/signature/scheme must be one of standardWebhooks, github, stripe, slack, gitlab, shopify, hmac; did you mean `github`?",
                "/respnd is not a known key; did you mean `respond`?",
            ],
        ),
        (
            TriggerType::Webhook,
            json!({"signature": {"scheme": "github"}, "timeout": "5s"}),
            vec![
                "/signature/secret must be the name of a secret, or a list of names",
                "/timeout needs `respond: result`",
            ],
        ),
        (
            TriggerType::Webhook,
            json!({"signature": {"scheme": "github", "secret": "sec ret", "header": "X"}}),
            vec![
                "/signature/secret must hold names of secrets (letters, digits and `_`), not their values",
                "/signature/header belongs to the scheme `hmac`",
            ],
        ),
        (
            TriggerType::Webhook,
            json!({"signature": {"scheme": "hmac", "secret": "S", "timestampHeader": "X-T", "template": "{body}"}}),
            vec![
                "/signature/header must name the header with the signature",
                "/signature/template must contain {body} and {timestamp} once each",
            ],
        ),
        (
            TriggerType::Webhook,
            json!({"dedupe": "body.id"}),
            vec![
                "/dedupe must begin with `trigger.` or `request.`, such as `trigger.id` or `request.headers.x-request-id`",
            ],
        ),
        (
            TriggerType::Schedule,
            json!({}),
            vec!["the configuration needs exactly one of `cron`, `every` and `at`"],
        ),
        (
            TriggerType::Schedule,
            json!({"cron": "0 0 30 2 *"}),
            vec!["/cron never fires: no date fits `0 0 30 2 *`"],
        ),
        (
            TriggerType::Schedule,
            json!({"every": "500ms", "timeZone": "Europe/Berln", "overlap": "never"}),
            vec![
                "/timeZone is not a time zone: `Europe/Berln`; did you mean `Europe/Berlin`?",
                "/every must be at least 1 s",
                "/overlap must be one of allow, skip, queueOne, cancelRunning",
            ],
        ),
        (
            TriggerType::Schedule,
            json!({"every": "1h", "startAt": "2026-02-01T00:00:00Z", "endAt": "2026-01-01T00:00:00Z"}),
            vec!["/endAt must be later than startAt"],
        ),
        (
            TriggerType::Schedule,
            json!({"at": "tomorrow", "catchUp": {"mode": "some", "windw": "1h"}}),
            vec![
                "/at must be an instant, such as 2026-03-01T09:00:00Z, or without `Z` a time of the time zone",
                "/catchUp/mode must be one of none, latest, all",
                "/catchUp/windw is not a known key; did you mean `window`?",
            ],
        ),
        (
            TriggerType::Event,
            json!({}),
            vec!["/type must name the type of event, such as `order.created` or `order.*`"],
        ),
        (
            TriggerType::Event,
            json!({"type": "a", "match": {"a b": 1}}),
            vec!["/match/a b is not a path, such as `customer.country`"],
        ),
    ] {
        let problems = TriggerConfig::parse(kind, &config).expect_err("accepted");
        let shown: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(shown, expected, "{config}");
    }
}

#[test]
fn types_are_known_by_name() {
    for kind in TriggerType::ALL {
        assert_eq!(kind.name().parse(), Ok(kind));
        assert_eq!(kind.name().to_lowercase().parse(), Ok(kind));
    }
    assert!("Timer".parse::<TriggerType>().is_err());
}
