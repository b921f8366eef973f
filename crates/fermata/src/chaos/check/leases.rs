//! Who held which run when: epochs, take-overs, and that nobody writes to what is another's.

use super::{Found, Rule, Rules};
use crate::chaos::evidence::{Change, Evidence, Micros};
use std::collections::BTreeMap;
use uuid::Uuid;

/// Clocks are read at slightly different moments.
const TOLERANCE: Micros = 100_000;
/// A heartbeat that comes while its runs are being taken over comes too late for them.
const MEANWHILE: Micros = 2_000_000;

pub(super) fn check(rules: &Rules, evidence: &Evidence, found: &mut Found) {
    let mut last: BTreeMap<Uuid, &Change> = BTreeMap::new();
    for change in &evidence.changes {
        let before = last.insert(change.run, change);
        follows(before, change, found);
        status(change, found);
        owner(evidence, change, found);
        takeover(rules, change, found);
    }
    for (id, rows) in &evidence.runs {
        let last = last
            .get(id)
            .map(|change| (change.epoch, change.owner, change.status.as_str()));
        let now = (rows.epoch, rows.owner, rows.status.as_str());
        found.ensure(last == Some(now), Rule::Epoch, *id, || {
            format!("its row says {now:?}, its last change {last:?}")
        });
    }
    for row in &evidence.written {
        let owner = row.owner.and_then(|owner| evidence.runners.get(&owner));
        found.ensure(owner == Some(&row.who), Rule::Zombie, row.run, || {
            format!(
                "journal row {} was written by {} while {owner:?} held the run",
                row.seq, row.who
            )
        });
    }
}

/// Nothing was lost between two changes, and epochs grow by one with each owner.
fn follows(before: Option<&Change>, change: &Change, found: &mut Found) {
    let (status, owner, epoch) = (change.old_status.as_deref(), change.old_owner, change.old_epoch);
    let expected = before.map(|before| (Some(before.status.as_str()), before.owner, before.epoch));
    let now = (status, owner, epoch);
    found.ensure(
        now == expected.unwrap_or((None, None, 0)),
        Rule::Epoch,
        change.run,
        || {
            format!(
                "it was {now:?} and became {:?}, but was last seen as {expected:?}",
                change.epoch
            )
        },
    );
    let grown = match (change.owner, change.owner == change.old_owner) {
        (Some(_), false) => change.epoch == change.old_epoch + 1,
        _ => change.epoch == change.old_epoch,
    };
    found.ensure(grown, Rule::Epoch, change.run, || {
        format!(
            "its epoch went from {} to {} as its owner went from {:?} to {:?}",
            change.old_epoch, change.epoch, change.old_owner, change.owner
        )
    });
}

/// Pending, then Running, then an end, which is final.
fn status(change: &Change, found: &mut Found) {
    let rank = |status: &str| match status {
        "Pending" => 1,
        "Running" => 2,
        _ => 3,
    };
    let (old, new) = (change.old_status.as_deref(), change.status.as_str());
    let legal = match old {
        None => rank(new) < 3,
        Some(old) if old == new => true,
        Some(old) => rank(old) < rank(new),
    };
    found.ensure(legal, Rule::History, change.run, || {
        format!("it was {old:?} and became {new}")
    });
    let over = rank(new) == 3;
    found.ensure(!over || change.owner.is_none(), Rule::History, change.run, || {
        format!("it is {new}, and {:?} holds it", change.owner)
    });
}

/// Whoever lets a run go, or moves its status, holds it; whoever takes it, takes it for itself.
fn owner(evidence: &Evidence, change: &Change, found: &mut Found) {
    let who = |runner: Option<Uuid>| runner.and_then(|runner| evidence.runners.get(&runner));
    let takes = change.owner.is_some() && change.owner != change.old_owner;
    let entitled = match (takes, change.old_status.is_some()) {
        (true, _) => who(change.owner) == Some(&change.who),
        // Anybody may make a run that nobody holds.
        (false, false) => true,
        (false, true) => who(change.old_owner) == Some(&change.who),
    };
    found.ensure(entitled, Rule::Zombie, change.run, || {
        format!(
            "{} changed it from {:?} held by {:?} to {} held by {:?}",
            change.who,
            change.old_status,
            who(change.old_owner),
            change.status,
            who(change.owner)
        )
    });
}

/// Who lost a run was not heard of for as long as a lease lasts.
fn takeover(rules: &Rules, change: &Change, found: &mut Found) {
    if !change.is_takeover() {
        return;
    }
    let lease = rules.lease.as_micros() as Micros - TOLERANCE;
    let silent = change.heard.is_none_or(|heard| change.at - heard >= lease);
    let revived = change.revived.is_some_and(|at| change.at - at <= MEANWHILE);
    let dead = silent || revived;
    found.ensure(dead, Rule::Takeover, change.run, || {
        format!(
            "{} took it over from {:?}, who was heard of {:?} µs before",
            change.who,
            change.old_owner,
            change.heard.map(|heard| change.at - heard)
        )
    });
}
