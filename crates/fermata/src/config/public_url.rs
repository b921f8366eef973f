//! `server.public_url`: how others reach this server.

use reqwest::Url;
use serde::{Deserialize, Serialize};

/// An address that paths can be added to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PublicUrl(String);

impl PublicUrl {
    /// Without a slash at its end.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for PublicUrl {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let wrong = |why: &str| format!("`{text}` {why}; write it like https://flows.example.com");
        let url = Url::parse(&text).map_err(|_| wrong("is not a URL"))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(wrong("is neither http nor https"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(wrong("has more than a path, and paths are added to it"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            // Callback URLs are sent to services, so they must hold no secret. Neither must this message.
            return Err("a public URL must not hold a user name or a password".to_owned());
        }
        Ok(PublicUrl(text.trim_end_matches('/').to_owned()))
    }
}

impl From<PublicUrl> for String {
    fn from(url: PublicUrl) -> String {
        url.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_paths_can_be_added_to() {
        let read = |text: &str| PublicUrl::try_from(text.to_owned());
        for (text, kept) in [
            ("https://flows.example.com", "https://flows.example.com"),
            ("http://127.0.0.1:7070/", "http://127.0.0.1:7070"),
            ("https://example.com/fermata/", "https://example.com/fermata"),
        ] {
            assert_eq!(read(text).unwrap().as_str(), kept);
        }
        for (text, says) in [
            ("", "is not a URL"),
            ("flows.example.com", "is not a URL"),
            ("localhost:7070", "neither http nor https"),
            ("https://example.com/?a=1", "more than a path"),
            ("https://me:secret@example.com", "must not hold"),
        ] {
            let refused = read(text).expect_err(text);
            assert!(refused.contains(says) && !refused.contains("secret"), "{refused}");
        }
    }
}
