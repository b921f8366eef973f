//! JSONLogic and CEL in the sandbox, with its real processes: one child serves all languages, and what hostile
//! expressions do to it and to others.

use crate::sandbox::{children, quick, sandbox, works};
use fermata_expr::{Limits, jsonlogic};
use fermata_runtime::sandbox::{Sandbox, SandboxError, Source};
use serde_json::{Value, json};
use std::time::Duration;

async fn test(sandbox: &Sandbox, source: Source<'_>, data: &Value) -> Result<bool, SandboxError> {
    sandbox.test(source, data, &Limits::default()).await.0
}

#[tokio::test]
async fn one_child_serves_all_languages() {
    let sandbox = sandbox("languages", 1);
    let data = json!({ "score": 0.82, "items": [1, 2, 3], "name": "Ada" });
    for _ in 0..3 {
        works(&sandbox).await;
        let sum = r#"{"reduce":[{"var":"items"},{"+":[{"var":"current"},{"var":"accumulator"}]},0]}"#;
        let value = sandbox
            .evaluate(Source::jsonlogic(sum), &data, &Limits::default())
            .await;
        assert_eq!(value, Ok(Some(json!(6))));
        assert_eq!(
            test(
                &sandbox,
                Source::jsonlogic(r#"{"filter":[{"var":"items"},false]}"#),
                &data
            )
            .await,
            Ok(false)
        );
        assert_eq!(
            test(&sandbox, Source::cel("score > 0.8 && name.startsWith('A')"), &data).await,
            Ok(true)
        );
        assert_eq!(
            test(&sandbox, Source::cel("items.exists(i, i > 3)"), &data).await,
            Ok(false)
        );
    }
    let child = children(std::process::id(), "languages");
    assert_eq!(child.len(), 1, "one child did all of it");
}

#[tokio::test]
async fn verdicts_are_booleans_or_errors() {
    let sandbox = sandbox("verdicts", 1);
    let data = json!({ "n": 1 });
    for (source, message) in [
        ("n", "the result is of type int; a condition must be true or false"),
        ("n + 1u == 2u", "no matching overload"),
        ("nope", "undeclared reference to `nope`"),
    ] {
        let error = test(&sandbox, Source::cel(source), &data)
            .await
            .expect_err(source)
            .to_string();
        assert!(error.contains(message), "{source}: {error}");
    }
    let nan = test(&sandbox, Source::jsonlogic(r#"{"+":["A",1]}"#), &data).await;
    assert!(nan.is_err_and(|error| error.to_string().contains("NaN")));
}

/// Errors are stored and shown. They name types, and quote nothing of the data.
#[tokio::test]
async fn errors_of_cel_quote_no_values() {
    let sandbox = sandbox("quotes", 1);
    let data = json!({ "token": "s3cret", "n": 7313, "l": [1], "m": {} });
    for (source, message) in [
        ("token < n", ""),
        ("token + n == 1", "no matching overload"),
        ("l[token] == 1", ""),
        ("l[n] == 1", "out of bounds"),
        ("m[token] == 1", "no such key"),
        ("m.nothing == 1", "no such key: `nothing`"),
        ("n / 0 == 1", "division by zero"),
        ("n % 0 == 1", ""),
        ("9223372036854775807 + n > 0", "overflow"),
        ("int(token) == 1", "`int` failed"),
        ("'a'.matches('(' + token)", "`matches` failed"),
        ("duration(token) > duration('1s')", "`duration` failed"),
        ("timestamp(token) == timestamp(token)", "`timestamp` failed"),
        ("'%d'.format([token]) == ''", ""),
        ("base64.decode('*' + token) == b''", ""),
        ("{token: 1, token: 2} == {}", ""),
        ("token.startsWith(n)", ""),
        ("token.contains(n)", ""),
        ("token.charAt(n) == ''", ""),
        ("'abc'.substring(n) == ''", "`substring` failed"),
        ("token.split(n) == []", ""),
        ("n.join(token) == ''", ""),
        ("size(n) == 1", ""),
        ("math.bitShiftLeft(1, -n) == 1", ""),
        ("math.greatest(token, n) == 1", ""),
        ("l.map(x, x + token) == []", ""),
        ("m[?token].value() == 1", ""),
        ("-token == 1", ""),
        ("token", "of type string"),
    ] {
        let error = test(&sandbox, Source::cel(source), &data).await.expect_err(source);
        let error = error.to_string();
        assert!(error.contains(message), "{source}: {error}");
        assert!(
            !error.contains("s3cret") && !error.contains("7313"),
            "{source}: {error}"
        );
    }
}

#[tokio::test]
async fn syntax_of_cel_is_checked_without_running_it() {
    let sandbox = sandbox("checks", 1);
    assert_eq!(sandbox.check(Source::cel("nope.all(x, 1 / 0 == x)")).await, Ok(()));
    let Err(SandboxError::Syntax(error)) = sandbox.check(Source::cel("'é' == a &&\n  b )")).await else {
        panic!("accepted");
    };
    assert!(error.message.contains("closes nothing"), "{error}");
    let Err(SandboxError::Syntax(error)) = sandbox.check(Source::cel("'é' == a &&\n  == b")).await else {
        panic!("accepted");
    };
    assert_eq!(error.offset, 15, "{error}");
    works(&sandbox).await;
}

/// No process gets to see them.
#[tokio::test]
async fn cel_that_would_overflow_a_stack_is_not_sent() {
    let sandbox = sandbox("unsent", 1);
    for source in [
        "(".repeat(4096),
        format!("{}1{}", "(".repeat(500), ")".repeat(500)),
        "1+".repeat(2048) + "1",
        "1+".repeat(500) + "1",
        "!".repeat(1000) + "true",
        "a?b:".repeat(250) + "c",
        format!("{}l", "l.all(x,".repeat(100)) + &")".repeat(100),
        "l.all(a,l.all(b,l.all(c,l.all(d,true))))".to_owned(),
    ] {
        let answer = sandbox.evaluate(Source::cel(&source), &json!({}), &quick()).await;
        assert!(matches!(answer, Err(SandboxError::Syntax(_))), "{source}: {answer:?}");
    }
    assert!(
        children(std::process::id(), "unsent").is_empty(),
        "no process was started"
    );
}

/// The longest and deepest sources that are sent do not crash a child.
#[tokio::test]
async fn cel_within_the_limits_does_not_crash_a_child() {
    let sandbox = sandbox("deepest", 1);
    works(&sandbox).await;
    let child = children(std::process::id(), "deepest");
    for source in [
        format!("{}1{}", "(".repeat(40), ")".repeat(40)),
        format!("{}1{}", "[".repeat(40), "]".repeat(40)),
        format!("{}1{}", "{1:".repeat(40), "}".repeat(40)),
        format!("{}1{}", "-(".repeat(40), ")".repeat(40)),
        format!("{}1{}", "size([".repeat(20), "])".repeat(20)),
        "1+".repeat(128) + "1",
        "1<".repeat(128) + "1",
        "true&&".repeat(128) + "true",
        "!".repeat(128) + "true",
        "-".repeat(127) + "1",
        "true?1:".repeat(128) + "1",
        "l".to_owned() + &"[0]".repeat(128),
        "a".to_owned() + &".b".repeat(128),
        "1 in ".repeat(128) + "[1]",
        format!("[{}1]", "1,".repeat(500)),
        "'a'".to_owned() + &".trim()".repeat(60),
        "l".to_owned() + &".map(x,x)".repeat(60),
        "l.map(x,l.map(y,l.map(z,[x,y,z])))".to_owned(),
        "\u{0}\u{1}\\ @ # $ `".to_owned(),
        "x".repeat(1024),
        "🦀".repeat(256),
    ] {
        let data = json!({ "l": [1, 2] });
        let answer = sandbox.evaluate(Source::cel(&source), &data, &Limits::default()).await;
        let alive = matches!(answer, Ok(_) | Err(SandboxError::Syntax(_) | SandboxError::Failed(_)));
        assert!(alive, "{source}: {answer:?}");
    }
    assert_eq!(
        children(std::process::id(), "deepest"),
        child,
        "the same child is still there"
    );
}

#[tokio::test]
async fn hostile_cel_and_jsonlogic_do_not_affect_others() {
    let sandbox = sandbox("greedy", 3);
    let list: Vec<u32> = (0..2000).collect();
    let data = json!({ "l": list, "s": "x".repeat(1000) });
    let cel = |source: &str| (true, source.to_owned());
    let rule = |rule: &Value| (false, rule.to_string());
    // Each one reads the same list again for every element: there is no way to the outer data in JSONLogic.
    let nested = json!({ "map": [{ "var": "l" }, { "map": [{ "merge": vec![json!({ "var": "" }); 4000] },
        { "map": [{ "merge": vec![json!(1); 3000] }, { "cat": ["x", { "var": "" }] }] }] }] });
    let doubling = json!({ "reduce": [{ "var": "l" },
        { "cat": [{ "var": "accumulator" }, { "var": "accumulator" }] }, { "var": "s" }] });
    let growing = json!({ "reduce": [{ "var": "l" },
        { "merge": [{ "var": "accumulator" }, { "var": "accumulator" }] }, { "var": "l" }] });
    let late = [
        cel("l.all(a, l.all(b, l.all(c, a + b + c >= 0)))"),
        cel("l.map(a, l.map(b, l.exists(c, c < 0))).size() > 0"),
        cel("l.filter(a, l.exists_one(b, l.filter(c, c == a).size() == b)) == []"),
    ];
    let full = [
        cel(&("[s]".to_owned() + &".map(x, x + x)".repeat(40))),
        cel(&("[l]".to_owned() + &".map(x, x + x)".repeat(40))),
        rule(&doubling),
        rule(&growing),
    ];
    for (is_cel, source) in late.iter().chain(&full).chain([&rule(&nested)]) {
        let source_of = |text| {
            if *is_cel {
                Source::cel(text)
            } else {
                Source::jsonlogic(text)
            }
        };
        let limits = quick();
        let hostile = sandbox.evaluate(source_of(source), &data, &limits);
        // Others are served meanwhile and afterwards.
        let (answer, ()) = tokio::join!(hostile, async {
            for _ in 0..5 {
                works(&sandbox).await;
            }
        });
        let shown = &source[..source.len().min(100)];
        let error = answer.map(|_| ()).expect_err(shown);
        match late.iter().any(|(_, late)| late == source) {
            true => assert_eq!(error, SandboxError::Killed(Duration::from_millis(300)), "{shown}"),
            false => assert!(
                matches!(
                    error,
                    SandboxError::Killed(_) | SandboxError::Crashed(_) | SandboxError::Failed(_)
                ),
                "{shown}: {error:?}"
            ),
        }
        works(&sandbox).await;
    }
}

#[tokio::test]
async fn long_results_are_refused() {
    let sandbox = sandbox("outputs", 1);
    let data = json!({ "s": "x".repeat(1000), "l": vec![0; 10_000] });
    let limits = Limits {
        memory_bytes: 1024 * 1024,
        ..Limits::default()
    };
    let rule = json!({ "map": [{ "var": "l" }, "y".repeat(1000)] });
    assert!(jsonlogic::Rule::parse(&rule, jsonlogic::Operators::All).is_ok());
    for source in [Source::cel("l.map(i, s)"), Source::jsonlogic(&rule.to_string())] {
        let Err(SandboxError::Failed(error)) = sandbox.evaluate(source, &data, &limits).await else {
            panic!("{source:?}: a value of 10 MB");
        };
        assert!(error.message.contains("longer than 1048576 bytes"), "{error}");
    }
    works(&sandbox).await;
}
