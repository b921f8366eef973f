//! `triggers.webhook_base_path`: where webhooks are received.

use serde::{Deserialize, Serialize};

/// The base path that is part of the API.
const USUAL: &str = "/api/v1/triggers";
/// Paths that belong to other routes.
const TAKEN: [&str; 6] = ["/api", "/wh", "/health", "/metrics", "/docs", "/openapi.json"];

/// A path that no other route is below.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct WebhookBasePath(String);

impl WebhookBasePath {
    /// It begins with a slash and does not end with one.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for WebhookBasePath {
    fn default() -> Self {
        WebhookBasePath(USUAL.to_owned())
    }
}

impl TryFrom<String> for WebhookBasePath {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let path = format!("/{}", text.trim_matches('/'));
        let wrong = |why: &str| Err(format!("`{text}` {why}; write it like /hooks"));
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.~/".contains(c);
        let is_below = |taken: &&str| path == **taken || path.starts_with(&format!("{taken}/"));
        if path == "/" || path.contains("//") || !path.chars().all(is_plain) {
            return wrong("is not a path of letters, digits, `-`, `_`, `.` and `~`");
        }
        if path.split('/').any(|part| matches!(part, "." | "..")) {
            return wrong("must not contain `.` or `..` as a part");
        }
        match path != USUAL && TAKEN.iter().any(is_below) {
            true => wrong("belongs to the API"),
            false => Ok(WebhookBasePath(path)),
        }
    }
}

impl From<WebhookBasePath> for String {
    fn from(path: WebhookBasePath) -> String {
        path.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn webhooks_cannot_hide_other_routes() {
        let read = |text: &str| WebhookBasePath::try_from(text.to_owned());
        for (text, kept) in [
            ("/api/v1/triggers", "/api/v1/triggers"),
            ("/api/v1/triggers/", "/api/v1/triggers"),
            ("hooks", "/hooks"),
            ("/a/b.c", "/a/b.c"),
            ("/apis", "/apis"),
        ] {
            assert_eq!(read(text).unwrap().as_str(), kept);
        }
        for (text, says) in [
            ("", "is not a path"),
            ("/", "is not a path"),
            ("/a b", "is not a path"),
            ("/{x}", "is not a path"),
            ("/a//b", "is not a path"),
            ("/a/../wh", "must not contain"),
            ("/wh", "belongs to the API"),
            ("/api/v1/workflows", "belongs to the API"),
            ("/api/v1", "belongs to the API"),
            ("/docs/", "belongs to the API"),
        ] {
            let refused = read(text).expect_err(text);
            assert!(refused.contains(says), "{text}: {refused}");
        }
    }
}
