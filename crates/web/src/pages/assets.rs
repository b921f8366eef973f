//! The style sheet, the scripts and the icon of the pages. They are part of the program.

use crate::{error::ApiError, extract::Name};
use axum::{
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};

const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Name, media type, content.
const FILES: &[(&str, &str, &str)] = &[
    ("app.css", CSS, include_str!("assets/app.css")),
    ("flows.css", CSS, include_str!("assets/flows.css")),
    ("editor.js", SCRIPT, include_str!("assets/editor.js")),
    ("theme.js", SCRIPT, include_str!("assets/theme.js")),
    ("app.js", SCRIPT, include_str!("assets/app.js")),
    ("act.js", SCRIPT, include_str!("assets/act.js")),
    ("forms.js", SCRIPT, include_str!("assets/forms.js")),
    ("graph.js", SCRIPT, include_str!("assets/graph.js")),
    ("live.js", SCRIPT, include_str!("assets/live.js")),
    ("icon.svg", "image/svg+xml", include_str!("assets/icon.svg")),
];

/// `GET /assets/{file}`
pub(crate) async fn get(headers: HeaderMap, Name(name): Name) -> Result<Response, ApiError> {
    let file = FILES.iter().find(|(file, ..)| *file == name);
    let Some((_, media_type, content)) = file else {
        return Err(ApiError::not_found("NOT_FOUND", "there is no such file".to_owned()));
    };
    let tag = format!("\"{:016x}\"", hash(content.as_bytes()));
    let is_known = headers
        .get(header::IF_NONE_MATCH)
        .is_some_and(|known| known == tag.as_str());
    let head = [
        (header::CONTENT_TYPE, (*media_type).to_owned()),
        (header::CACHE_CONTROL, "no-cache".to_owned()),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (header::ETAG, tag),
    ];
    Ok(match is_known {
        true => (StatusCode::NOT_MODIFIED, head).into_response(),
        false => (head, *content).into_response(),
    })
}

/// FNV-1a.
fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_files_together_are_small() {
        let total: usize = FILES.iter().map(|(_, _, content)| content.len()).sum();
        assert!(total < 80 * 1024, "{total} bytes");
    }

    #[test]
    fn nothing_is_loaded_from_elsewhere() {
        for (name, _, content) in FILES {
            let content = content.replace("http://www.w3.org/2000/svg", "");
            assert!(!content.contains("http://") && !content.contains("https://"), "{name}");
        }
    }
}
