//! `tags` and `searchable` of a document: what its runs are found by. The fields are the same in all dialects, and the schemas say
//! which values are allowed.

use serde_json::Value;

/// The words of a list of a document without errors.
pub(crate) fn list(document: &Value, field: &str) -> Vec<String> {
    let words = document.get(field).and_then(Value::as_array).into_iter().flatten();
    words.filter_map(Value::as_str).map(str::to_owned).collect()
}
