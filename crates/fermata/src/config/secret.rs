//! The secret that requests to services are signed with, and the folder of the secrets for templates.

use fermata_runtime::actions::SigningKey;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

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

/// A folder that exists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "PathBuf", into = "PathBuf")]
pub struct SecretsFolder(PathBuf);

impl SecretsFolder {
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl TryFrom<PathBuf> for SecretsFolder {
    type Error = String;

    fn try_from(path: PathBuf) -> Result<Self, String> {
        match path.is_dir() {
            true => Ok(SecretsFolder(path)),
            false => Err(format!("`{}` is not a folder that can be read", path.display())),
        }
    }
}

impl From<SecretsFolder> for PathBuf {
    fn from(folder: SecretsFolder) -> PathBuf {
        folder.0
    }
}
