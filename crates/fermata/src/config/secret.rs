//! The secret that requests to services are signed with.

use fermata_runtime::actions::SigningKey;
use serde::{Deserialize, Serialize};

/// A signing secret, checked. Shown as `***`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SigningSecret(SigningKey);

impl SigningSecret {
    pub fn key(&self) -> SigningKey {
        self.0.clone()
    }
}

impl TryFrom<String> for SigningSecret {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        SigningKey::parse(&text).map(SigningSecret)
    }
}

impl From<SigningSecret> for String {
    fn from(_: SigningSecret) -> String {
        "***".to_owned()
    }
}
