//! A name of this server in `server.allowed_hosts`.

use reqwest::Url;
use serde::{Deserialize, Serialize};

/// A host name, without scheme, port and path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostName(String);

impl HostName {
    /// In lower case.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for HostName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let name = text.to_ascii_lowercase();
        // A text that is only a host name is the host of the URL made from it.
        let url = Url::parse(&format!("http://{name}/")).ok();
        match url.as_ref().and_then(Url::host_str) {
            Some(host) if host == name && !name.contains('*') => Ok(HostName(name)),
            _ => Err(format!("`{text}` is not a host name; write it like flows.example.com")),
        }
    }
}

impl From<HostName> for String {
    fn from(name: HostName) -> String {
        name.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_host_names() {
        let read = |text: &str| HostName::try_from(text.to_owned());
        for name in ["flows.example.com", "Flows", "xn--bcher-kva.example"] {
            assert_eq!(read(name).unwrap().as_str(), name.to_ascii_lowercase());
        }
        for wrong in [
            "",
            "*",
            "a b",
            "https://a.example",
            "a.example:80",
            "a.example/",
            "user@a",
            "*.example.com",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
