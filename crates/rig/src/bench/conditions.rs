//! The cost of a condition: evaluated natively, and in a warm sandbox.

use super::report::{Conditions, rounded};
use anyhow::ensure;
use fermata_expr::{Data, Limits, js::Expression};
use fermata_runtime::sandbox::{Sandbox, SandboxSettings};
use serde_json::{Value, json};
use std::time::Instant;

/// A condition as in the examples of the spec.
const NATIVE: &str = "context.data['get-item'].items[0].Status === 'Approved'";
/// The same condition in a form that only the sandbox can evaluate.
const SANDBOXED: &str = "/^Approved$/.test(context.data['get-item'].items[0].Status)";

const NATIVE_ROUNDS: u32 = 200_000;
const SANDBOX_ROUNDS: u32 = 5_000;

pub(super) async fn measure() -> anyhow::Result<Conditions> {
    let entry = json!({ "items": [{ "Name": "Fermata", "Status": "Approved" }] });
    Ok(Conditions {
        native_ns: native(&entry)?,
        sandbox_us: sandboxed(&json!({ "context": { "data": { "get-item": entry } } })).await?,
    })
}

fn native(entry: &Value) -> anyhow::Result<f64> {
    let expression = Expression::parse(NATIVE)?;
    let limits = Limits::default();
    let data = Data::object([("get-item", Data::Json(entry))]);
    let scope = Data::object([("context", Data::object([("data", data)]))]);
    let begin = Instant::now();
    for _ in 0..NATIVE_ROUNDS {
        ensure!(expression.test(&scope, &limits)?, "the condition is true");
    }
    Ok(rounded(begin.elapsed().as_nanos() as f64 / f64::from(NATIVE_ROUNDS)))
}

async fn sandboxed(data: &Value) -> anyhow::Result<f64> {
    let sandbox = Sandbox::new(SandboxSettings::default());
    let limits = Limits::default();
    for _ in 0..100 {
        ensure!(sandbox.test(SANDBOXED, data, &limits).await.0?, "the condition is true");
    }
    let begin = Instant::now();
    for _ in 0..SANDBOX_ROUNDS {
        sandbox.test(SANDBOXED, data, &limits).await.0?;
    }
    Ok(rounded(begin.elapsed().as_micros() as f64 / f64::from(SANDBOX_ROUNDS)))
}
