//! Conditions of plain paths: results, syntax errors, and that no input makes them panic.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::Comparison;
use crate::Data;

fn test(source: &str) -> bool {
    let trigger = json!({ "body": { "amount": 12.5, "big": 9007199254740993u64, "zero": 0, "name": "it's \"x\"" } });
    let charge = json!({
        "status": "success", "status_code": 200,
        "body": {
            "approved": true, "reason": null, "one": 1.0, "text": "200", "items": [{ "id": 7 }], "2": "two", "007": "bond",
            "$id": 1, "größe": { "ß-1": 2 }, "a b": { "it's": [{ "]": 3 }] }, "0": "zero", "": "empty",
        },
    });
    let tasks = Data::object([
        ("charge", Data::Json(&charge)),
        ("send-receipt", Data::Json(&charge)),
        ("7", Data::Json(&charge)),
    ]);
    let scope = Data::object([("trigger", Data::Json(&trigger)), ("tasks", tasks)]);
    Comparison::parse(source)
        .unwrap_or_else(|error| panic!("{source}: {error}"))
        .test(&scope)
}

#[test]
fn verdicts() {
    let truths = [
        "tasks.charge.status_code == 200",
        "tasks.charge.status_code==200.0",
        "  tasks.send-receipt.status_code >= 200  ",
        "tasks.charge.status_code<=200",
        "tasks.charge.status_code > -1",
        "tasks.charge.status_code < 2.5e2",
        "tasks.charge.body.approved == true",
        "tasks.charge.body.approved != false",
        "tasks.charge.body.approved != 'true'",
        "tasks.charge.body.reason == null",
        "tasks.charge.body.one == 1",
        "tasks.charge.body.text == '200'",
        "tasks.charge.body.text != 200",
        "tasks.charge.body.text > \"1\"",
        "tasks.charge.body.items.0.id == 7",
        "tasks.charge.body.2 == 'two'",
        "tasks.charge.body.007 == 'bond'",
        "tasks.charge.body.items != null",
        "tasks.charge.body.items != 1",
        "tasks.7.status == 'success'",
        "tasks.charge.body.$id == 1",
        "tasks.charge.body.größe.ß-1 == 2",
        "tasks.charge.body['größe'][\"ß-1\"] == 2",
        "tasks.charge.body['a b']['it\\'s'].0[ ']' ] == 3",
        "tasks['send-receipt']['status_code'] == 200",
        "tasks.charge.body['0'] == 'zero'",
        "tasks.charge.body['items']['0'] == null",
        "tasks.charge.body[''] == 'empty'",
        "tasks.charge.status == \"success\"",
        "trigger.body.amount > 12",
        "trigger.body.big == 9007199254740993",
        "trigger.body.big > 9007199254740992",
        "trigger.body.zero == -0.0",
        r#"trigger.body.name == 'it\'s "x"'"#,
        r#"trigger.body.name == "it's \"x\"""#,
        "trigger.body.nope == null",
        "trigger.nope.deeper.still == null",
        "trigger.body.amount.deeper == null",
        "tasks != null",
        "tasks.refund.status_code != 200",
    ];
    for source in truths {
        assert!(test(source), "{source}");
    }
    let lies = [
        "tasks.charge.status_code != 200",
        "tasks.charge.status_code == '200'",
        "tasks.charge.body.text == 200",
        "tasks.charge.body.text >= 200",
        "tasks.charge.body.reason < 1",
        "tasks.charge.body.reason >= null",
        "tasks.charge.body.approved >= true",
        "tasks.charge.body.items == null",
        "tasks.charge.body.items.1.id == 7",
        "tasks.charge.body.items.length == 1",
        "tasks.charge.body.7 == 'bond'",
        "trigger.body.big == 9007199254740992",
        "tasks.refund.status_code == 200",
        "tasks.refund.status_code < 200",
        "tasks == null",
        "tasks > 1",
    ];
    for source in lies {
        assert!(!test(source), "{source}");
    }
}

#[test]
fn reads_lists_the_path() {
    let condition = Comparison::parse(" tasks.pay-out.items.3.id != 'x' ").unwrap();
    let steps: Vec<String> = condition.reads()[0].segments.iter().map(ToString::to_string).collect();
    assert_eq!(steps, ["tasks", "pay-out", "items", "3", "id"]);
    assert_eq!(condition.reads()[0].to_string(), "tasks['pay-out'].items[3].id");
    assert_eq!(condition.source(), " tasks.pay-out.items.3.id != 'x' ");
    assert_eq!(condition.literal(), &json!("x"));
}

#[test]
fn syntax_errors_have_a_position_and_say_what_is_allowed() {
    let table = [
        ("", "the condition is empty; a condition is one comparison", 0, 0),
        ("  ", "the condition is empty", 0, 2),
        ("a.b", "the operator is missing", 3, 0),
        ("a.b ==", "the value on the right is missing: a number", 6, 0),
        ("a.b = 1", "write `==`", 4, 1),
        ("a.b === 1", "`===` is not an operator of conditions; write `==`", 4, 3),
        ("a.b !== 1", "write `!=`", 4, 3),
        ("a.b => 1", "write `>=`", 4, 2),
        ("a.b >> 1", "the operators are", 4, 2),
        ("a == 1 && b == 2", "`&&` and `||` are not supported", 7, 2),
        ("a == 1 || b == 2", "`&&` and `||` are not supported", 7, 2),
        ("a && b", "`&&` and `||` are not supported", 2, 2),
        ("(a == 1)", "parentheses and functions are not", 0, 1),
        ("a == (1)", "parentheses and functions are not", 5, 1),
        ("len(a) == 1", "parentheses and functions are not", 3, 1),
        ("!a == 1", "`!` is not supported", 0, 1),
        (
            "a == b.c",
            "the right side cannot be a path; the right side must be a number",
            5,
            3,
        ),
        ("a == paid", "put the string in quotes", 5, 4),
        ("a == True", "write `true` in lower case", 5, 4),
        ("a == nil", "write `null`", 5, 3),
        ("a == 1.2.3", "this is not a number", 5, 5),
        ("a == +1", "this is not a number", 5, 2),
        ("a == 01", "this is not a number", 5, 2),
        ("a == 200x", "this is not a number", 5, 4),
        ("a == 'x", "' is missing", 5, 2),
        (r"a == 'x\n'", "a backslash can only escape", 7, 2),
        (r"a == '\", "a backslash can only escape", 6, 1),
        ("'paid' == a", "unexpected string", 0, 1),
        ("a[0] == 1", "an element as `items.0`, not `items[0]`", 1, 1),
        ("a[b] == 1", "brackets take a quoted key", 1, 1),
        ("a[ == 1", "brackets take a quoted key", 1, 1),
        ("a['b' == 1", "`]` is missing", 1, 1),
        ("a['b == 1", "' is missing", 2, 7),
        ("['a'] == 1", "brackets must follow a name", 0, 1),
        ("a.['b'] == 1", "a name in a path has", 2, 1),
        ("a..b == 1", "a name in a path has", 2, 1),
        (".a == 1", "unexpected `.`", 0, 1),
        ("a. == 1", "a name in a path has", 2, 1),
        ("a€ == 1", "unexpected `€`", 1, 3),
        ("a == 1 1", "unexpected `1`; a condition is", 7, 1),
        ("a == {}", "unexpected `{`; the right side must be", 5, 1),
        ("a b == 1", "unexpected `b`", 2, 1),
    ];
    for (source, what, offset, length) in table {
        let error = Comparison::parse(source).expect_err(source);
        assert!(error.message.contains(what), "{source}: {error}");
        assert_eq!((error.offset, error.length), (offset, length), "{source}: {error}");
    }
    let long = format!("{} == 1", "a".repeat(1025));
    assert!(
        Comparison::parse(&long)
            .unwrap_err()
            .message
            .contains("longer than 1024 bytes")
    );
    assert!(Comparison::parse(&"a.".repeat(3_000_000)).is_err());
}

fn literal() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        // Short enough to be parsed back exactly.
        (any::<i32>(), 0..6).prop_map(|(digits, places)| Value::from(f64::from(digits) / 10_f64.powi(places))),
        any::<String>().prop_map(Value::from),
    ]
}

/// The literal in source form.
fn written(value: &Value) -> String {
    match value {
        Value::String(text) => format!("'{}'", text.replace('\\', r"\\").replace('\'', r"\'")),
        other => other.to_string(),
    }
}

proptest! {
    #[test]
    fn any_text_is_parsed_or_refused(source in any::<String>(), likely in "[a-z.0-9=!<>&|'\"\\\\ ()é\\[\\]$-]{0,30}") {
        for source in [source, likely] {
            if let Err(error) = Comparison::parse(&source) {
                let place = source.get(error.offset..error.offset + error.length);
                prop_assert!(place.is_some(), "{source:?}: {error:?}");
            }
        }
    }

    #[test]
    fn a_value_equals_itself_and_one_operator_of_each_pair_holds(left in literal(), right in literal()) {
        let data = json!({ "v": left });
        let scope = Data::Json(&data);
        let test = |operator: &str, literal: &Value| {
            Comparison::parse(&format!("v {operator} {}", written(literal))).map(|parsed| parsed.test(&scope))
        };
        prop_assert_eq!(test("==", &left), Ok(true));
        prop_assert!(test("==", &right) != test("!=", &right));
        let comparable = left.is_number() && right.is_number() || left.is_string() && right.is_string();
        let ordered = test(">", &right) != test("<=", &right);
        prop_assert_eq!(ordered, comparable);
        prop_assert_eq!(test("<", &right) != test(">=", &right), comparable);
    }
}
