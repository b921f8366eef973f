//! Which of the runs that are due and free a claim takes.
//!
//! What must stay true: a claim's places go to those who wait longest, so no workflow can take the places of another;
//! in the places of one workflow its runs of the highest priority go first, then those who wait longest. No priority
//! is priority 0. Nothing here is needed, or asked for, while no free run has another one.

use fermata_core::{RunId, Timestamp};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

/// Beyond a claim's limit this many times as many runs are looked at, so that runs of a negative priority make room
/// for others behind them.
pub(crate) const LOOK_AHEAD: u32 = 4;

/// A run that is due and free.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Due {
    pub workflow: String,
    pub priority: i32,
    pub wake_at: Timestamp,
    pub run: RunId,
}

impl Due {
    fn rank(&self) -> (Reverse<i32>, Timestamp, RunId) {
        (Reverse(self.priority), self.wake_at, self.run)
    }
}

/// The runs to take. `waiting` are runs in the order in which they wait, at least as many as there are places;
/// `urgent` gives up to so many runs of a workflow with a priority above 0, the highest first.
pub(crate) fn choose<E>(
    places: usize,
    waiting: Vec<Due>,
    mut urgent: impl FnMut(&str, usize) -> Result<Vec<Due>, E>,
) -> Result<Vec<RunId>, E> {
    let owners: Vec<String> = waiting.iter().take(places).map(|due| due.workflow.clone()).collect();
    let mut best: BTreeMap<String, BTreeSet<(Reverse<i32>, Timestamp, RunId)>> = BTreeMap::new();
    for owner in &owners {
        best.entry(owner.clone()).or_default();
    }
    for due in &waiting {
        if let Some(ranks) = best.get_mut(&due.workflow) {
            ranks.insert(due.rank());
        }
    }
    for (workflow, ranks) in &mut best {
        let places = owners.iter().filter(|owner| *owner == workflow).count();
        ranks.extend(urgent(workflow, places)?.iter().map(Due::rank));
    }
    let place = |owner: &String| best.get_mut(owner)?.pop_first().map(|(.., run)| run);
    Ok(owners.iter().filter_map(place).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use uuid::Uuid;

    fn due(workflow: &str, priority: i32, wake_at: i64) -> Due {
        Due {
            workflow: workflow.to_owned(),
            priority,
            wake_at: Timestamp(wake_at),
            run: RunId(Uuid::from_u128(u128::from(wake_at.unsigned_abs()))),
        }
    }

    fn chosen(places: usize, waiting: Vec<Due>, urgent: Vec<Due>) -> Vec<u128> {
        let of = |workflow: &str, most: usize| {
            let runs = urgent.iter().filter(|due| due.workflow == workflow).take(most);
            Ok::<_, Infallible>(runs.cloned().collect())
        };
        let Ok(runs) = choose(places, waiting, of);
        runs.into_iter().map(|run| run.0.as_u128()).collect()
    }

    #[test]
    fn places_belong_to_workflows() {
        let waiting = vec![due("a", 0, 1), due("b", 0, 2), due("a", 0, 3), due("b", 0, 4)];
        assert_eq!(chosen(3, waiting.clone(), Vec::new()), [1, 2, 3]);
        assert_eq!(
            chosen(2, waiting.clone(), vec![due("b", 9, 90), due("b", 9, 91)]),
            [1, 90],
            "an urgent run takes a place of its own workflow only"
        );
        assert_eq!(chosen(3, waiting.clone(), vec![due("a", 9, 90)]), [90, 2, 1]);
        assert_eq!(
            chosen(1, waiting, vec![due("c", 9, 90)]),
            [1],
            "a workflow without a place takes none"
        );
    }

    #[test]
    fn nobody_comes_twice_and_the_unimportant_come_last() {
        let waiting = vec![due("a", -1, 1), due("a", 5, 2), due("a", 0, 3), due("a", 0, 4)];
        assert_eq!(chosen(2, waiting.clone(), vec![due("a", 5, 2)]), [2, 3]);
        assert_eq!(chosen(9, waiting, vec![due("a", 5, 2)]), [2, 3, 4, 1]);
    }
}
