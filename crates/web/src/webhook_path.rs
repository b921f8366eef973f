//! The path below which webhooks are received: `{triggers.webhook_base_path}/{segment}`, POST only.
//!
//! What must stay true: the segment of a webhook is its credential. Such a path is neither logged nor part of an audit row.

use axum::http::Method;

/// Where triggers are managed. Webhooks are received below it unless another base path is configured.
pub(crate) const TRIGGERS: &str = "/api/v1/triggers/";

/// The base path of webhooks, with a slash at its end.
#[derive(Debug)]
pub(crate) struct WebhookPath(String);

impl WebhookPath {
    /// From the configured base path, with or without slashes around it.
    pub fn new(base: &str) -> WebhookPath {
        match base.trim_matches('/') {
            "" => WebhookPath(TRIGGERS.to_owned()),
            base => WebhookPath(format!("/{base}/")),
        }
    }

    /// The route of webhooks, if it is not the one of the API.
    pub fn own_route(&self) -> Option<String> {
        (self.0 != TRIGGERS).then(|| format!("{}{{trigger}}", self.0))
    }

    /// Whether a request is one to a webhook.
    pub fn is_webhook(&self, method: &Method, path: &str) -> bool {
        let segment = path.strip_prefix(&self.0);
        method == Method::POST
            && segment.is_some_and(|segment| !segment.is_empty() && !segment.contains('/'))
            && path != "/api/v1/triggers/preview"
    }

    /// The URL of a webhook.
    pub fn url(&self, public_url: &str, segment: impl std::fmt::Display) -> String {
        format!("{}{}{segment}", public_url.trim_end_matches('/'), self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_paths_are_normalised() {
        for (base, url, own) in [
            ("/api/v1/triggers", "http://h/api/v1/triggers/x", None),
            ("", "http://h/api/v1/triggers/x", None),
            ("hooks", "http://h/hooks/x", Some("/hooks/{trigger}")),
            ("/a/b/", "http://h/a/b/x", Some("/a/b/{trigger}")),
        ] {
            let path = WebhookPath::new(base);
            assert_eq!(path.url("http://h/", "x"), url);
            assert_eq!(path.own_route().as_deref(), own);
        }
    }

    #[test]
    fn only_posts_to_one_segment_are_webhooks() {
        let path = WebhookPath::new("/api/v1/triggers");
        for (method, of, expected) in [
            (Method::POST, "/api/v1/triggers/7", true),
            (Method::GET, "/api/v1/triggers/7", false),
            (Method::PUT, "/api/v1/triggers/7", false),
            (Method::POST, "/api/v1/triggers", false),
            (Method::POST, "/api/v1/triggers/", false),
            (Method::POST, "/api/v1/triggers/7/fire", false),
            (Method::POST, "/api/v1/triggers/preview", false),
        ] {
            assert_eq!(path.is_webhook(&method, of), expected, "{method} {of}");
        }
    }
}
