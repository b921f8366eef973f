//! Which runner held which run when: epochs, takeovers, and fencing.

use super::{Found, Rule, Rules};
use crate::chaos::evidence::{Change, Evidence, Heartbeat, Micros};
use std::collections::BTreeMap;
use uuid::Uuid;

pub(super) fn check(rules: &Rules, evidence: &Evidence, found: &mut Found) {
    let mut last: BTreeMap<Uuid, &Change> = BTreeMap::new();
    for change in &evidence.changes {
        let before = last.insert(change.run, change);
        follows(before, change, found);
        status(change, found);
        owner(evidence, change, found);
        takeover(rules, evidence, change, found);
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

/// Each change starts from the state that the change before left, and epochs grow by one with each new owner.
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

/// Legal changes: Pending, then Running, then a terminal status, which is final.
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

/// A runner that releases a run or changes its status must hold it. A runner that claims a run must claim it for itself.
fn owner(evidence: &Evidence, change: &Change, found: &mut Found) {
    let who = |runner: Option<Uuid>| runner.and_then(|runner| evidence.runners.get(&runner));
    let takes = change.owner.is_some() && change.owner != change.old_owner;
    let entitled = match (takes, change.old_status.is_some()) {
        (true, _) => who(change.owner) == Some(&change.who),
        // Every process may create a run that no runner holds.
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

/// A runner that lost a run must have been without a heartbeat for one lease, as far as the transaction of the claim could see.
fn takeover(rules: &Rules, evidence: &Evidence, change: &Change, found: &mut Found) {
    let Some(owner) = change.old_owner.filter(|_| change.is_takeover()) else {
        return;
    };
    let beats = evidence.heartbeats.get(&owner).map_or(&[][..], Vec::as_slice);
    let dead_before = change.began - rules.lease.as_micros() as Micros;
    let seen = seen(beats, change);
    found.ensure(
        seen.iter()
            .any(|reported| reported.is_none_or(|reported| reported < dead_before)),
        Rule::Takeover,
        change.run,
        || {
            format!(
                "{} took it over at {} from {owner}, whose heartbeats were {seen:?}",
                change.who, change.began
            )
        },
    );
}

/// The heartbeats that a transaction may have seen as the newest one; `None` if it may have seen none. A heartbeat is visible
/// some time after it was written, and before the next but one is written: the next one waits for its transaction to end.
fn seen(beats: &[Heartbeat], change: &Change) -> Vec<Option<Micros>> {
    let before = |place: usize| beats.get(place).is_none_or(|beat| beat.at > change.began);
    let none = before(1).then_some(None);
    let some = beats.iter().enumerate();
    let some = some.filter(|(place, beat)| beat.at <= change.at && before(place + 2));
    none.into_iter()
        .chain(some.map(|(_, beat)| Some(beat.reported)))
        .collect()
}
