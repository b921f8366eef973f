//! `fermata eval` from outside: one expression, and many as JSON lines.

use crate::support::{Process, fermata, folder, text, write};
use serde_json::{Value, json};

#[test]
fn expression_prints_its_value() {
    let folder = folder();
    let data = write(&folder, "data.json", r#"{"trigger": {"items": [1, 2, 3]}}"#);
    let at_data = format!("@{}", text(&data));
    for (arguments, value) in [
        (
            &[
                "js",
                "trigger.n > 100 && trigger.to === 'x'",
                "--data",
                "trigger.n=120",
                "--data",
                "trigger.to=x",
            ][..],
            json!(true),
        ),
        (
            &["js", "trigger.items.map(i => i * 2)", "--data", &at_data],
            json!([2, 4, 6]),
        ),
        (&["js", "-1"], json!(-1)),
        (&["js", "/^A.*d$/.test('Approved')"], json!(true)),
        (
            &[
                "js",
                "let n = 0; for (const i of trigger.items) n += i; n",
                "--data",
                &at_data,
            ],
            json!(6),
        ),
        (
            &["template", "{{ trigger.items }}", "--data", &at_data],
            json!([1, 2, 3]),
        ),
        (
            &["template", "{{ a }} and {{ b ?? 'c' }}", "--data", "a=1"],
            json!("1 and c"),
        ),
    ] {
        let ran = fermata(&[&["eval"], arguments].concat());
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{arguments:?}: {ran:?}");
        assert_eq!(ran.json(), value, "{arguments:?}");
    }
    let ran = Process::start(&["eval", "js", "a.b", "--data", "-"], &[], r#"{"a": {"b": 7}}"#).output();
    assert_eq!(ran.stdout, "7\n");
    let undefined = fermata(&["eval", "js", "a?.b", "--data", "a=null"]);
    assert_eq!((undefined.code, undefined.stdout.as_str()), (Some(0), "null\n"));
    assert!(undefined.stderr.contains("undefined"), "{undefined:?}");
}

#[test]
fn errors_have_a_place_and_an_exit_code() {
    for (arguments, code, pieces) in [
        (
            &["js", "trigger.a.b.c", "--data", "trigger.a=1"][..],
            1,
            &["error[Thrown]: TypeError", "expression:1:", "1 | trigger.a.b.c", "^"][..],
        ),
        (&["js", "1 +"], 2, &["error[Syntax]", "expression:1:4", "  |    ^"]),
        (
            &["template", "a {{ nope.x }}"],
            1,
            &["error[Undefined]", "1 | a {{ nope.x }}", "  |      ^^^^"],
        ),
        (&["js", "/a/.test("], 2, &["error[Syntax]"]),
        (
            &["js", "throw new TypeError('no')"],
            1,
            &["error[Thrown]", "TypeError: no"],
        ),
        (&["js", "while (true) {}"], 1, &["error[Timeout]"]),
        (&["template", "{{ a"], 2, &["error[Syntax]"]),
        (&["js", "x", "--data", "x"], 2, &["--data x: write it as key=value"]),
        (&["js"], 2, &["EXPRESSION"]),
        (&["python", "1"], 2, &["invalid value 'python'"]),
        (&["--batch", "js", "1"], 2, &["cannot be used with"]),
    ] {
        let ran = fermata(&[&["eval"], arguments].concat());
        assert_eq!(
            (ran.code, ran.stdout.as_str()),
            (Some(code), ""),
            "{arguments:?}: {ran:?}"
        );
        for piece in pieces {
            assert!(ran.stderr.contains(piece), "{arguments:?}: {piece}: {}", ran.stderr);
        }
    }
}

#[test]
fn batch_answers_every_line() {
    let lines = [
        r#"{"language": "js", "expression": "1 + a", "data": {"a": 2}}"#,
        r#"{"language": "template", "expression": "{{ a }}", "data": {"a": {"b": null}}}"#,
        r#"{"language": "js", "expression": "undefined"}"#,
        r#"{"language": "js", "expression": "a.b", "data": {"a": null}}"#,
        r#"{"language": "js", "expression": "1 +"}"#,
        "",
        "not json",
        "[1]",
        r#"{"language": "cobol", "expression": "1"}"#,
        r#"{"language": "js", "expression": "1", "extra": 1}"#,
        &format!(
            r#"{{"language": "js", "expression": "1", "data": {}1{}}}"#,
            "[".repeat(5000),
            "]".repeat(5000)
        ),
        r#"{"language": "js", "expression": "[1,2,3].map(x => x).length"}"#,
        r#"{"language": "js", "expression": "'a-b'.split(/-/)"}"#,
    ];
    let ran = Process::start(&["eval", "--batch"], &[], &lines.join("\n")).output();
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    let answers: Vec<Value> = ran
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(answers.len(), 12, "{answers:#?}");
    assert_eq!(answers[0], json!({ "value": 3 }));
    assert_eq!(answers[1], json!({ "value": { "b": null } }));
    assert_eq!(answers[2], json!({ "value": null, "undefined": true }));
    assert_eq!(answers[3]["error"]["kind"], "Thrown");
    assert_eq!(answers[4]["error"]["kind"], "Syntax");
    assert_eq!(answers[4]["error"]["offset"], 3);
    for answer in &answers[5..10] {
        assert_eq!(answer["error"]["kind"], "BadRequest", "{answer}");
        assert!(
            answer["error"]["message"].is_string() && answer["error"]["offset"].is_u64(),
            "{answer}"
        );
    }
    assert_eq!(answers[10], json!({ "value": 3 }));
    assert_eq!(answers[11], json!({ "value": ["a", "b"] }));
}

/// The answers to lines of a batch.
fn batch(lines: &[Value]) -> Vec<Value> {
    let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
    let ran = Process::start(&["eval", "--batch"], &[], &lines.join("\n")).output();
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    let answers = ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap());
    answers.collect()
}

#[test]
fn jsonlogic_is_evaluated_with_all_operators() {
    let line =
        |expression: Value, data: Value| json!({ "language": "jsonlogic", "expression": expression, "data": data });
    let cases = [
        (json!({ "==": [1, "1"] }), json!({}), json!(true)),
        (json!({ "var": 1 }), json!(["apple", "banana"]), json!("banana")),
        (json!({ "var": "" }), json!(17), json!(17)),
        (json!("apple"), json!({}), json!("apple")),
        (json!("{\"!\": [true]}"), json!({}), json!(false)),
        (
            json!({ "map": [{ "var": "l" }, { "*": [{ "var": "" }, 2] }] }),
            json!({ "l": [1, 2] }),
            json!([2, 4]),
        ),
        (
            json!({ "reduce": [[1, 2, 3], { "+": [{ "var": "current" }, { "var": "accumulator" }] }, 0] }),
            json!(null),
            json!(6),
        ),
        (json!({ "/": [5, 2] }), json!(null), json!(2.5)),
        (json!({ "missing": ["a", "b"] }), json!({ "a": 1 }), json!(["b"])),
    ];
    let lines: Vec<_> = cases
        .iter()
        .map(|(rule, data, _)| line(rule.clone(), data.clone()))
        .collect();
    for (answer, (rule, _, expected)) in batch(&lines).iter().zip(&cases) {
        assert_eq!(*answer, json!({ "value": expected }), "{rule}");
    }
    let answers = batch(&[
        json!({ "language": "jsonlogic", "expression": { "+": [1, 2] }, "strict": true }),
        json!({ "language": "jsonlogic", "expression": { "and": [{ "=>": [1, 2] }] } }),
        json!({ "language": "jsonlogic", "expression": { ">": [1, "A"] } }),
        json!({ "language": "jsonlogic", "expression": "{\"+\": [1" }),
        json!({ "language": "cel", "expression": { "+": [1, 2] } }),
    ]);
    let kinds: Vec<_> = answers.iter().map(|answer| &answer["error"]["kind"]).collect();
    assert_eq!(
        kinds,
        ["NotCovered", "Syntax", "Thrown", "Syntax", "BadRequest"],
        "{answers:#?}"
    );
    let message = |at: usize| answers[at]["error"]["message"].as_str().unwrap();
    assert!(message(0).contains("strict_operators"), "{}", message(0));
    assert!(
        message(1).contains("/and/0/=>") && message(1).contains("did you mean `>=`?"),
        "{}",
        message(1)
    );
    let ran = fermata(&["eval", "jsonlogic", "{\"+\": [1, {\"var\": \"n\"}]}", "--data", "n=2"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "3\n"), "{ran:?}");
    let ran = fermata(&["eval", "jsonlogic", "{\"+\": [1, 2]}", "--strict"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("not in the v1 subset"), "{ran:?}");
}

#[test]
fn cel_is_evaluated_and_rendered_as_json() {
    let cases = [
        ("1 + 2", "3"),
        ("1u + 2u", "3"),
        ("1.0 + 2.0", "3.0"),
        ("9223372036854775807", "9223372036854775807"),
        ("18446744073709551615u", "18446744073709551615"),
        ("0.0 / 0.0", "\"NaN\""),
        ("-1.0 / 0.0", "\"-Infinity\""),
        ("b'abc'", "\"YWJj\""),
        ("'a' + \"\\u00e9\"", "\"aé\""),
        (
            "timestamp('2009-02-13T23:31:30.5+01:00')",
            "\"2009-02-13T22:31:30.500Z\"",
        ),
        ("duration('-90.25s')", "\"-90.250s\""),
        ("timestamp('2023-01-01T00:00:00Z').getHours('Europe/Berlin')", "1"),
        ("type(1u)", "\"uint\""),
        ("{'b': 1, 'a': [true, null]}", "{\"a\":[true,null],\"b\":1}"),
        ("{1: 'x', true: 2}", "{\"1\":\"x\",\"true\":2}"),
        ("n + 1", "8"),
        ("d * 2.0", "2.0"),
        ("has(state.n) && !has(state.nope) && has(o.`a-b`)", "true"),
        ("l.filter(i, i > 1).map(i, i * 2)", "[4,6]"),
        ("'x-y'.split('-')", "[\"x\",\"y\"]"),
        ("false && nope || 'a'.matches('^[a-z]$')", "true"),
    ];
    let data = json!({ "n": 7, "d": 1.0, "o": { "a-b": 1 }, "l": [1, 2, 3] });
    let line = |source: &str| json!({ "language": "cel", "expression": source, "data": data });
    let answers = batch(&cases.iter().map(|(source, _)| line(source)).collect::<Vec<_>>());
    for (answer, (source, expected)) in answers.iter().zip(cases) {
        assert_eq!(answer.to_string(), format!("{{\"value\":{expected}}}"), "{source}");
    }
    let parentheses = format!("{}1{}", "(".repeat(2000), ")".repeat(2000));
    let wrong = [
        ("1 + 1u", "Thrown", "no matching overload"),
        ("1 / 0", "Thrown", "ivision by zero"),
        ("nope > 1", "Thrown", "undeclared reference to `nope`"),
        ("o.c", "Thrown", "no such key: `c`"),
        ("1 +", "Syntax", ""),
        ("a ++ b", "Syntax", ""),
        (
            "google.protobuf.Int32Value{value: 1} == 1",
            "NotCovered",
            "not part of the CEL subset",
        ),
        ("l.transformList(i, v, v)", "NotCovered", "two variables"),
        ("cel.bind(x, 1, x)", "NotCovered", "`cel.bind`"),
        ("optional.of(1)", "Thrown", "optional"),
        (&parentheses, "Syntax", "1024 are allowed"),
    ];
    let answers = batch(&wrong.iter().map(|(source, ..)| line(source)).collect::<Vec<_>>());
    for (answer, (source, kind, message)) in answers.iter().zip(wrong) {
        let error = &answer["error"];
        assert_eq!(error["kind"], kind, "{source}: {answer}");
        assert!(
            error["message"].as_str().unwrap().contains(message),
            "{source}: {answer}"
        );
    }
}
