//! `GET /suggest?text=status:fa`: completions for the query box. `text` is what stands before the cursor.

use crate::{door::As, error::ApiError, extract::Query};
use axum::Json;
use fermata_runtime::query::MAX_QUERY;
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SuggestQuery {
    text: Option<String>,
}

#[derive(Serialize)]
pub(crate) struct SuggestionView {
    /// What replaces the last word.
    text: String,
    about: String,
}

pub(crate) async fn get(
    As(session): As,
    Query(query): Query<SuggestQuery>,
) -> Result<Json<Vec<SuggestionView>>, ApiError> {
    let text = query.text.unwrap_or_default();
    if text.len() > MAX_QUERY || text.chars().any(char::is_control) {
        return Ok(Json(Vec::new()));
    }
    let found = session.reads().suggest(&text).await?;
    let view = |found: fermata_runtime::query::Suggestion| SuggestionView {
        text: found.text,
        about: found.about,
    };
    Ok(Json(found.into_iter().map(view).collect()))
}
