//! The token of the commands that talk to a server, and the profile file that may hold it.
//!
//! What must stay true: a token is sent only to the server that it is for. A token in the profile is for the server in the
//! profile. It is not shown in help, errors or debug output.

use crate::cli::Usage;
use serde::Deserialize;
use std::{
    fmt, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    str::FromStr,
};

/// An API key or a JWT.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Token(String);

impl Token {
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl FromStr for Token {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Token, Self::Err> {
        match text.trim() {
            "" => Err("a token is not empty"),
            text => Ok(Token(text.to_owned())),
        }
    }
}

/// A server and the token for it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    pub server: String,
    pub token: Option<Token>,
}

impl Profile {
    /// The profile of this user, if there is one: the file that FERMATA_PROFILE names, else `fermata/profile.toml` in the
    /// folder for configuration.
    pub fn here() -> Result<Option<Profile>, Usage> {
        let set = |name: &str| {
            std::env::var_os(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        if let Some(path) = set("FERMATA_PROFILE") {
            return Profile::read(&path)?
                .ok_or_else(|| Usage(format!("FERMATA_PROFILE: there is no file {}", path.display())))
                .map(Some);
        }
        let folder = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")));
        match folder {
            Some(folder) => Profile::read(&folder.join("fermata").join("profile.toml")),
            None => Ok(None),
        }
    }

    fn read(path: &Path) -> Result<Option<Profile>, Usage> {
        let wrong = |what: String| Usage(format!("the profile {}: {what}", path.display()));
        let mode = match std::fs::metadata(path) {
            Ok(about) => about.mode(),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            Err(error) => return Err(wrong(error.to_string())),
        };
        if mode & 0o077 != 0 {
            let what = format!(
                "its mode is {:o}, so other users can use the token in it. Make it yours alone with `chmod 600`, and replace the token",
                mode & 0o777
            );
            return Err(wrong(what));
        }
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        // The message of the parser may quote the line with the token.
        let profile = toml::from_str(&text)
            .map_err(|_| wrong("it must have the texts `server` and `token`, and nothing else".to_owned()))?;
        Ok(Some(profile))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn profiles_are_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("profile.toml");
        assert!(Profile::read(&path).unwrap().is_none());
        let write = |text: &str, mode: u32| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            Profile::read(&path)
        };
        let text = "server = \"https://flows.example.com\"\ntoken = \"hush\"\n";
        let profile = write(text, 0o600).unwrap().unwrap();
        assert_eq!(
            (profile.server.as_str(), profile.token.as_ref().unwrap().reveal()),
            ("https://flows.example.com", "hush")
        );
        assert!(!format!("{profile:?}").contains("hush"));
        for mode in [0o640, 0o604, 0o660, 0o644, 0o610] {
            let refused = write(text, mode).unwrap_err().to_string();
            assert!(
                refused.contains("chmod 600") && refused.contains(&format!("{mode:o}")),
                "{refused}"
            );
        }
        for wrong in [
            "token = \"hush\"",
            "server = 1\ntoken = \"hush\"",
            "server = \"a\"\ntokn = \"hush\"",
            "hush",
        ] {
            let refused = write(wrong, 0o600).unwrap_err().to_string();
            assert!(!refused.contains("hush"), "{refused}");
        }
    }
}
