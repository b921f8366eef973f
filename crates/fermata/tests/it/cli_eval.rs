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
