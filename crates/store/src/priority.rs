//! Chooses which of the runs that are due and free a claim takes.
//!
//! What must stay true:
//! * The places of a claim go to the runs that have waited longest. But if more than half of the runs at the front of
//!   the queue belong to one workflow or tenant, that one gets at most half of the places while others wait behind it.
//! * Within the places of one workflow, runs of higher priority go first, then those that have waited longer. A run
//!   without a priority has priority 0.
//! * Only the front of the queue is read while all its runs get a place, no workflow or tenant has a backlog, and no
//!   free run has a priority. Further reads cost a few index seeks for each place, independent of the length of the
//!   backlog.

use fermata_core::{RunId, Timestamp};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};
use uuid::Uuid;

/// With priorities, this many times the limit of a claim is examined, so that runs with a negative priority make room
/// for runs behind them.
pub(crate) const LOOK_AHEAD: u32 = 4;
/// At least this many runs at the front are examined to detect a backlog, even for claims with few places.
const FRONT: u32 = 16;
/// A claim visits at most this many groups to find others; the next claim continues after them.
pub(crate) const MAX_GROUPS: usize = 256;

/// How many places of a claim are for free runs if there are this many runs of dead owners. The latter have waited
/// longer: they get half of the places, and those that free runs do not use.
pub(crate) fn left_for_free(limit: u32, orphans: usize) -> u32 {
    let orphans = u32::try_from(orphans).unwrap_or(u32::MAX);
    limit - orphans.min(limit.div_ceil(2))
}

/// How many runs at the front of the queue a claim examines.
pub(crate) fn looked_at(limit: u32, prioritised: bool) -> u32 {
    match prioritised {
        true => limit.saturating_mul(LOOK_AHEAD).max(FRONT),
        false => limit.saturating_add(1).max(FRONT),
    }
}

/// A run that is due and free.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Due {
    pub tenant: String,
    pub workflow: Uuid,
    pub priority: i32,
    pub wake_at: Timestamp,
    pub run: RunId,
}

pub(crate) type Rank = (Reverse<i32>, Timestamp, RunId);

impl Due {
    /// Orders runs of one workflow: the first goes first.
    pub(crate) fn rank(&self) -> Rank {
        (Reverse(self.priority), self.wake_at, self.run)
    }
}

/// Queries for the runs that are due and free.
pub(crate) trait Queue {
    type Error;

    /// Up to `most` runs of a workflow with a priority above 0, highest first.
    fn urgent(&mut self, workflow: Uuid, most: usize) -> Result<Vec<Due>, Self::Error>;

    /// The longest waiting run of each (tenant, workflow), except those of the tenant `but`; at most [`MAX_GROUPS`] for
    /// each call, the next ones at the next call.
    fn heads(&mut self, but: Option<&str>) -> Result<Vec<Due>, Self::Error>;

    /// The run that waits next longest after this one, with the same tenant and workflow.
    fn behind(&mut self, due: &Due) -> Result<Option<Due>, Self::Error>;
}

/// The request of a claim.
pub(crate) struct Places {
    /// The number of places.
    pub count: usize,
    /// Whether any free run has a priority.
    pub prioritised: bool,
    /// Decides which half gets the middle one of an odd number of places.
    pub now: Timestamp,
}

/// The runs to claim. `front` are the longest waiting runs in order: as many as [`looked_at`] says, or all.
pub(crate) fn choose<Q: Queue>(places: &Places, front: Vec<Due>, queue: &mut Q) -> Result<Vec<RunId>, Q::Error> {
    let backlog = Backlog::of(places, &front);
    let candidates = match &backlog {
        None => front,
        Some(backlog) => backlog.with_others(places, front, queue)?,
    };
    let placed: Vec<&Due> = match &backlog {
        None => candidates.iter().take(places.count).collect(),
        Some(backlog) => backlog.share(places, &candidates),
    };
    if !places.prioritised {
        return Ok(placed.iter().map(|due| due.run).collect());
    }
    let tenant = backlog.as_ref().and_then(|backlog| backlog.tenant.as_deref());
    by_priority(&placed, &candidates, tenant, queue)
}

/// Gives the places of each workflow to its runs of highest priority. A tenant with a backlog gets no more places than
/// it had.
fn by_priority<Q: Queue>(
    placed: &[&Due],
    candidates: &[Due],
    tenant: Option<&str>,
    queue: &mut Q,
) -> Result<Vec<RunId>, Q::Error> {
    let mut best: BTreeMap<Uuid, BTreeMap<Rank, bool>> = BTreeMap::new();
    let capped = |due: &Due| tenant == Some(due.tenant.as_str());
    for due in placed {
        best.entry(due.workflow).or_default();
    }
    for due in candidates {
        if let Some(ranks) = best.get_mut(&due.workflow) {
            ranks.insert(due.rank(), capped(due));
        }
    }
    for (workflow, ranks) in &mut best {
        let places = placed.iter().filter(|due| due.workflow == *workflow).count();
        let urgent = queue.urgent(*workflow, places)?;
        ranks.extend(urgent.iter().map(|due| (due.rank(), capped(due))));
    }
    let mut left = placed.iter().filter(|due| capped(due)).count();
    let mut taken = Vec::with_capacity(placed.len());
    for due in placed {
        let Some(ranks) = best.get_mut(&due.workflow) else {
            continue;
        };
        let fits = ranks.iter().find(|(_, capped)| left > 0 || !**capped);
        let Some((rank, capped)) = fits
            .or_else(|| ranks.iter().next())
            .map(|(rank, capped)| (*rank, *capped))
        else {
            continue;
        };
        ranks.remove(&rank);
        left -= usize::from(capped && left > 0);
        taken.push(rank.2);
    }
    Ok(taken)
}

/// The workflow and the tenant that have more than half of the front, if any.
struct Backlog {
    workflow: Option<Uuid>,
    tenant: Option<String>,
}

impl Backlog {
    /// `None` if there are places for all, or no workflow or tenant has more than half.
    fn of(places: &Places, front: &[Due]) -> Option<Backlog> {
        if front.len() <= places.count {
            return None;
        }
        let size = places.count.max(FRONT as usize);
        let front = front.get(..size).unwrap_or(front);
        let backlog = Backlog {
            workflow: most(front.iter().map(|due| due.workflow), size),
            tenant: most(front.iter().map(|due| due.tenant.as_str()), size).map(str::to_owned),
        };
        (backlog.workflow.is_some() || backlog.tenant.is_some()).then_some(backlog)
    }

    /// Whether a run belongs to the workflow and whether it belongs to the tenant. If no tenant has a backlog, all runs
    /// count as one tenant.
    fn concerns(&self, due: &Due) -> (bool, bool) {
        let workflow = self.workflow.is_some_and(|workflow| due.workflow == workflow);
        let tenant = self.tenant.as_ref().is_none_or(|tenant| due.tenant == *tenant);
        (workflow, tenant)
    }

    /// The front, and the longest waiting runs behind it that do not belong to the backlog, in order.
    fn with_others<Q: Queue>(&self, places: &Places, front: Vec<Due>, queue: &mut Q) -> Result<Vec<Due>, Q::Error> {
        // If only a tenant has a backlog, its other workflows are not needed.
        let but = self.tenant.as_deref().filter(|_| self.workflow.is_none());
        let mut kinds: BTreeMap<(bool, bool), Vec<Due>> = BTreeMap::new();
        for head in queue.heads(but)? {
            kinds.entry(self.concerns(&head)).or_default().push(head);
        }
        kinds.remove(&(self.workflow.is_some(), true));
        let mut all: BTreeMap<(Timestamp, RunId), Due> = BTreeMap::new();
        for heads in kinds.into_values() {
            all.extend(longest(heads, places.count, queue)?);
        }
        all.extend(front.into_iter().map(|due| ((due.wake_at, due.run), due)));
        Ok(all.into_values().collect())
    }

    /// Distributes the places. The tenant gets half of them, and the workflow half of that; others get the rest. Places
    /// that they do not use go to the tenant again, where the workflow gets at most half of all places while other
    /// workflows of the tenant wait, and then to any run.
    fn share<'a>(&self, places: &Places, candidates: &'a [Due]) -> Vec<&'a Due> {
        let half = (places.count + usize::from(coin(places.now))) / 2;
        let mut shares = Shares {
            kinds: candidates.iter().map(|due| self.concerns(due)).collect(),
            taken: BTreeSet::new(),
            places: places.count,
        };
        shares.take(|(workflow, tenant)| workflow && tenant, half.div_ceil(2));
        let first = shares.taken.len();
        shares.take(|(workflow, tenant)| !workflow && tenant, half - first.min(half));
        shares.take(|(_, tenant)| tenant, half);
        shares.take(|(_, tenant)| !tenant, places.count);
        shares.take(|(workflow, tenant)| workflow && tenant, half);
        shares.take(|(workflow, _)| !workflow, places.count);
        shares.take(|_| true, places.count);
        shares.taken.into_iter().map(|index| &candidates[index]).collect()
    }
}

/// The value that more than half of `size` items have.
fn most<K: Ord>(of: impl Iterator<Item = K>, size: usize) -> Option<K> {
    let mut counts: BTreeMap<K, usize> = BTreeMap::new();
    for kind in of {
        *counts.entry(kind).or_default() += 1;
    }
    counts
        .into_iter()
        .find(|(_, count)| *count > size / 2)
        .map(|(kind, _)| kind)
}

/// Places while they are being distributed.
struct Shares {
    /// For each candidate, whether it belongs to the workflow and to the tenant.
    kinds: Vec<(bool, bool)>,
    taken: BTreeSet<usize>,
    places: usize,
}

impl Shares {
    /// Gives places to candidates of these kinds, until `most` of them have one.
    fn take(&mut self, kinds: fn((bool, bool)) -> bool, most: usize) {
        let mut have = self.taken.iter().filter(|index| kinds(self.kinds[**index])).count();
        for (index, kind) in self.kinds.iter().enumerate() {
            if have >= most || self.taken.len() >= self.places {
                break;
            }
            have += usize::from(kinds(*kind) && self.taken.insert(index));
        }
    }
}

/// The `most` longest waiting runs of the groups with these first runs.
fn longest<Q: Queue>(
    heads: Vec<Due>,
    most: usize,
    queue: &mut Q,
) -> Result<BTreeMap<(Timestamp, RunId), Due>, Q::Error> {
    let mut waiting: BTreeMap<(Timestamp, RunId), Due> = BTreeMap::new();
    waiting.extend(heads.into_iter().map(|due| ((due.wake_at, due.run), due)));
    let mut found = BTreeMap::new();
    while found.len() < most
        && let Some((key, due)) = waiting.pop_first()
    {
        if let Some(next) = queue.behind(&due)? {
            waiting.insert((next.wake_at, next.run), next);
        }
        found.insert(key, due);
    }
    Ok(found)
}

/// A pseudo-random bit from the time.
fn coin(now: Timestamp) -> bool {
    let mixed = now.0.unsigned_abs().wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed >> 63 == 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    /// The workflow of a short name.
    fn named(name: &str) -> Uuid {
        let mut bytes = [0; 16];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        Uuid::from_bytes(bytes)
    }

    fn due(workflow: &str, priority: i32, wake_at: i64) -> Due {
        of("", workflow, priority, wake_at)
    }

    fn of(tenant: &str, workflow: &str, priority: i32, wake_at: i64) -> Due {
        Due {
            tenant: tenant.to_owned(),
            workflow: named(workflow),
            priority,
            wake_at: Timestamp(wake_at),
            run: RunId(Uuid::from_u128(u128::from(wake_at.unsigned_abs()))),
        }
    }

    /// All waiting runs, in order, and the number of searches for others.
    struct All(Vec<Due>, usize);

    impl Queue for All {
        type Error = Infallible;

        fn urgent(&mut self, workflow: Uuid, most: usize) -> Result<Vec<Due>, Infallible> {
            let urgent = self.0.iter().filter(|due| due.workflow == workflow && due.priority > 0);
            let mut urgent: Vec<Due> = urgent.cloned().collect();
            urgent.sort_by_key(Due::rank);
            urgent.truncate(most);
            Ok(urgent)
        }

        fn heads(&mut self, but: Option<&str>) -> Result<Vec<Due>, Infallible> {
            self.1 += 1;
            let mut heads: BTreeMap<(String, Uuid), Due> = BTreeMap::new();
            for due in self.0.iter().filter(|due| Some(due.tenant.as_str()) != but) {
                let group = (due.tenant.clone(), due.workflow);
                heads.entry(group).or_insert_with(|| due.clone());
            }
            Ok(heads.into_values().collect())
        }

        fn behind(&mut self, due: &Due) -> Result<Option<Due>, Infallible> {
            let same = |other: &&Due| (&other.tenant, &other.workflow) == (&due.tenant, &due.workflow);
            Ok(self
                .0
                .iter()
                .filter(same)
                .find(|other| other.wake_at > due.wake_at)
                .cloned())
        }
    }

    const HEADS: Timestamp = Timestamp(1);
    const TAILS: Timestamp = Timestamp(2);

    fn chosen_at(now: Timestamp, count: usize, waiting: &[Due]) -> (Vec<i64>, usize) {
        let prioritised = waiting.iter().any(|due| due.priority != 0);
        let places = Places {
            count,
            prioritised,
            now,
        };
        let mut all = waiting.to_vec();
        all.sort_by_key(|due| due.wake_at);
        let front = all.iter().take(looked_at(count as u32, prioritised) as usize);
        let front = front.cloned().collect();
        let mut queue = All(all, 0);
        let Ok(runs) = choose(&places, front, &mut queue);
        (runs.into_iter().map(|run| run.0.as_u128() as i64).collect(), queue.1)
    }

    fn chosen(count: usize, waiting: &[Due]) -> Vec<i64> {
        chosen_at(TAILS, count, waiting).0
    }

    #[test]
    fn the_coin_falls_on_both_sides() {
        assert!(coin(HEADS) && !coin(TAILS));
        let ups = (0..1000).filter(|now| coin(Timestamp(1_770_000_000_000_000 + now * 1000)));
        assert!((400..600).contains(&ups.count()));
    }

    #[test]
    fn places_belong_to_workflows() {
        let waiting = [due("a", 0, 1), due("b", 0, 2), due("a", 0, 3), due("b", 0, 4)];
        assert_eq!(chosen(3, &waiting), [1, 2, 3]);
        let with = |more: &[Due]| [&waiting[..], more].concat();
        assert_eq!(
            chosen(2, &with(&[due("b", 9, 90), due("b", 9, 91)])),
            [1, 90],
            "an urgent run takes a place of its own workflow only"
        );
        assert_eq!(chosen(3, &with(&[due("a", 9, 90)])), [90, 2, 1]);
        assert_eq!(
            chosen(1, &with(&[due("c", 9, 90)])),
            [1],
            "a workflow without a place takes none"
        );
    }

    #[test]
    fn each_run_is_chosen_once_and_negative_priorities_come_last() {
        let waiting = [due("a", -1, 1), due("a", 5, 2), due("a", 0, 3), due("a", 0, 4)];
        assert_eq!(chosen(2, &waiting), [2, 3]);
        assert_eq!(chosen(9, &waiting), [2, 3, 4, 1]);
    }

    /// Many runs of a tenant and workflow, from this time on.
    fn many(tenant: &str, workflow: &str, count: i64, from: i64) -> Vec<Due> {
        (from..from + count).map(|at| of(tenant, workflow, 0, at)).collect()
    }

    #[test]
    fn a_backlog_leaves_half() {
        let big = many("", "big", 100, 1);
        let others = [many("", "x", 2, 200), many("", "y", 9, 300)].concat();
        let waiting = [big.clone(), others].concat();
        assert_eq!(chosen(8, &waiting), [1, 2, 3, 4, 200, 201, 300, 301]);
        let few = [big.clone(), many("", "x", 2, 200)].concat();
        assert_eq!(chosen(8, &few), [1, 2, 3, 4, 5, 6, 200, 201], "what others do not need");
        assert_eq!(chosen(8, &big), [1, 2, 3, 4, 5, 6, 7, 8], "or there are no others");
    }

    #[test]
    fn one_place_goes_to_either_half() {
        let waiting = [many("", "big", 20, 1), many("", "small", 3, 200)].concat();
        assert_eq!(chosen_at(HEADS, 1, &waiting).0, [1]);
        assert_eq!(chosen_at(TAILS, 1, &waiting).0, [200]);
        assert_eq!(chosen_at(HEADS, 3, &waiting).0, [1, 2, 200]);
        assert_eq!(chosen_at(TAILS, 3, &waiting).0, [1, 200, 201]);
        let short = [many("", "a", 8, 1), many("", "b", 8, 200)].concat();
        assert_eq!(chosen_at(TAILS, 1, &short).0, [1], "that is no backlog");
    }

    #[test]
    fn tenants_leave_half_too() {
        let big = [many("big", "a", 40, 1), many("big", "b", 40, 1000)].concat();
        let waiting = [big.clone(), many("small", "a", 3, 2000), many("", "b", 1, 3000)].concat();
        assert_eq!(chosen(8, &waiting), [1, 2, 1000, 1001, 2000, 2001, 2002, 3000]);
        assert_eq!(
            chosen(8, &big),
            [1, 2, 3, 4, 1000, 1001, 1002, 1003],
            "its workflows share where it is alone"
        );
        let even = [many("t", "a", 99, 1), many("t", "b", 99, 1)].concat();
        let even: Vec<Due> = even
            .iter()
            .map(|due| Due {
                wake_at: Timestamp(due.wake_at.0 * 2),
                ..due.clone()
            })
            .collect();
        assert!(!chosen(8, &even).is_empty());
    }

    #[test]
    fn urgency_does_not_undo_a_tenants_share() {
        let mut waiting = [many("big", "w", 40, 1), many("small", "w", 9, 2000)].concat();
        waiting.extend((5000..5040).map(|at| of("big", "w", 9, at)));
        assert_eq!(chosen(4, &waiting), [5000, 5001, 2000, 2001]);
        waiting.retain(|due| due.tenant == "big");
        assert_eq!(chosen(4, &waiting), [5000, 5001, 5002, 5003]);
    }

    #[test]
    fn others_are_looked_for_only_behind_a_backlog() {
        let looked = |count, waiting: &[Due]| chosen_at(TAILS, count, waiting).1;
        let backlog = many("", "a", 99, 1);
        assert_eq!(looked(8, &backlog), 1);
        assert_eq!(looked(99, &backlog), 0, "all fit");
        let mixed: Vec<Due> = (1..99)
            .map(|at| of(&(at % 3).to_string(), &(at % 2).to_string(), 0, at))
            .collect();
        assert_eq!(looked(8, &mixed), 0);
    }
}
