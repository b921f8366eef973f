//! The native evaluator against QuickJS: the same value, or both throw, on expressions and data that were made up.
//!
//! The data is sent as [`scan_reads`] projects it, so the same cases show that an expression cannot tell its
//! projection from the whole. `FERMATA_DIFFERENTIAL=200000` asks for more cases, `FERMATA_SEED` for others.

mod generate;

use crate::sandbox::sandbox;
use fermata_expr::{
    Data, EvalErrorKind, Limits,
    js::{Expression, scan_reads},
};
use fermata_runtime::sandbox::SandboxError;
use generate::Maker;
use serde_json::Value;

const ROOTS: [&str; 4] = ["trigger", "context", "vars", "spec"];

/// What came of an evaluation; errors are alike.
#[derive(Debug, PartialEq)]
enum Outcome {
    Value(Option<Value>),
    Threw,
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// The native answer; `None` if it does not count.
fn native(expression: &Expression, scope: &Data<'_>, limits: &Limits) -> Option<Outcome> {
    match expression.evaluate(scope, limits) {
        Ok(value) => Some(Outcome::Value(value)),
        Err(error) if error.kind == EvalErrorKind::Thrown => Some(Outcome::Threw),
        Err(_) => None,
    }
}

#[tokio::test]
async fn the_native_evaluator_agrees_with_quickjs() {
    let cases = number("FERMATA_DIFFERENTIAL", 3000);
    let seed = number("FERMATA_SEED", 1);
    let sandbox = sandbox("differential", 1);
    let limits = Limits {
        max_statements: 100_000,
        max_depth: 100,
        ..Limits::default()
    };
    let (mut counted, mut threw, mut wrong) = (0, 0, Vec::new());
    for case in 0..cases {
        let mut maker = Maker::new(seed.wrapping_mul(1_000_003).wrapping_add(case));
        let data = maker.data();
        let source = maker.expression();
        let Ok(expression) = Expression::parse(&source) else {
            continue;
        };
        let scope = Data::Json(&data);
        let Some(native) = native(&expression, &scope, &limits) else {
            continue;
        };
        let guessed = scope.project(&scan_reads(&source, &ROOTS));
        let quickjs = match sandbox.evaluate(&source, &guessed, &limits).await {
            Ok(value) => Outcome::Value(value),
            Err(SandboxError::Failed(error)) if error.kind == EvalErrorKind::Thrown => Outcome::Threw,
            Err(other) => panic!("{source}: {other}"),
        };
        counted += 1;
        threw += u64::from(native == Outcome::Threw);
        if !alike(&native, &quickjs) {
            let known = scope.project(expression.reads());
            let data = serde_json::to_string(&known).unwrap();
            wrong.push(format!(
                "{source}\n  native  {native:?}\n  quickjs {quickjs:?}\n  data    {data}"
            ));
        }
    }
    println!("{counted} of {cases} cases count, {threw} of them throw");
    let shown = wrong.iter().take(20).cloned().collect::<Vec<_>>().join("\n\n");
    assert!(wrong.is_empty(), "{} differ:\n\n{shown}", wrong.len());
    assert!(counted * 2 > cases, "most cases should count, not {counted} of {cases}");
    assert!(threw * 2 < counted, "most cases should have a value");
}

/// Numbers are compared as numbers: `1` and `1.0` are one value in JavaScript.
fn alike(one: &Outcome, other: &Outcome) -> bool {
    match (one, other) {
        (Outcome::Value(Some(one)), Outcome::Value(Some(other))) => same(one, other),
        _ => one == other,
    }
}

fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            // The order of members shows in `Object.keys` and `JSON.stringify`, not here: a part of the input is handed
            // out as it came.
            let found = |(key, one): (&String, &Value)| other.get(key).is_some_and(|other| same(one, other));
            one.len() == other.len() && one.iter().all(found)
        }
        _ => one == other,
    }
}
