//! Compares the native evaluator with QuickJS on generated expressions and data: both return the same value, or both
//! throw.
//!
//! QuickJS gets the data as [`scan_reads`] projects it, so the same cases show that the projection has everything that
//! an expression reads. `FERMATA_DIFFERENTIAL=200000` sets the number of cases, `FERMATA_SEED` selects other cases.

mod generate;

use crate::sandbox::sandbox;
use fermata_expr::{
    Data, EvalErrorKind, Limits,
    js::{Expression, scan_reads},
};
use fermata_runtime::sandbox::SandboxError;
use generate::Generator;
use serde_json::Value;

const ROOTS: [&str; 4] = ["trigger", "context", "vars", "spec"];

/// The result of an evaluation. All thrown errors are equal.
#[derive(Debug, PartialEq)]
enum Outcome {
    Value(Option<Value>),
    Threw,
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// The native result; `None` if the case is not compared, for example because it exceeds a limit.
fn native(expression: &Expression, scope: &Data<'_>, limits: &Limits) -> Option<Outcome> {
    match expression.evaluate(scope, limits) {
        Ok(value) => Some(Outcome::Value(value)),
        Err(error) if error.kind == EvalErrorKind::Thrown => Some(Outcome::Threw),
        Err(_) => None,
    }
}

#[tokio::test]
async fn native_evaluator_agrees_with_quickjs() {
    let cases = number("FERMATA_DIFFERENTIAL", 3000);
    let seed = number("FERMATA_SEED", 1);
    let sandbox = sandbox("differential", 1);
    let limits = Limits {
        max_statements: 100_000,
        max_depth: 100,
        ..Limits::default()
    };
    let (mut compared, mut threw, mut different) = (0, 0, Vec::new());
    for case in 0..cases {
        let mut generator = Generator::new(seed.wrapping_mul(1_000_003).wrapping_add(case));
        let data = generator.data();
        let source = generator.expression();
        let Ok(expression) = Expression::parse(&source) else {
            continue;
        };
        let scope = Data::Json(&data);
        let Some(native) = native(&expression, &scope, &limits) else {
            continue;
        };
        let projected = scope.project(&scan_reads(&source, &ROOTS));
        let quickjs = match sandbox.evaluate(&source, &projected, &limits).await {
            Ok(value) => Outcome::Value(value),
            Err(SandboxError::Failed(error)) if error.kind == EvalErrorKind::Thrown => Outcome::Threw,
            Err(other) => panic!("{source}: {other}"),
        };
        compared += 1;
        threw += u64::from(native == Outcome::Threw);
        if !same_outcome(&native, &quickjs) {
            let known = scope.project(expression.reads());
            let data = serde_json::to_string(&known).unwrap();
            different.push(format!(
                "{source}\n  native  {native:?}\n  quickjs {quickjs:?}\n  data    {data}"
            ));
        }
    }
    println!("{compared} of {cases} cases compared, {threw} of them throw");
    let shown = different.iter().take(20).cloned().collect::<Vec<_>>().join("\n\n");
    assert!(different.is_empty(), "{} differ:\n\n{shown}", different.len());
    assert!(
        compared * 2 > cases,
        "most cases should be compared, not {compared} of {cases}"
    );
    assert!(threw * 2 < compared, "most cases should have a value");
}

/// Numbers are compared as numbers: `1` and `1.0` are one value in JavaScript.
fn same_outcome(one: &Outcome, other: &Outcome) -> bool {
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
            // The order of members is not compared here: a part of the input is returned in its own order.
            // `Object.keys` and `JSON.stringify` show the order.
            let found = |(key, one): (&String, &Value)| other.get(key).is_some_and(|other| same(one, other));
            one.len() == other.len() && one.iter().all(found)
        }
        _ => one == other,
    }
}
