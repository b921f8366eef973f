//! Tests of JSONLogic: what is accepted, what is read, and the values.

use super::*;
use proptest::prelude::*;
use serde_json::json;

fn rule(rule: &Value) -> Rule {
    Rule::parse(rule, Operators::All).unwrap_or_else(|errors| panic!("{rule}: {errors:?}"))
}

/// The value, in this process if that is allowed.
fn value(source: &Value, data: &Value) -> Result<Value, String> {
    let rule = rule(source);
    let (text, _) = evaluate_text(rule.source(), &data.to_string()).map_err(|error| error.message)?;
    let value: Value = serde_json::from_str(&text).unwrap();
    if rule.is_native() {
        assert_eq!(rule.evaluate(&Data::Json(data)), Ok(value.clone()), "{source}");
    }
    Ok(value)
}

fn problems(rule: &Value, operators: Operators) -> Vec<(String, String, String)> {
    let Err(errors) = Rule::parse(rule, operators) else {
        return Vec::new();
    };
    let parts = |error: RuleError| (error.pointer, error.message, error.suggestion.unwrap_or_default());
    errors.into_iter().map(parts).collect()
}

#[test]
fn subset_is_evaluated_natively() {
    let data = json!({ "score": 0.82, "type": "new", "list": [1, { "a": null }], "n": 0, "user": { "age": "30" } });
    for (source, expected) in [
        (json!({ ">": [{ "var": "score" }, 0.8] }), json!(true)),
        (json!({ "<": [0, { "var": "score" }, 1] }), json!(true)),
        (json!({ "==": [{ "var": "type" }, "new"] }), json!(true)),
        (json!({ "==": [1, "1"] }), json!(true)),
        (json!({ "!=": [{ "var": "missing" }, null] }), json!(false)),
        (json!({ "and": [{ "var": "n" }, { "var": "type" }] }), json!(0)),
        (json!({ "or": [{ "var": "n" }, { "var": "type" }] }), json!("new")),
        (json!({ "!": [{ "var": "list" }] }), json!(false)),
        (json!({ "!": { "var": "missing" } }), json!(true)),
        (json!({ "var": "list.1.a" }), json!(null)),
        (json!({ "var": "list.0" }), json!(1)),
        (json!({ "var": ["nope", 7] }), json!(7)),
        (json!({ ">=": [{ "var": "user.age" }, 18] }), json!(true)),
        (json!({ "var": { "or": ["type"] } }), json!("new")),
        (json!(true), json!(true)),
    ] {
        assert!(rule(&source).is_native(), "{source}");
        assert_eq!(value(&source, &data), Ok(expected), "{source}");
    }
}

#[test]
fn truthiness_is_that_of_jsonlogic() {
    for (given, expected) in [
        (json!(0), false),
        (json!(-1), true),
        (json!(""), false),
        (json!("0"), true),
        (json!([]), false),
        (json!([0]), true),
        (json!(null), false),
        (json!({}), false),
        (json!({ "a": 1 }), true),
    ] {
        let data = json!({ "x": given });
        let tested = rule(&json!({ "var": "x" })).test(&Data::Json(&data));
        assert_eq!(tested, Ok(expected), "{given}");
    }
}

#[test]
fn values_that_cannot_be_compared_are_an_error() {
    for source in [
        json!({ ">": [1, "A"] }),
        json!({ "==": [{ "var": "list" }, 1] }),
        json!({ "<": [{ "var": "object" }, 1] }),
        json!({ "==": [1, "A"] }),
    ] {
        let error = value(&source, &json!({ "list": [1], "object": {} })).expect_err("an error");
        assert!(error.contains("NaN"), "{source}: {error}");
    }
}

#[test]
fn other_operators_are_for_the_sandbox() {
    let data = json!({ "l": [1, 2, 3], "a": { "b": 1 } });
    for (source, expected) in [
        (json!({ "+": [1, { "var": "a.b" }] }), json!(2)),
        (
            json!({ "map": [{ "var": "l" }, { "*": [{ "var": "" }, 2] }] }),
            json!([2, 4, 6]),
        ),
        (
            json!({ "if": [{ "missing": ["a.b", "c"] }, "missing", "all"] }),
            json!("missing"),
        ),
        (json!({ "in": ["ing", "String"] }), json!(true)),
    ] {
        let parsed = rule(&source);
        assert!(!parsed.is_native(), "{source}");
        let here = parsed.test(&Data::Json(&data)).expect_err("not here");
        assert_eq!(here.kind, EvalErrorKind::NotCovered);
        assert_eq!(value(&source, &data), Ok(expected.clone()), "{source}");
        // The data that it reads is enough.
        let part = serde_json::to_value(Data::Json(&data).project(parsed.reads())).unwrap();
        assert_eq!(value(&source, &part), Ok(expected), "{source}: {part}");
    }
}

#[test]
fn reads_are_the_constant_paths() {
    let reads = |source: Value| -> Vec<String> { rule(&source).reads().iter().map(ToString::to_string).collect() };
    assert_eq!(
        reads(json!({ "and": [{ "var": "b.c" }, { "var": ["a", { "var": "d" }] }] })),
        ["a", "b.c", "d"]
    );
    assert_eq!(reads(json!({ "var": "list.0.x" })), ["list[0].x"]);
    assert_eq!(reads(json!({ "map": [{ "var": "l" }, { "var": "" }] })), ["l"]);
    assert_eq!(
        reads(json!({ "reduce": [{ "var": "l" }, { "var": "current" }, { "var": "start" }] })),
        ["l", "start"]
    );
    assert_eq!(reads(json!({ "missing": ["a", "b.c"] })), ["a", "b.c"]);
    assert_eq!(reads(json!({ "missing_some": [1, ["a", "b"]] })), ["a", "b"]);
    assert_eq!(reads(json!(1)), [""; 0]);
    for whole in [
        json!({ "var": "" }),
        json!({ "var": { "var": "key" } }),
        json!({ "missing": { "merge": [["a"]] } }),
    ] {
        let rule = rule(&whole);
        assert_eq!(rule.reads().len(), 1, "{whole}");
        assert!(rule.reads()[0].segments.is_empty(), "{whole}");
    }
}

#[test]
fn problems_have_a_pointer_and_a_suggestion() {
    let found = problems(
        &json!({ "and": [{ "=>": [{ "var": "a" }, 1] }, { "+": [1, 2] }, { "vra": "x" }, { "a": 1, "b": 2 }] }),
        Operators::Subset,
    );
    let pointers: Vec<_> = found.iter().map(|(pointer, ..)| pointer.as_str()).collect();
    assert_eq!(pointers, ["/and/0/=>", "/and/1/+", "/and/2/vra", "/and/3"]);
    assert_eq!(found[0].2, "did you mean `>=`?");
    assert!(
        found[1].1.contains("not in the v1 subset") && found[1].2.contains("strict_operators"),
        "{found:?}"
    );
    assert_eq!(found[2].2, "did you mean `var`?");
    assert!(
        found[3].1.contains("one member") && found[3].1.contains("`a`, `b`"),
        "{found:?}"
    );
    // All operators: the same rule has fewer problems.
    let found = problems(
        &json!([{ "+": [1, 2] }, { "missing_som": [] }, { "log": 1 }, { "a/b~": 1 }]),
        Operators::All,
    );
    assert_eq!(found.len(), 3, "{found:?}");
    assert_eq!(found[0].2, "did you mean `missing_some`?");
    assert!(found[1].1.contains("no effects"), "{found:?}");
    assert_eq!(found[2].0, "/3/a~1b~0");
    for (source, message) in [
        (json!({ "==": [1] }), "at least two values"),
        (json!({ ">": 1 }), "at least two values"),
        (json!({ "and": true }), "at least one value"),
        (json!({ "or": [] }), "at least one value"),
    ] {
        let found = problems(&source, Operators::Subset);
        assert!(found.len() == 1 && found[0].1.contains(message), "{source}: {found:?}");
    }
}

#[test]
fn size_and_nesting_are_bounded() {
    let nested = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!({ "!": [inner] }));
    let bounded = std::thread::Builder::new().stack_size(1024 * 1024).spawn(move || {
        let deepest = rule(&nested(64));
        assert_eq!(deepest.test(&Data::Json(&json!({}))), Ok(true));
        assert!(problems(&nested(66), Operators::Subset)[0].1.contains("deeper than 64"));
    });
    bounded
        .expect("a thread")
        .join()
        .expect("half of a worker's stack is enough");
    let long = json!({ "==": [{ "var": "a" }, "x".repeat(MAX_RULE)] });
    assert!(problems(&long, Operators::All)[0].1.contains("16384 are allowed"));
    // Many operands cost no more than their number.
    let many = json!({ "or": vec![json!({ "var": "a" }); 1300] });
    assert_eq!(value(&many, &json!({ "a": 0 })), Ok(json!(0)));
}

#[test]
fn rules_that_compare_much_data_often_are_for_the_sandbox() {
    let data = json!({ "a": "x".repeat(1024 * 1024), "b": 1 });
    let often = |path: &str| json!({ "or": vec![json!({ "==": [{ "var": path }, "y"] }); 100] });
    let here = rule(&often("a")).test(&Data::Json(&data)).expect_err("too much");
    assert_eq!(here.kind, EvalErrorKind::NotCovered);
    assert_eq!(
        rule(&json!({ "==": [{ "var": "a" }, "y"] })).test(&Data::Json(&data)),
        Ok(false)
    );
    assert_eq!(
        rule(&often("c")).test(&Data::Json(&data)),
        Ok(false),
        "it reads little of the data"
    );
}

#[test]
fn text_is_json_or_a_string() {
    let parse = |text: &str| Rule::parse_text(text, Operators::All).map(|rule| rule.source().to_owned());
    assert_eq!(parse("{\"!\": [1]}"), Ok("{\"!\":[1]}".to_owned()));
    assert_eq!(parse("17"), Ok("17".to_owned()));
    assert_eq!(parse("apple"), Ok("\"apple\"".to_owned()));
    assert_eq!(parse("\"apple\""), Ok("\"apple\"".to_owned()));
    assert!(parse("{\"!\": [1]").is_err_and(|errors| errors[0].message.contains("not JSON")));
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z0-9.]{0,5}".prop_map(Value::from),
        "-?[0-9]{1,30}(\\.[0-9]{1,30})?(e-?[0-9]{1,4})?"
            .prop_map(|text| { serde_json::from_str(&text).unwrap_or(Value::String(text)) }),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-c]", inner, 0..4).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn any_rule() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        "[a-c](\\.[a-c0-2]){0,2}".prop_map(|path| json!({ "var": path })),
        any_json().prop_filter("no operation", |value| !value.to_string().contains('{')),
    ];
    leaf.prop_recursive(3, 24, 3, |inner| {
        let operator = prop::sample::select(vec!["==", "!=", ">", "<", ">=", "<=", "and", "or"]);
        prop_oneof![
            (operator, prop::collection::vec(inner.clone(), 2..4)).prop_map(|(name, list)| json!({ name: list })),
            inner.prop_map(|value| json!({ "!": [value] })),
        ]
    })
}

proptest! {
    /// In this process nothing may panic, and the part of the data that a rule reads must be enough.
    #[test]
    fn native_rules_never_panic_and_read_what_they_say(source in any_rule(), data in any_json()) {
        let rule = rule(&source);
        prop_assert!(rule.is_native());
        let here = rule.evaluate(&Data::Json(&data));
        let whole = evaluate_text(rule.source(), &data.to_string()).map(|(text, _)| text);
        prop_assert_eq!(here.map(|value| value.to_string()).is_ok(), whole.is_ok(), "{}", source);
    }

    #[test]
    fn any_json_is_checked(source in any_json()) {
        let _ = Rule::parse(&source, Operators::All);
        let _ = Rule::parse(&source, Operators::Subset);
    }
}
