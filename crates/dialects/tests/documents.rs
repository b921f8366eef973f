//! Parsing any input ends with a document or with diagnostics, and values round-trip.

use fermata_dialects::{Document, DocumentLimits, Format};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

fn parse(text: &str, name: &str) -> Result<Document, String> {
    Document::parse(text.as_bytes(), name, &DocumentLimits::default()).map_err(|problems| problems.render(false))
}

#[track_caller]
fn value(text: &str, name: &str) -> Value {
    parse(text, name)
        .unwrap_or_else(|text| panic!("{text}"))
        .value()
        .clone()
}

#[track_caller]
fn refused(text: &str, name: &str, code: &str) -> String {
    let text = parse(text, name).expect_err("should be refused");
    assert!(text.contains(&format!("[{code}]")), "{text}");
    text
}

#[test]
fn comments_and_trailing_commas_are_read() {
    let text = "\u{feff}// first\n{ /* a */ \"a\": [1, 2,], \"b\": {\"c\": null,}, // end\n}";
    assert_eq!(value(text, "request"), json!({"a": [1, 2], "b": {"c": null}}));
    assert_eq!(parse(text, "request").unwrap().format(), Format::Json);
}

#[test]
fn yaml_follows_the_core_schema() {
    let text =
        "a: yes\nb: on\nc: 0x1F\nd: 1e3\ne: ~\nf: 'x'\ng: True\nh: 012\ni: .5\nj: -7\nk: 1_000\nl: \"5\"\nm: +3\n";
    let expected = json!({
        "a": "yes", "b": "on", "c": 31, "d": serde_json::from_str::<Value>("1e3").unwrap(), "e": null, "f": "x", "g": true, "h": 12, "i": 0.5,
        "j": -7, "k": "1_000", "l": "5", "m": 3
    });
    assert_eq!(value(text, "request"), expected);
}

#[test]
fn aliases_are_copied() {
    let text = "a: &x {k: [1, 2]}\nb: *x\nc: &y text\nd: *y\n";
    let expected = json!({"a": {"k": [1, 2]}, "b": {"k": [1, 2]}, "c": "text", "d": "text"});
    assert_eq!(value(text, "x.yaml"), expected);
}

#[test]
fn the_extension_decides_the_format() {
    assert_eq!(parse("{a: 1}", "x.yaml").unwrap().format(), Format::Yaml);
    refused("{a: 1}", "x.json", "SYNTAX");
    assert_eq!(parse("{\"a\": 1}", "x").unwrap().format(), Format::Json);
}

#[test]
fn what_json_cannot_represent_is_refused() {
    refused("a: .nan", "x.yaml", "UNSUPPORTED_YAML");
    refused("a: -.inf", "x.yaml", "UNSUPPORTED_YAML");
    refused("a: 1\n---\nb: 2\n", "x.yaml", "UNSUPPORTED_YAML");
    refused("a: !mine 1", "x.yaml", "UNSUPPORTED_YAML");
    refused("a: &x {b: 1}\nc:\n  <<: *x\n", "x.yaml", "UNSUPPORTED_YAML");
    refused("a: &x [*x]", "x.yaml", "UNSUPPORTED_YAML");
    refused("1: a", "x.yaml", "INVALID_KEY");
    refused("{\"$serde_json::private::Number\": \"x\"}", "x.json", "INVALID_KEY");
    refused("$serde_json::private::RawValue: x", "x.yaml", "INVALID_KEY");
    refused("? [a]\n: b", "x.yaml", "INVALID_KEY");
    refused("a: *nowhere", "x.yaml", "SYNTAX");
    refused("a: [", "x.yaml", "SYNTAX");
    refused("# nothing\n", "x.yaml", "EMPTY_DOCUMENT");
    refused("", "x.json", "EMPTY_DOCUMENT");
    let hexadecimal = format!("a: 0x{}", "f".repeat(33));
    refused(&hexadecimal, "x.yaml", "NUMBER_OUT_OF_RANGE");
}

#[test]
fn numbers_keep_their_digits() {
    let long = "123456789012345678901234567890";
    for (json, yaml) in [
        (long, long),
        (
            "0.1000000000000000055511151231257827",
            "0.1000000000000000055511151231257827",
        ),
        ("5.0", "5.0"),
        ("1.50", "+1.50"),
        ("-0.5", "-.5"),
        ("5.0", "5."),
        ("7", "007"),
        ("1e+999", "1e999"),
        (
            "340282366920938463463374607431768211455",
            "0xffffffffffffffffffffffffffffffff",
        ),
    ] {
        assert_eq!(value(&format!("a: {yaml}"), "x.yaml")["a"].to_string(), json, "{yaml}");
        assert_eq!(value(&format!("{{\"a\": {json}}}"), "x.json")["a"].to_string(), json);
    }
}

#[test]
fn json_errors_have_a_position() {
    let cases = [
        ("{\"a\" 1}", "x.json:1:6", "expected `:` after the key `a`, found `1`"),
        ("{\"a\": 1 \"b\": 2}", "x.json:1:9", "expected `,` or `}`, found `\"`"),
        ("{\n  a: 1}", "x.json:2:3", "expected a key in double quotes"),
        ("{\"a\": [1", "x.json:1:7", "this list is not closed"),
        ("{\"a\": \"b\n\"}", "x.json:1:7", "this string is not closed"),
        ("{\"a\": \"\\q\"}", "x.json:1:8", "is not a valid escape"),
        ("{\"a\": \"\\ud83d!\"}", "x.json:1:8", "does not encode a character"),
        ("{\"a\": 01}", "x.json:1:7", "is not a number"),
        ("{\"a\": yes}", "x.json:1:7", "put strings in double quotes"),
        (
            "{\"a\": 1} x",
            "x.json:1:10",
            "expected the end of the document, found `x`",
        ),
        ("{ /* ", "x.json:1:3", "this comment is not closed"),
        ("{\"a\": \"\u{1}\"}", "x.json:1:8", "write it as `\\u0001`"),
    ];
    for (text, place, message) in cases {
        let drawn = refused(text, "x.json", "SYNTAX");
        assert!(drawn.contains(place) && drawn.contains(message), "{drawn}");
    }
}

#[test]
fn duplicate_keys_show_both_positions() {
    for (text, name) in [
        ("{\"a\": {\"b\": 1,\n \"b\": 2}}", "x.json"),
        ("a:\n  b: 1\n  b: 2\n", "x.yaml"),
    ] {
        let problems = Document::parse(text.as_bytes(), name, &DocumentLimits::default()).unwrap_err();
        let problem = &problems.list()[0];
        assert_eq!((problem.code, problem.pointer.as_str()), ("DUPLICATE_KEY", "/a/b"));
        assert_eq!(problem.related[0].line, problem.line - 1);
    }
}

#[test]
fn limits_are_checked_early() {
    let started = Instant::now();
    refused(&"[".repeat(10_000), "x.json", "TOO_DEEP");
    refused(&"{\"a\":".repeat(10_000), "request", "TOO_DEEP");
    refused(&"[".repeat(10_000), "x.yaml", "TOO_DEEP");
    refused(&"- ".repeat(10_000), "x.yaml", "TOO_DEEP");
    refused(&"[".repeat(5_000_000), "x.yaml", "TOO_DEEP");
    let nested: String = (0..3000).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    refused(&nested, "x.yaml", "TOO_DEEP");
    refused(&" ".repeat(20_000_000), "x.json", "DOCUMENT_TOO_LARGE");
    refused(&format!("[{}0]", "0,".repeat(1_500_000)), "x.json", "TOO_MANY_VALUES");
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..30 {
        let alias = format!("*a{}", level - 1);
        bomb.push_str(&format!("a{level}: &a{level} [{}]\n", vec![alias; 10].join(", ")));
    }
    refused(&bomb, "x.yaml", "TOO_MANY_VALUES");
    let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(500_000), ["*a"; 500].join(", "));
    refused(&long, "x.yaml", "TOO_MANY_VALUES");
    let mut chain = "a0: &a0 [x]\n".to_owned();
    for level in 1..3000 {
        chain.push_str(&format!("a{level}: &a{level} [*a{}]\n", level - 1));
    }
    refused(&chain, "x.yaml", "TOO_DEEP");
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
}

#[test]
fn text_that_is_not_utf8_is_located() {
    let problems = Document::parse(b"{\n \"a\": \"\xff\"}", "x.json", &DocumentLimits::default()).unwrap_err();
    let problem = &problems.list()[0];
    assert_eq!((problem.code, problem.line, problem.column), ("NOT_UTF8", 2, 8));
}

#[test]
fn the_same_value_has_the_same_checksum() {
    let one = parse("{\"b\": 2.0, \"a\": [\"\\u00e9\", 0, 1e300]}", "x.json").unwrap();
    let two = parse("# other\na: [\"é\", 0, 1e+300]\nb: 2.0\n", "x.yaml").unwrap();
    assert_eq!(one.canonical_json(), "{\"a\":[\"é\",0,1e+300],\"b\":2.0}");
    assert_eq!(one.checksum(), two.checksum());
    assert_eq!(one.checksum().len(), 64);
    // Templates write the digits, so these are two documents.
    let three = parse("{\"b\": 2, \"a\": [\"\\u00e9\", 0, 1e300]}", "x.json").unwrap();
    assert_ne!(one.checksum(), three.checksum());
}

#[test]
fn yaml_values_have_positions() {
    let text = "a: one\nlist:\n  - k: &x 'v'\n    m: [1, {n: ü}]\nblock: |\n  line\nz: *x\n";
    let document = parse(text, "x.yaml").unwrap();
    let at = |pointer: &str| {
        let span = document.locate(pointer);
        &text[span.start..span.end]
    };
    assert_eq!(at("/a"), "one");
    assert_eq!(at("/list/0/k"), "&x 'v'");
    assert_eq!(at("/list/0/m"), "[1, {n: ü}]");
    assert_eq!(at("/list/0/m/1/n"), "ü");
    assert_eq!(at("/list/0"), "k: &x 'v'\n    m: [1, {n: ü}]");
    assert_eq!(at("/block"), "line\n");
    assert_eq!(at("/z"), "&x 'v'");
    assert_eq!(at("/list/0/missing/deep"), at("/list/0"));
    let key = document.locate_key("/list/0/m");
    assert_eq!(&text[key.start..key.end], "m");
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>()
            .prop_filter("finite", |x| x.is_finite())
            .prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 60, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((any::<String>(), inner), 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn pointers(value: &Value, pointer: String, all: &mut Vec<String>) {
    match value {
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                pointers(item, format!("{pointer}/{at}"), all);
            }
        }
        Value::Object(map) => {
            for (key, item) in map {
                pointers(
                    item,
                    format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1")),
                    all,
                );
            }
        }
        _ => {}
    }
    all.push(pointer);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn arbitrary_bytes_get_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for name in ["x.json", "x.yaml", "request"] {
            if let Err(problems) = Document::parse(&bytes, name, &DocumentLimits::default()) {
                prop_assert!(problems.has_errors());
                problems.render(true);
            }
        }
    }

    #[test]
    fn arbitrary_text_of_the_right_letters_gets_an_answer(
        text in "[\\[\\]{}:,\"'\\\\a1 \n\t\r#&*!|>?%@`<~.u/é-]{0,60}"
    ) {
        for name in ["x.json", "x.yaml", "request"] {
            match parse(&text, name) {
                Ok(document) => {
                    let mut all = Vec::new();
                    pointers(document.value(), String::new(), &mut all);
                    for pointer in all {
                        let span = document.locate(&pointer);
                        prop_assert!(text.get(span.start..span.end).is_some(), "{pointer} {span:?}");
                        for offset in 0..8 {
                            let span = document.locate_in_string(&pointer, offset, 2);
                            prop_assert!(text.get(span.start..span.end).is_some(), "{pointer} {span:?}");
                        }
                    }
                }
                Err(drawn) => prop_assert!(!drawn.is_empty()),
            }
        }
    }

    #[test]
    fn json_is_read_as_it_was_written(value in any_json(), pretty in any::<bool>()) {
        let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
        let document = parse(&text, "x.json").map_err(TestCaseError::fail)?;
        prop_assert_eq!(document.value(), &value);
        let mut all = Vec::new();
        pointers(&value, String::new(), &mut all);
        for pointer in all {
            let span = document.locate(&pointer);
            let part = parse(&text[span.start..span.end], "x.json").map_err(TestCaseError::fail)?;
            prop_assert_eq!(Some(part.value()), value.pointer(&pointer));
        }
    }

    #[test]
    fn json_is_yaml_too(value in any_json()) {
        let text = serde_json::to_string(&value).unwrap();
        // JSON may contain characters that YAML requires to be escaped; they are not tested here.
        prop_assume!(text.chars().all(|c| c == '\t' || !c.is_control()) && !text.contains(['\u{feff}', '\u{fffe}', '\u{ffff}']));
        if let Ok(document) = parse(&text, "x.yaml") {
            prop_assert_eq!(document.canonical_json(), parse(&text, "x.json").unwrap().canonical_json());
        }
    }
}
