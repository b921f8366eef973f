//! `sqlite:PATH` or `memory:`: where runs live.

use fermata_store::{Store, StoreError, memory::MemoryStore, sqlite::SqliteStore};
use serde::{Deserialize, Serialize};
use std::{fmt, path::PathBuf, str::FromStr, sync::Arc};

/// A database, as its URL names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Database {
    /// A file.
    Sqlite(PathBuf),
    /// Gone when the process ends.
    Memory,
}

impl Database {
    /// Opens it, or creates it.
    pub fn open(&self) -> Result<Arc<dyn Store>, StoreError> {
        Ok(match self {
            Database::Sqlite(path) => Arc::new(SqliteStore::open(path)?),
            Database::Memory => Arc::new(MemoryStore::new()),
        })
    }

    /// Deletes it, if nobody uses it; whether there was one.
    pub fn delete(&self) -> Result<bool, StoreError> {
        match self {
            Database::Sqlite(path) => SqliteStore::delete(path),
            Database::Memory => Ok(false),
        }
    }

    /// Where the data is, in words.
    pub fn place(&self) -> String {
        match self {
            Database::Sqlite(path) => path.display().to_string(),
            Database::Memory => "memory (gone when this process ends)".to_owned(),
        }
    }
}

impl FromStr for Database {
    type Err = String;

    fn from_str(url: &str) -> Result<Self, String> {
        let (scheme, rest) = url.split_once(':').unwrap_or(("", url));
        match (scheme, rest) {
            ("memory", "" | "//") | ("sqlite", ":memory:") => Ok(Database::Memory),
            ("sqlite", rest) => match rest.strip_prefix("//").unwrap_or(rest) {
                "" => Err(format!(
                    "`{url}` names no file; write it like `sqlite:/var/lib/fermata/fermata.db`"
                )),
                path => Ok(Database::Sqlite(path.into())),
            },
            // The rest of the URL may hold a password, so it is not repeated.
            ("postgres" | "postgresql", _) => Err(format!(
                "`{scheme}:` databases are not supported by this version; use `sqlite:PATH` or `memory:`"
            )),
            ("", "") => Err("a database is missing; use `sqlite:PATH` or `memory:`".to_owned()),
            ("", path) => Err(format!("`{path}` is not a database URL; did you mean `sqlite:{path}`?")),
            (scheme, _) => Err(format!(
                "`{scheme}:` is not a database this program knows; use `sqlite:PATH` or `memory:`"
            )),
        }
    }
}

impl TryFrom<String> for Database {
    type Error = String;

    fn try_from(url: String) -> Result<Self, String> {
        url.parse()
    }
}

impl From<Database> for String {
    fn from(database: Database) -> String {
        database.to_string()
    }
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Database::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Database::Memory => f.write_str("memory:"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let sqlite = |path: &str| Ok(Database::Sqlite(path.into()));
        assert_eq!("sqlite:fermata.db".parse(), sqlite("fermata.db"));
        assert_eq!("sqlite:/a/b.db".parse(), sqlite("/a/b.db"));
        assert_eq!("sqlite:///a/b.db".parse(), sqlite("/a/b.db"));
        assert_eq!("memory:".parse(), Ok(Database::Memory));
        for (url, says) in [
            ("sqlite:", "names no file"),
            ("postgres://me:secret@host/db", "not supported by this version"),
            ("fermata.db", "did you mean `sqlite:fermata.db`?"),
            ("mysql://x", "use `sqlite:PATH` or `memory:`"),
        ] {
            let refused = url.parse::<Database>().expect_err(url);
            assert!(refused.contains(says) && !refused.contains("secret"), "{refused}");
        }
    }
}
