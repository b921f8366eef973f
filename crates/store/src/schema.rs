//! Migrations of a schema: which were applied, and how to undo them.
//!
//! Rules for migrations, so that one can be applied while the previous release runs, and that release can be used
//! again:
//! * It only adds: tables, columns that are nullable or have a constant default, indexes, functions. Rows that the
//!   previous release writes without knowing of it must still be correct.
//! * It names the oldest program that may use the database afterwards: the previous release, unless that would do harm.
//!   Removing something takes two releases: the first no longer uses it, the second drops it and names the first.
//! * It is quick, because it locks what it changes. In PostgreSQL `CREATE INDEX` blocks all writes to the table. The
//!   first migration that needs an index on a large table must use `CONCURRENTLY`, which has to run outside a
//!   transaction.
//! * It is never edited after a release, and its number is the next one.
//! * It can be undone: it has SQL for that, and a query for all data that would be lost then; or it says why not.

use crate::{Result, StoreError, program};
use serde::{Deserialize, Serialize};

/// What happens to a database whose schema is older than this program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Migrate {
    /// It is migrated when it is opened.
    #[default]
    Auto,
    /// It is refused.
    Manual,
}

/// A migration.
#[derive(Debug)]
pub(crate) struct Migration {
    pub(crate) number: u32,
    pub(crate) name: &'static str,
    pub(crate) up: &'static str,
    pub(crate) back: Back,
    /// The oldest program that may use the database afterwards.
    pub(crate) oldest_program: &'static str,
}

/// How a migration is undone.
#[derive(Debug)]
pub(crate) enum Back {
    /// SQL that undoes it, if none of these data exist.
    Down { sql: &'static str, unless: &'static [Loss] },
    /// It cannot be undone, for this reason.
    None(&'static str),
}

/// Data that would be lost by undoing a migration.
#[derive(Debug)]
pub(crate) struct Loss {
    pub(crate) what: &'static str,
    /// SQL that counts them.
    pub(crate) count: &'static str,
}

/// A program, as the schema of a database sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Program<'a> {
    pub(crate) version: &'a str,
    pub(crate) migrations: &'a [Migration],
}

impl<'a> Program<'a> {
    /// This program.
    pub(crate) const fn this(migrations: &'a [Migration]) -> Program<'a> {
        Program {
            version: env!("CARGO_PKG_VERSION"),
            migrations,
        }
    }

    /// The migrations that a database with this newest migration lacks.
    pub(crate) fn missing(&self, number: u32) -> impl Iterator<Item = &'a Migration> {
        self.migrations
            .iter()
            .filter(move |migration| migration.number > number)
    }

    /// Refuses a database that needs a newer program.
    pub(crate) fn check(&self, needs: &str, place: &str) -> Result<()> {
        program::check(needs, self.version, place)
    }

    /// Refuses a database with an older schema, if automatic migration is off.
    pub(crate) fn check_up_to_date(&self, number: u32, migrate: Migrate, place: &str) -> Result<()> {
        let newest = self.migrations.last().map_or(0, |migration| migration.number);
        match migrate == Migrate::Manual && number < newest {
            true => Err(StoreError::Outdated {
                path: place.to_owned(),
                have: number,
                needs: newest,
            }),
            false => Ok(()),
        }
    }

    /// The migrations of this program and those that were applied, in order.
    pub(crate) fn steps(&self, applied: &[Applied]) -> Vec<Step> {
        let known = self.migrations.iter().map(|migration| Step {
            number: migration.number,
            name: migration.name.to_owned(),
            applied_at: None,
            is_known: true,
        });
        let mut steps: Vec<Step> = known.collect();
        for done in applied {
            match steps.iter_mut().find(|step| step.number == done.number) {
                Some(step) => step.applied_at = Some(done.at.clone()),
                None => steps.push(Step {
                    number: done.number,
                    name: done.name.clone(),
                    applied_at: Some(done.at.clone()),
                    is_known: false,
                }),
            }
        }
        steps.sort_by_key(|step| step.number);
        steps
    }

    /// How to undo the newest applied migration: its name, the checks, and the SQL.
    pub(crate) fn way_back(&self, applied: &[Applied], place: &str) -> Result<WayBack<'a>> {
        let Some(newest) = applied.last() else {
            return Err(StoreError::NoWayBack {
                path: place.to_owned(),
                what: "it has no schema".to_owned(),
            });
        };
        let refuse = |why: &str| StoreError::NoWayBack {
            path: place.to_owned(),
            what: format!("migration {} ({}) stays: {why}", newest.number, newest.name),
        };
        let migration = self.migrations.iter().find(|known| known.number == newest.number);
        let migration =
            migration.ok_or_else(|| refuse("a newer program applied it, and only that program can undo it"))?;
        let earlier = self.migrations.iter().rfind(|known| known.number < newest.number);
        match (&migration.back, earlier) {
            (Back::None(why), _) => Err(refuse(why)),
            (Back::Down { .. }, None) => Err(refuse("no schema would be left")),
            (Back::Down { sql, unless }, Some(earlier)) => Ok(WayBack {
                from: migration,
                sql,
                unless,
                oldest_program: earlier.oldest_program,
            }),
        }
    }
}

/// A migration that is undone.
pub(crate) struct WayBack<'a> {
    pub(crate) from: &'a Migration,
    pub(crate) sql: &'a str,
    unless: &'a [Loss],
    /// The oldest program that may use the database afterwards.
    pub(crate) oldest_program: &'a str,
}

impl<'a> WayBack<'a> {
    /// SQL that counts each kind of data that would be lost.
    pub(crate) fn questions(&self) -> impl Iterator<Item = &'a str> {
        self.unless.iter().map(|loss| loss.count)
    }

    /// Refuses if any of the counts is not 0.
    pub(crate) fn check(&self, counts: &[i64], place: &str) -> Result<()> {
        let lost = self.unless.iter().zip(counts).filter(|(_, count)| **count > 0);
        let lost: Vec<String> = lost.map(|(loss, count)| format!("{count} {}", loss.what)).collect();
        match lost.is_empty() {
            true => Ok(()),
            false => Err(StoreError::NoWayBack {
                path: place.to_owned(),
                what: format!(
                    "migration {} ({}) stays, because this would be lost: {}",
                    self.from.number,
                    self.from.name,
                    lost.join(", ")
                ),
            }),
        }
    }

    /// The step after it was undone.
    pub(crate) fn step(&self) -> Step {
        Step {
            number: self.from.number,
            name: self.from.name.to_owned(),
            applied_at: None,
            is_known: true,
        }
    }
}

/// A migration as recorded in the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Applied {
    pub(crate) number: u32,
    pub(crate) name: String,
    pub(crate) at: String,
}

/// A migration, and whether it was applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Its number, from 1.
    pub number: u32,
    /// A short name.
    pub name: String,
    /// When it was applied, as `2026-11-15T10:30:00Z`.
    pub applied_at: Option<String>,
    /// Whether this program knows it. Unknown ones were applied by a newer program.
    pub is_known: bool,
}

/// The schema of a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schema {
    /// The database as text, without its password.
    pub place: String,
    /// The oldest program that may use it, if it has a schema.
    pub oldest_program: Option<String>,
    /// The migrations, in order.
    pub steps: Vec<Step>,
}

impl Schema {
    /// The migrations that were applied after `before`.
    pub(crate) fn applied_since(self, before: &Schema) -> Vec<Step> {
        let done = |step: &Step| step.applied_at.is_some();
        let was = |number| before.steps.iter().any(|step| step.number == number && done(step));
        self.steps
            .into_iter()
            .filter(|step| done(step) && !was(step.number))
            .collect()
    }

    /// Whether this program would migrate it.
    pub fn is_outdated(&self) -> bool {
        self.steps.iter().any(|step| step.applied_at.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOSSES: &[Loss] = &[
        Loss {
            what: "apples",
            count: "",
        },
        Loss {
            what: "pears",
            count: "",
        },
    ];

    fn migration(number: u32, back: Back, oldest_program: &'static str) -> Migration {
        Migration {
            number,
            name: "it",
            up: "",
            back,
            oldest_program,
        }
    }

    fn applied(number: u32) -> Vec<Applied> {
        let one = |number| Applied {
            number,
            name: "it".to_owned(),
            at: String::new(),
        };
        (1..=number).map(one).collect()
    }

    #[test]
    fn the_way_back_leads_to_the_programs_of_before() {
        let down = || Back::Down {
            sql: "",
            unless: LOSSES,
        };
        let migrations = [
            migration(1, down(), "1.0.0"),
            migration(2, down(), "2.0.0"),
            migration(3, down(), "3.0.0"),
        ];
        let program = Program::this(&migrations);
        let way = program
            .way_back(&applied(3), "it")
            .unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((way.from.number, way.oldest_program), (3, "2.0.0"));
        for (number, why) in [(0, "no schema"), (1, "no schema would be left"), (4, "a newer program")] {
            let refused = program.way_back(&applied(number), "it").err();
            let refused = refused.map(|error| error.to_string()).unwrap_or_default();
            assert!(refused.contains(why), "{number}: {refused}");
        }
    }

    #[test]
    fn everything_that_would_be_lost_is_named() {
        let down = Back::Down {
            sql: "",
            unless: LOSSES,
        };
        let migrations = [migration(1, Back::None("first"), "1"), migration(2, down, "1")];
        let program = Program::this(&migrations);
        let way = program
            .way_back(&applied(2), "it")
            .unwrap_or_else(|error| panic!("{error}"));
        assert!(way.check(&[0, 0], "it").is_ok());
        for (counts, what) in [([2, 0], "2 apples"), ([0, 1], "1 pears"), ([2, 1], "2 apples, 1 pears")] {
            let lost = way.check(&counts, "it").unwrap_err().to_string();
            assert!(lost.contains(&format!("lost: {what}. Nothing was changed")), "{lost}");
        }
    }
}
