//! The database URL: `sqlite:PATH`, `postgres://…` or `memory:`.
//!
//! What must stay true: the password of an address is used to connect and shown nowhere. `Debug`, `Display` and
//! [`Database::place`] leave it out.

use fermata_store::{
    Store, StoreError,
    memory::MemoryStore,
    postgres::{PostgresSettings, PostgresStore},
    schema::Migrate,
    sqlite::SqliteStore,
};
use serde::{Deserialize, Serialize};
use std::{fmt, path::PathBuf, str::FromStr, sync::Arc};

const USE: &str = "use `sqlite:PATH`, `postgres://user:password@host/database` or `memory:`";

/// A database, as its URL names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Database {
    /// A file.
    Sqlite(PathBuf),
    /// A server that any number of processes can share.
    Postgres(PostgresUrl),
    /// Lost when the process ends.
    Memory,
}

/// A valid address of a PostgreSQL database.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresUrl {
    url: String,
    place: String,
}

impl PostgresUrl {
    /// All of it, with the password.
    pub fn as_str(&self) -> &str {
        &self.url
    }
}

impl fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.place)
    }
}

impl Database {
    /// Opens it, or creates what is missing of it. The settings matter to PostgreSQL only.
    pub async fn open(&self, migrate: Migrate, settings: PostgresSettings) -> Result<Arc<dyn Store>, StoreError> {
        Ok(match self {
            Database::Sqlite(path) => Arc::new(SqliteStore::open_with(path, migrate)?),
            Database::Postgres(address) => {
                let connected = PostgresStore::connect(address.as_str(), settings).await;
                Arc::new(connected.map_err(|error| match error {
                    StoreError::Unavailable(what) => StoreError::Unavailable(format!(
                        "{what}; check that the server runs, and that `--database` or `database.url` names it"
                    )),
                    other => other,
                })?)
            }
            Database::Memory => Arc::new(MemoryStore::new()),
        })
    }

    /// Whether several processes may have it open.
    pub fn is_shared(&self) -> bool {
        matches!(self, Database::Postgres(_))
    }

    /// Deletes the database, if it is not in use. Returns whether it existed.
    pub fn delete(&self) -> Result<bool, StoreError> {
        match self {
            Database::Sqlite(path) => SqliteStore::delete(path),
            Database::Postgres(address) => Err(StoreError::Unopenable {
                path: address.place.clone(),
                what: "this command does not delete PostgreSQL databases; drop it there (`dropdb`), or name a file"
                    .to_owned(),
            }),
            Database::Memory => Ok(false),
        }
    }

    /// Where the data is, in words.
    pub fn place(&self) -> String {
        match self {
            Database::Sqlite(path) => path.display().to_string(),
            Database::Postgres(address) => address.place.clone(),
            Database::Memory => "memory (lost when this process ends)".to_owned(),
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
            ("postgres" | "postgresql", _) => match PostgresStore::place_of(url) {
                Ok(place) => Ok(Database::Postgres(PostgresUrl {
                    url: url.to_owned(),
                    place,
                })),
                Err(error) => Err(error.to_string()),
            },
            ("", "") => Err(format!("a database is missing; {USE}")),
            ("", path) => Err(format!("`{path}` is not a database URL; did you mean `sqlite:{path}`?")),
            // The rest of the URL may hold a password, so it is not repeated.
            (scheme, _) => Err(format!("`{scheme}:` is not a database this program knows; {USE}")),
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
            Database::Postgres(address) => f.write_str(&address.place),
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
            ("postgres://me:secret@host:port/db", "port"),
            ("postgres:me:secret@host", "postgres://user:password@host"),
            ("postgresql://me:secret@host/db?colour=blue", "colour"),
            ("fermata.db", "did you mean `sqlite:fermata.db`?"),
            ("mysql://me:secret@host", "use `sqlite:PATH`"),
        ] {
            let refused = url.parse::<Database>().expect_err(url);
            assert!(refused.contains(says) && !refused.contains("secret"), "{refused}");
        }
    }

    #[test]
    fn passwords_are_not_shown() {
        let url = "postgres://me:secret@one:5433,two/db?connect_timeout=3";
        let database: Database = url.parse().unwrap();
        assert_eq!(database.place(), "postgres://one:5433,two:5432/db");
        let shown = format!(
            "{database:?} {database} {} {}",
            database.place(),
            String::from(database.clone())
        );
        assert!(!shown.contains("secret"), "{shown}");
        let deleted = database.delete().unwrap_err().to_string();
        assert!(deleted.contains("dropdb") && !deleted.contains("secret"), "{deleted}");
        let Database::Postgres(address) = database else {
            panic!("{url}")
        };
        assert_eq!(address.as_str(), url);
    }
}
