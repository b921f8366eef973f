//! Usage of tenants: how many HTTP steps they started in a month, and how many execute now.
//!
//! A commit counts the steps whose first attempt it records ([`crate::runs::RunCommit::usage`]), so the count and the record are
//! one transaction: a crash neither loses nor repeats a count. Only tenants with a monthly limit are counted.
//!
//! What must stay true: a batch adds to each counter once, after everything else that it locks, in the order of the counters.
//! So batches of any number of processes cannot deadlock.

use crate::Result;
use async_trait::async_trait;
use fermata_core::{NodeId, RunId, RunnerId, Timestamp};

/// The usage of tenants.
#[async_trait]
pub trait UsageStore: Send + Sync {
    /// How many steps of this tenant were counted in a month ([`month_of`]).
    async fn usage(&self, tenant: &str, month: u32) -> Result<u64>;

    /// Takes one of the `most` places for HTTP steps of a tenant, which all processes share. False if there is none. Taking the
    /// same place again changes nothing. Places of runners whose last heartbeat is before `dead_before`, or that have none, are
    /// freed. A store that only one process uses has no places of its own: the process counts them itself.
    async fn take_step(&self, place: &StepPlace, most: u32, dead_before: Timestamp) -> Result<bool> {
        let _ = (place, most, dead_before);
        Ok(true)
    }

    /// Frees a place.
    async fn free_step(&self, place: &StepPlace) -> Result<()> {
        let _ = place;
        Ok(())
    }
}

/// The place of an HTTP step that executes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepPlace {
    /// The tenant.
    pub tenant: String,
    /// The runner that executes the step.
    pub runner: RunnerId,
    /// The run.
    pub run: RunId,
    /// The node.
    pub node: NodeId,
}

/// Steps that a commit counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// The tenant.
    pub tenant: String,
    /// How many steps.
    pub steps: u32,
}

/// The month of a time in UTC, such as 202611.
pub fn month_of(at: Timestamp) -> u32 {
    let days = at.0.div_euclid(86_400_000_000);
    let (year, month, _) = civil(days);
    u32::try_from(year * 100 + i64::from(month)).unwrap_or(0)
}

/// The begin of the month after the one of `at`, in UTC.
pub fn next_month(at: Timestamp) -> Timestamp {
    let mut days = at.0.div_euclid(86_400_000_000);
    let (_, _, day) = civil(days);
    days += 28 - i64::from(day) + 1;
    while civil(days).2 != 1 {
        days += 1;
    }
    Timestamp(days * 86_400_000_000)
}

/// Year, month and day of a number of days since 1970-01-01, in the Gregorian calendar.
fn civil(days: i64) -> (i64, u32, u32) {
    // Years begin in March here, so that a leap day is the last day of its year.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month as u32, day as u32)
}

pub(crate) const USAGE: &str = "SELECT steps FROM tenant_usage WHERE tenant_id = ?1 AND month = ?2";

/// Adds to a counter.
pub(crate) const COUNT: &str = "INSERT INTO tenant_usage AS u (tenant_id, month, steps) VALUES (?1, ?2, ?3)
    ON CONFLICT (tenant_id, month) DO UPDATE SET steps = u.steps + excluded.steps";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_are_those_of_the_calendar() {
        let day = |days: i64| Timestamp(days * 86_400_000_000);
        for (days, month) in [
            (0, 197001),
            (58, 197002),
            (59, 197003),
            (789, 197202),
            (11016, 200002),
            (20774, 202611),
            (-1, 196912),
            (20818, 202612),
        ] {
            let at = Timestamp(day(days).0 + 86_399_999_999);
            assert_eq!(month_of(at), month, "{days}");
            let next = next_month(at);
            assert_eq!(next.0 % 86_400_000_000, 0);
            assert_eq!(month_of(Timestamp(next.0 - 1)), month, "{days}");
            assert_ne!(month_of(next), month, "{days}");
        }
        // Each day of 400 years follows the day before it.
        let mut before = civil(-1);
        for days in 0..146_097 {
            let (year, month, day) = civil(days);
            let follows = (year, month, day) == (before.0, before.1, before.2 + 1)
                || (year, month, day) == (before.0, before.1 + 1, 1) && before.2 >= 28
                || (year, month, day) == (before.0 + 1, 1, 1) && (before.1, before.2) == (12, 31);
            assert!(follows, "{before:?} {year}-{month}-{day}");
            before = (year, month, day);
        }
    }
}
