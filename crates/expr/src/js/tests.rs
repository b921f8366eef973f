//! Conditions: values, refusals, limits and reads.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::Expression;
use crate::{Data, EvalError, EvalErrorKind, Limits, SyntaxKind};

fn evaluate_with(source: &str, limits: &Limits) -> Result<Option<Value>, EvalError> {
    let trigger = json!({
        "amount": 120, "name": "Ada", "tags": ["a", "b"], "none": null, "nested": {"k": [1, [2, 3]]},
        "items": [{"id": 1, "ok": true}, {"id": 2, "ok": false}], "big": 9007199254740993u64,
        "text": "a😀b", "2": "two", "1": "one", "length": 7, "empty": [], "empty2": [],
    });
    let item = json!({ "items": [{ "Status": "Approved" }] });
    let scope = Data::object([
        ("trigger", Data::Json(&trigger)),
        (
            "context",
            Data::object([("data", Data::object([("get-item", Data::Json(&item))]))]),
        ),
    ]);
    Expression::parse(source)
        .unwrap_or_else(|error| panic!("{source}: {error}"))
        .evaluate(&scope, limits)
}

fn evaluate(source: &str) -> Result<Option<Value>, EvalError> {
    evaluate_with(source, &Limits::default())
}

#[track_caller]
fn gives(source: &str, expected: Value) {
    match evaluate(source) {
        Ok(value) => assert_eq!(value, Some(expected), "{source}"),
        Err(error) => panic!("{source}: {error}"),
    }
}

#[test]
fn the_conditions_of_the_specification() {
    gives("context.data['get-item'].items[0].Status === 'Approved'", json!(true));
    gives("context.data['get-item'].items[0].Status !== 'Approved'", json!(false));
    gives("true", json!(true));
    gives(" /* note */ false ; // end", json!(false));
}

#[test]
fn operators() {
    let table = [
        ("1 + 2 * 3 - 4 / 2", json!(5)),
        ("2 ** 3 ** 2", json!(512)),
        ("(-2) ** 2", json!(4)),
        ("7 % -3", json!(1)),
        ("'1' + 2", json!("12")),
        ("1 + '2' * 3", json!(7)),
        ("[1,2] + {}", json!("1,2[object Object]")),
        ("null + 1", json!(1)),
        ("undefined + 1", json!(null)),
        ("'b' > 'a' && 'B' < 'a'", json!(true)),
        ("'10' < '9'", json!(true)),
        ("'10' < 9", json!(false)),
        ("null >= 0", json!(true)),
        ("undefined == null && undefined !== null", json!(true)),
        ("'1' == 1 && true == 1 && [1] == 1 && null != 0", json!(true)),
        ("NaN != NaN", json!(true)),
        ("5 & 3 | 8 ^ 1", json!(9)),
        ("-1 >>> 28", json!(15)),
        ("1 << 33", json!(2)),
        ("~5", json!(-6)),
        ("-8 >> 1", json!(-4)),
        ("!0 && !'' && !null && ![] === false", json!(true)),
        ("typeof missing", json!("undefined")),
        (
            "typeof null + typeof [] + typeof 'x' + typeof (x => x)",
            json!("objectobjectstringfunction"),
        ),
        ("void 0 ?? 'd'", json!("d")),
        ("0 || null ?? 'x'", json!("never")),
        ("'a' in {a: 1}", json!(true)),
        ("'toString' in {} && !('x' in [])", json!(true)),
        ("1 in [5, 6] && !(2 in [5, 6])", json!(true)),
        ("false ? 1 : true ? 2 : 3", json!(2)),
        ("`a${1 + 1}b${`c${3}`}`", json!("a2bc3")),
        ("0.1 + 0.2 + ''", json!("0.30000000000000004")),
        ("-0 + ''", json!("0")),
        ("0x1F + 0b11 + 0o17 + 1e2 + .5 + 1_000", json!(1149.5)),
        (r"'\x41\u0042\u{43}\n\'' + ''", json!("ABC\n'")),
    ];
    for (source, expected) in table {
        if expected == json!("never") {
            assert!(Expression::parse(source).is_err());
        } else {
            gives(source, expected);
        }
    }
}

#[test]
fn members_and_chains() {
    let table = [
        ("trigger.tags[1]", json!("b")),
        ("trigger['tags']['0']", json!("a")),
        ("trigger[1] + trigger['2']", json!("onetwo")),
        ("trigger.length", json!(7)),
        ("trigger.tags.length + trigger.text.length", json!(6)),
        ("trigger.none?.x.y.z === undefined", json!(true)),
        ("trigger.nope?.[1 + 1]?.() === undefined", json!(true)),
        ("(trigger.nope?.x) === undefined", json!(true)),
        ("trigger.tags?.includes('b')", json!(true)),
        ("trigger.nope?.includes('b') ?? 'none'", json!("none")),
        ("trigger.name?.toUpperCase?.()", json!("ADA")),
        ("trigger.nope?.5:1", json!("never")),
        (
            "trigger.empty === trigger.empty && trigger.empty !== trigger.empty2",
            json!(true),
        ),
        ("trigger['const' + 'ructor'] === undefined", json!(true)),
        ("({a: 1})['__pro' + 'to__'] === undefined", json!(true)),
        (
            "trigger.hasOwnProperty('amount') && !trigger.hasOwnProperty('x')",
            json!(true),
        ),
        ("trigger.big", json!(9007199254740992i64)),
    ];
    for (source, expected) in table {
        if expected != json!("never") {
            gives(source, expected);
        }
    }
    assert_eq!(evaluate("trigger.nope").unwrap(), None);
    assert_eq!(evaluate("x => x").unwrap(), None);
    gives("[undefined, x => x, NaN, -0]", json!([null, null, null, 0]));
    gives("({a: undefined, b: 1})", json!({"b": 1}));
}

#[test]
fn arrays() {
    let table = [
        (
            "trigger.items.some(i => i.ok) && !trigger.items.every(i => i.ok)",
            json!(true),
        ),
        ("trigger.items.filter(i => i.id > 1).map(i => i.id)", json!([2])),
        ("trigger.items.find(i => i.id === 2).id", json!(2)),
        ("trigger.items.findIndex(i => i.id === 3)", json!(-1)),
        ("[1, 2, 3].findLast((x, i) => i < 2)", json!(2)),
        ("[1, NaN].includes(NaN) && [NaN].indexOf(NaN) === -1", json!(true)),
        ("[1, 2, 1].lastIndexOf(1, -2)", json!(0)),
        ("[1, null, undefined, [2, [3]]].join('-')", json!("1---2,3")),
        ("[1, 2, 3].slice(-2, -1).concat(4, [5, [6]])", json!([2, 4, 5, [6]])),
        ("[[1], [[2]]].flat(Infinity).at(-1)", json!(2)),
        ("[1, 2].flatMap(x => [x, x * 2])", json!([1, 2, 2, 4])),
        ("[1, 2, 3].reduce((a, b) => a + b)", json!(6)),
        ("['a', 'b'].reduceRight((a, b, i) => a + b + i, '')", json!("b1a0")),
        ("[3, 1, 10, undefined, 2].toSorted()", json!([1, 10, 2, 3, null])),
        ("[3, 1, 2].toSorted((a, b) => b - a).toReversed()", json!([1, 2, 3])),
        ("[0, 1, ''].filter(Boolean)", json!([1])),
        ("['1', '2', '3'].map(parseInt)", json!([1, null, null])),
        ("[...'a😀', ...[1]]", json!(["a", "😀", 1])),
        ("Math.max(...trigger.items.map(i => i.id))", json!(2)),
        ("((a, b) => [a, b])(1)", json!([1, null])),
        ("[1, 2].map(x => [3].map(y => x * y))", json!([[3], [6]])),
        ("Array.isArray(trigger.tags) && !Array.isArray('a')", json!(true)),
    ];
    for (source, expected) in table {
        gives(source, expected);
    }
}

#[test]
fn objects() {
    let table = [
        ("Object.keys({b: 1, 2: 1, a: 1, 1: 1})", json!(["1", "2", "b", "a"])),
        ("Object.keys(trigger).slice(0, 3)", json!(["1", "2", "amount"])),
        ("Object.entries({a: [1]})", json!([["a", [1]]])),
        ("Object.values('ab')", json!(["a", "b"])),
        (
            "({...trigger.items[0], id: 9, ['x' + 1]: 2, ...null})",
            json!({"id": 9, "ok": true, "x1": 2}),
        ),
        ("(name => ({name}))(trigger.name)", json!({"name": "Ada"})),
        ("Object.hasOwn({a: 1}, 'a')", json!(true)),
        (
            "JSON.stringify({b: [1, undefined, 'é\\n\"'], a: undefined, 1: -0})",
            json!("{\"1\":0,\"b\":[1,null,\"é\\n\\\"\"]}"),
        ),
        ("JSON.stringify('\\ud800')", json!("\"\\ud800\"")),
        ("JSON.stringify(undefined) === undefined", json!(true)),
        ("({valueOf: () => 4}) * 2", json!(8)),
        ("`${{toString: () => 'me'}}`", json!("me")),
    ];
    for (source, expected) in table {
        gives(source, expected);
    }
}

#[test]
fn texts() {
    let table = [
        (
            "trigger.text.charCodeAt(1) + ':' + trigger.text.codePointAt(1)",
            json!("55357:128512"),
        ),
        ("trigger.text.slice(1, 3)", json!("😀")),
        ("trigger.text.split('')[1] + trigger.text.split('')[2]", json!("😀")),
        ("'a,b,,c'.split(',', 3)", json!(["a", "b", ""])),
        ("'abc'.split('')", json!(["a", "b", "c"])),
        ("''.split('').length + ''.split(',').length", json!(1)),
        (
            "'abc'.substring(2, 0) + 'abc'.substr(-2, 1) + 'abc'.at(-1)",
            json!("abbc"),
        ),
        ("'7'.padStart(3, '01') + 'x'.padEnd(3)", json!("017x  ")),
        (
            "'aXbX'.replace('X', '[$&$`$$]') + 'aXbX'.replaceAll('X', (m, i) => m + i)",
            json!("a[Xa$]bXaX1bX3"),
        ),
        ("'ab'.replaceAll('', '-')", json!("-a-b-")),
        (
            "'\\u00a0\\ufeff x '.trim() + '|' + ' x '.trimStart() + '|' + ' x '.trimEnd()",
            json!("x|x | x"),
        ),
        ("'abcabc'.lastIndexOf('c', 4) + 'abcabc'.indexOf('c', 3)", json!(7)),
        (
            "'ab'.includes('') && 'abc'.startsWith('b', 1) && 'abc'.endsWith('b', 2)",
            json!(true),
        ),
        ("'ΑΣ'.toLowerCase() + 'ß'.toUpperCase()", json!("αςSS")),
        ("'ab'.repeat(2) + 'a'.concat(1, null)", json!("ababa1null")),
        ("'a' < '\\ud83d' && '\\ud83d\\ude00' < '\\uffff'", json!(true)),
        ("'abc'[1] + 'abc'['length']", json!("b3")),
    ];
    for (source, expected) in table {
        gives(source, expected);
    }
}

#[test]
fn numbers() {
    let table = [
        (
            "(2.345).toFixed(2) + (0.5).toFixed() + (255).toString(16)",
            json!("2.351ff"),
        ),
        (
            "parseInt('12px') + parseInt('0x10') + parseInt('101', 2) + parseFloat('.5e1x')",
            json!(38),
        ),
        ("Number('') + Number(' 12 ') + Number(true) + Number([5])", json!(18)),
        (
            "isNaN('x') && !Number.isNaN('x') && isFinite('1') && Number.isInteger(5.0)",
            json!(true),
        ),
        (
            "Number.isSafeInteger(9007199254740991) && !Number.isSafeInteger(9007199254740992)",
            json!(true),
        ),
        (
            "[Math.round(-0.5), Math.round(2.5), Math.round(0.49999999999999994), Math.sign(-3), Math.trunc(-1.5)]",
            json!([0, 3, 0, -1, -1]),
        ),
        (
            "1 / Math.round(-0.2) === -Infinity && 1 / Math.max(-0, 0) === Infinity",
            json!(true),
        ),
        ("Math.min() === Infinity && Math.hypot === 1", json!("never")),
        (
            "String(1e21) + String(-0) + String([1, [2]]) + String(null)",
            json!("1e+2101,2null"),
        ),
        ("1 ** NaN", json!(null)),
    ];
    for (source, expected) in table {
        if expected == json!("never") {
            assert!(Expression::parse(source).is_err());
        } else {
            gives(source, expected);
        }
    }
}

#[test]
fn thrown_errors_have_a_position() {
    let table = [
        ("missing.x", "ReferenceError: missing is not defined", 0, 7),
        (
            "1 + trigger.nope.x",
            "TypeError: Cannot read properties of undefined (reading 'x')",
            4,
            14,
        ),
        (
            "trigger.none[0]",
            "TypeError: Cannot read properties of null (reading '0')",
            0,
            15,
        ),
        ("trigger.nope()", "TypeError: trigger.nope is not a function", 0, 12),
        ("[...5]", "TypeError: a number is not iterable", 4, 1),
        (
            "[].reduce((a, b) => a)",
            "TypeError: Reduce of empty array with no initial value",
            0,
            22,
        ),
        ("[1].map(3)", "TypeError: a number is not a function", 0, 10),
        (
            "'a' in 'b'",
            "TypeError: Cannot use 'in' operator to search in a string",
            0,
            10,
        ),
        ("'x'.repeat(-1)", "RangeError: Invalid count value: -1", 0, 14),
        (
            "(1).toFixed(101)",
            "RangeError: toFixed() digits argument must be between 0 and 100",
            0,
            16,
        ),
        (
            "Object.keys(null)",
            "TypeError: Cannot convert undefined or null to object",
            0,
            17,
        ),
    ];
    for (source, message, offset, length) in table {
        let error = evaluate(source).expect_err(source);
        assert_eq!(error.kind, EvalErrorKind::Thrown, "{source}");
        assert_eq!(
            (error.message.as_str(), error.offset, error.length),
            (message, offset, length),
            "{source}"
        );
    }
}

#[test]
fn uncovered_sources_are_refused_as_not_covered() {
    let table = [
        ("/a/.test(x)", "regular expressions", 0),
        ("a = 1", "assignments (`=`)", 2),
        ("a += 1", "assignments (`+=`)", 2),
        ("if (a) b", "statements (`if`)", 0),
        ("a; b", "several statements", 3),
        ("a\nb", "several statements", 2),
        ("a, b", "the comma operator", 1),
        ("new Date()", "`new`", 0),
        ("Date.now()", "`Date`", 0),
        ("Math.random()", "`Math.random`", 0),
        ("eval('1')", "`eval`", 0),
        ("this.x", "`this`", 0),
        ("function () {}", "`function`", 0),
        ("class A {}", "classes", 0),
        ("await x", "`await`", 0),
        ("delete a.b", "`delete`", 0),
        ("a++", "`++`", 1),
        ("a`x`", "tagged templates", 1),
        ("a.constructor", "`constructor`", 2),
        ("a['__proto__']", "`__proto__`", 2),
        ("a instanceof b", "`instanceof`", 2),
        ("[].push(1)", "`push`", 0),
        ("'a'.localeCompare('b')", "`localeCompare`", 0),
        ("x => { return 1 }", "function bodies", 5),
        ("(({a}) => a)(b)", "destructured parameters", 2),
        ("((a = 1) => a)()", "default parameters", 4),
        ("[1,,2]", "holes", 3),
        ("10n", "big integers", 0),
        ("{a: 1}", "a block", 0),
        ("async (x) => x", "`async`", 0),
        ("a\n--> b", "HTML-like comments", 2),
        ("({f() {}})", "methods in object literals", 2),
    ];
    for (source, what, offset) in table {
        let error = Expression::parse(source).expect_err(source);
        assert_eq!(error.kind, SyntaxKind::NotCovered, "{source}: {error}");
        assert!(error.message.contains(what), "{source}: {error}");
        assert_eq!(error.offset, offset, "{source}: {error}");
    }
    for source in ["[trigger.name.includes][0]('a')", "String(x => x)", "trigger.tags.sort"] {
        let error = evaluate(source).expect_err(source);
        assert_eq!(error.kind, EvalErrorKind::NotCovered, "{source}");
    }
}

#[test]
fn invalid_sources_have_a_position() {
    let table = [
        ("a &&", "expected an expression after `&&`", 4),
        ("a && )", "expected an expression after `&&`", 5),
        ("", "expected an expression, found the end", 0),
        ("(a", "expected `)`", 2),
        ("a b", "expected an operator or the end, found `b`", 2),
        ("a)", "`)` closes nothing", 1),
        ("'abc", "' is missing", 0),
        ("`abc ${x", "expected `}` to close `${`", 8),
        ("a ?? b || c", "cannot be mixed", 2),
        ("-a ** b", "needs parentheses", 3),
        ("a.1", "expected an operator", 1),
        ("1.x", "a name cannot follow a number", 0),
        ("a ? b", "expected `:`", 5),
        ("[1 2]", "expected `,`", 3),
        ("a ° b", "unexpected `°`", 2),
        (r"'\u12'", "4 hexadecimal digits", 1),
        ("/* x", "not closed", 0),
        ("[{null}]", "the keyword `null`", 2),
    ];
    for (source, what, offset) in table {
        let error = Expression::parse(source).expect_err(source);
        assert_eq!(error.kind, SyntaxKind::Invalid, "{source}: {error}");
        assert!(error.message.contains(what), "{source}: {error}");
        assert_eq!(error.offset, offset, "{source}: {error}");
    }
}

#[test]
fn nesting_is_bounded() {
    for (open, close) in [("(", ")"), ("[", "]"), ("!", ""), ("-", ""), ("x=>", ""), ("f(", ")")] {
        let source = format!("{}1{}", open.repeat(5000), close.repeat(5000));
        let error = Expression::parse(&source).expect_err(open);
        assert_ne!(error.message, "");
    }
    assert!(Expression::parse(&format!("1{}", "+1".repeat(10_000))).is_err());
    assert!(Expression::parse(&format!("a{}", ".b".repeat(10_000))).is_err());
    assert!(Expression::parse(&format!("1{}", " || a.b".repeat(10_000))).is_ok());
    assert!(Expression::parse(&format!("{}1{}", "`${".repeat(5000), "}`".repeat(5000))).is_err());
}

#[test]
fn limits_are_enforced() {
    let limits = Limits::default();
    let kind = |source: &str, limits: &Limits| evaluate_with(source, limits).expect_err(source).kind;
    let many = format!("[{}]", vec!["1"; 499].join(","));
    assert!(evaluate(&format!("{many}.map(x => x)")).is_ok());
    assert_eq!(
        kind(&format!("[1].concat({many}).map(x => x)"), &limits),
        EvalErrorKind::StatementLimit
    );
    let deep = |depth: usize| format!("{}1{}", "(x => ".repeat(depth), ")()".repeat(depth));
    assert!(evaluate(&deep(10)).is_ok());
    assert_eq!(kind(&deep(11), &limits), EvalErrorKind::DepthLimit);
    for source in [
        "'x'.repeat(1e9)",
        "'x'.padStart(1e15)",
        "'x'.repeat(1e6).split('')",
        "'x'.repeat(3e6).toUpperCase()",
        "[...'x'.repeat(1e6)]",
        "'x'.repeat(1e5).replaceAll('x', 'y'.repeat(1000))",
        "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25].reduce(a => [a, a], 1)",
        "JSON.stringify([1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22].reduce(a => [a, a], 'x'.repeat(100)))",
        "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22].reduce(a => [a, a], 'x'.repeat(100)).join()",
    ] {
        assert_eq!(kind(source, &limits), EvalErrorKind::MemoryLimit, "{source}");
    }
    let now = Limits {
        timeout: Duration::ZERO,
        ..limits
    };
    assert_eq!(kind("1", &now), EvalErrorKind::Timeout);
    let none = Limits {
        max_statements: 0,
        ..limits
    };
    assert_eq!(kind("1", &none), EvalErrorKind::StatementLimit);
}

#[test]
fn no_limits_can_overflow_the_stack() {
    let limits = Limits {
        max_statements: u32::MAX,
        max_depth: u32::MAX,
        memory_bytes: 256 * 1024 * 1024,
        timeout: Duration::from_millis(500),
    };
    let long = format!("[{}]", vec!["1"; 5000].join(","));
    for source in [
        "(f => f(f))(f => f(f))".to_owned(),
        "(f => f(f))(f => [[[[[[[[[[[[f(f)]]]]]]]]]]]])".to_owned(),
        format!("{long}.reduce((a, x) => [a], [])"),
        format!("{long}.reduce((a, x) => ({{a}}), [])"),
        format!("{long}.reduce((a, x) => () => a, 0)"),
        "(f => f(f))(f => ({valueOf: () => f(f)}) + 1)".to_owned(),
        "(f => f(f))(f => [1].map(x => f(f)))".to_owned(),
    ] {
        let error = evaluate_with(&source, &limits).expect_err(&source);
        assert_eq!(error.kind, EvalErrorKind::DepthLimit, "{error}");
    }
}

#[test]
fn reads_are_complete() {
    let table = [
        (
            "context.data['get-item'].items[0].Status === 'x'",
            "context.data['get-item'].items[0].Status",
        ),
        ("a.b && a.b > 1 || a?.['c-d']", "a.b a['c-d']"),
        ("a.list.some(x => x.y === b.z)", "a.list* b.z"),
        ("a[b.c].d", "a* b.c"),
        ("(a.x || b).y", "a.x* b*"),
        ("Object.keys(a.b).length > 0", "a.b*"),
        ("a.s.includes(b.t)", "a.s* b.t"),
        ("typeof a === 'object' && Math.max(a.n, 1)", "a a.n"),
        ("`${a.b}` + [...c.d]", "a.b c.d*"),
        ("undefined", ""),
        ("a.items.length > 0", "a.items.length"),
        ("a == 1 && a[i] == 2", "a* i"),
    ];
    for (source, expected) in table {
        let expression = Expression::parse(source).unwrap();
        let paths: Vec<String> = expression
            .reads()
            .iter()
            .map(|path| format!("{path}{}", if path.open { "*" } else { "" }))
            .collect();
        assert_eq!(paths.join(" "), expected, "{source}");
    }
}

/// Random sequences of the tokens of conditions.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "trigger", ".", "tags", "[", "]", "(", ")", "{", "}", "=>", "x", "1", "'a'", "`", "${", "+", "-", "**", "&&",
        "||", "??", "?.", "?", ":", ",", "...", "!", "in", "typeof", " ", "/", "=", "map", "length", ";", "\n", "0x",
        "\\", "'", "é", "😀",
    ]);
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn parsing_never_panics(source in any::<String>()) {
        let _ = Expression::parse(&source);
    }

    #[test]
    fn parsing_and_evaluating_pieces_never_panics(source in pieces()) {
        if let Ok(expression) = Expression::parse(&source) {
            let trigger = json!({ "tags": ["a", 1, null, {"x": 1}] });
            let scope = Data::object([("trigger", Data::Json(&trigger)), ("x", Data::Json(&trigger))]);
            let _ = expression.evaluate(&scope, &Limits::default());
        } else if let Err(error) = Expression::parse(&source) {
            prop_assert!(error.offset + error.length <= source.len());
            prop_assert!(source.is_char_boundary(error.offset), "{error}");
        }
    }

    #[test]
    fn memory_never_exceeds_its_limit(count in 0usize..100_000, limit in 0usize..100_000) {
        let source = format!("'xy'.repeat({count}).split('x').join('zz')");
        let limits = Limits { memory_bytes: limit, ..Limits::default() };
        let expression = Expression::parse(&source).unwrap();
        let scope = Data::object([]);
        let mut machine = super::Machine::new(scope.view(), &limits);
        let result = machine.run(&expression.inner.root);
        prop_assert!(machine.meter.used_memory() <= limit);
        if let Err(error) = result {
            prop_assert_eq!(error.kind, EvalErrorKind::MemoryLimit);
        }
    }
}

#[test]
fn long_chains_parse_in_linear_time() {
    let parse = |operands: usize| {
        let source = vec!["trigger.a === 'x'"; operands].join(" || ");
        let once = || {
            let start = std::time::Instant::now();
            Expression::parse(&source).unwrap();
            start.elapsed()
        };
        // The best of a few measurements is little affected by other load.
        (0..5).map(|_| once()).min().unwrap()
    };
    // With quadratic work, 16 times the operands would cost 256 times as much.
    let (few, many) = (parse(4_000), parse(64_000));
    assert!(many < few * 80, "{few:?} for 4,000 operands, {many:?} for 64,000");
}
