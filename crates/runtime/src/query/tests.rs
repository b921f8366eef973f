//! What queries mean, where a wrong one is wrong, and what is suggested.

use super::*;

fn parse(text: &str) -> Query {
    Query::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn terms_are_read_by_their_keys() {
    let id = Uuid::now_v7();
    let text = format!(
        "status:failed STATUS=x workflow:order-* workflow:\"a b\" tag:eu tag:us since:24h until:2026-11-15 tenant:acme
         order_id=123 order_id=124 customer.id=\"a \\\"b\\\"\" correlation:c:1 request:r=1 text:xy runner:{id} trigger:{id} {id} run_{}",
        id.simple()
    );
    let query = parse(&text);
    assert_eq!(query.statuses, [Status::Failed]);
    assert_eq!(query.workflows, ["order-*", "a b"]);
    assert_eq!(query.tags, ["eu", "us"]);
    assert_eq!(query.since, Some(When::Ago(Duration::from_secs(86_400))));
    assert_eq!(query.until, Some(When::At(1_794_700_800_000)));
    assert_eq!(query.tenant.as_deref(), Some("acme"));
    assert_eq!(query.correlation.as_deref(), Some("c:1"));
    assert_eq!(query.request.as_deref(), Some("r=1"));
    assert_eq!(query.text.as_deref(), Some("xy"));
    assert_eq!((query.runner, query.trigger), (Some(RunnerId(id)), Some(id)));
    assert_eq!(query.ids, [RunId(id), RunId(id)]);
    let field = |name: &str, values: &[&str]| (name.to_owned(), values.iter().map(|v| (*v).to_owned()).collect());
    let fields = [
        field("STATUS", &["x"]),
        field("order_id", &["123", "124"]),
        field("customer.id", &["a \"b\""]),
    ];
    assert_eq!(query.fields, fields);
    assert!(parse("").is_empty() && parse(" \n ").is_empty() && !query.is_empty());
    assert_eq!(
        parse("status:FAILED status:Running").statuses,
        [Status::Failed, Status::Running]
    );
}

#[test]
fn errors_say_where_they_are_and_what_was_meant() {
    for (text, expected) in [
        (
            "status:faild",
            "character 8: `faild` is not a status; did you mean `failed`?",
        ),
        (
            "tag:eu  stauts:failed",
            "character 9: `stauts:` is not a key; did you mean `status:`?",
        ),
        (
            "failed",
            "character 1: `failed` is not a term, and not the id of a run; did you mean `status:failed`?",
        ),
        ("since:soon", "character 7: `soon` is not a time; write how long ago"),
        ("since:24", "character 7: `24` is not a time"),
        ("größe: tag:", "character 1: `größe:` has no value"),
        (
            "größe:1 tag:",
            "character 1: `größe:` is not a key; the keys are status",
        ),
        (
            "tag:eu tag:",
            "character 8: `tag:` has no value; write a tag of the document",
        ),
        ("tag:\"eu", "character 5: the quotation mark is not closed"),
        ("since:1h since:2h", "character 16: `since:` is given twice"),
        ("runner:x", "character 8: `x` is not the id of a runner (a UUID)"),
        ("a[0]=1", "character 1: `a[0]` is not the name of a field"),
        (".a=1", "character 1: `.a` is not the name of a field"),
        ("=1", "character 1: `=1` is not a term"),
        ("status:failed order", "character 15: `order` is not a term"),
        ("tag:\"a\0\"", "character 5: a value cannot contain NUL"),
    ] {
        let error = Query::parse(text).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{text}: {error}");
    }
    let long = Query::parse(&"x".repeat(MAX_QUERY + 1)).unwrap_err();
    assert!(long.message.contains("at most 2000"), "{long}");
}

#[test]
fn no_text_makes_the_parser_fail_otherwise() {
    let pieces = [
        "status", ":", "=", "\"", "\\", " ", "é", "\0", "failed", "24h", "-", "*", ".",
    ];
    let mut rng: u64 = 7;
    for _ in 0..20_000 {
        let mut text = String::new();
        for _ in 0..(rng % 9) {
            rng = rng
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            text.push_str(pieces[(rng >> 33) as usize % pieces.len()]);
        }
        rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let length = text.chars().count();
        if let Err(error) = Query::parse(&text) {
            assert!(
                error.at.start <= error.at.end && error.at.end <= length,
                "{text:?}: {error:?}"
            );
        }
        let _ = suggest(&text);
    }
}

#[test]
fn words_are_completed() {
    let texts = |text: &str| -> Vec<String> {
        let found = suggest(text);
        found.into_iter().map(|suggestion| suggestion.text).collect()
    };
    assert_eq!(texts("status:failed t"), ["tag:", "tenant:", "trigger:", "text:"]);
    assert_eq!(texts("status:Su"), ["status:succeeded"]);
    assert_eq!(texts("").len(), KEYS.len());
    assert!(texts("order_id=1").is_empty());
    assert_eq!(texts("tag:eu since:2"), ["since:24h"]);
}

#[test]
fn mistakes_can_be_corrected() {
    for (text, expected) in [
        ("tag:ä status:faild since:1h", Some("tag:ä status:failed since:1h")),
        ("stauts:failed", Some("status:failed")),
        ("tag:eu Failed", Some("tag:eu status:Failed")),
        ("\"a b\" tag:eu", Some("text:\"a b\" tag:eu")),
        ("since:soon", None),
    ] {
        let error = Query::parse(text).unwrap_err();
        let corrected = error.corrected(text);
        assert_eq!(corrected.as_deref(), expected, "{text}");
        assert!(corrected.is_none_or(|text| Query::parse(&text).is_ok()), "{text}");
    }
    let odd = r#"a "b\" c"#;
    assert_eq!(parse(&format!("text:{}", quoted(odd))).text.as_deref(), Some(odd));
}

#[test]
fn times_are_seen_from_now() {
    let hour = When::Ago(Duration::from_secs(3600));
    assert_eq!(hour.millis(3_600_001), 1);
    assert_eq!(hour.millis(5), 0);
    assert_eq!(When::At(7).millis(5), 7);
}
