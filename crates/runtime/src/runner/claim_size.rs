//! How many runs one claim may bring.
//!
//! Free slots are to be used. A run that would wait for a slot should wait in the store, where another process with a free
//! slot can claim it. Some runs need no slot: they only route, sleep or end.
//!
//! | runs wait for a slot here | the claim may bring |
//! | --- | --- |
//! | no | the free slots and the allowance, minus the runs that are still arriving |
//! | yes | one run for each that stopped waiting |
//!
//! The *allowance* is how many runs may be claimed beyond the free slots. It grows by the runs that arrived while slots stayed
//! free, and is halved when runs wait for a slot.

/// At most this many runs come with one claim, so that other processes get their share.
pub(crate) const CLAIM_BATCH: usize = 64;

/// The largest allowance.
const MAX_ALLOWANCE: usize = 4 * CLAIM_BATCH;

/// The counts that decide the size of a claim.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Load {
    /// Slots that are free.
    pub idle: usize,
    /// Runs that wait for a slot.
    pub waiting: usize,
    /// Runs that were claimed and have not requested a slot yet.
    pub arriving: usize,
    /// Runs that finished arriving since the last claim.
    pub arrived: usize,
    /// Runs that stopped waiting for a slot since the last claim.
    pub vacated: usize,
    /// How many more runs this process may hold.
    pub places: usize,
    /// Whether one run is claimed also while all slots are taken, because it may need none.
    pub spare: bool,
}

/// The size of the next claim, and the allowance from then on.
pub(super) fn claim_size(load: Load, allowance: usize) -> (usize, usize) {
    let (fits, allowance) = if load.waiting == 0 {
        let needed_no_slot = if load.idle > load.arriving { load.arrived } else { 0 };
        let allowance = (allowance + needed_no_slot).min(MAX_ALLOWANCE);
        ((load.idle + allowance).saturating_sub(load.arriving), allowance)
    } else {
        (load.vacated, allowance / 2)
    };
    let size = fits.max(usize::from(load.spare)).min(load.places).min(CLAIM_BATCH);
    (size, allowance)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: Load = Load {
        idle: 8,
        waiting: 0,
        arriving: 0,
        arrived: 0,
        vacated: 0,
        places: 1000,
        spare: false,
    };
    const FULL: Load = Load {
        idle: 0,
        waiting: 5,
        ..FREE
    };

    #[test]
    #[rustfmt::skip]
    fn size_follows_from_the_counts() {
        let cases = [
            // case, load, allowance before, (size, allowance after)
            ("free slots are filled", FREE, 0, (8, 0)),
            ("arriving runs may need the free slots", Load { arriving: 3, ..FREE }, 0, (5, 0)),
            ("more runs arrive than slots are free", Load { arriving: 9, ..FREE }, 0, (0, 0)),
            ("runs that needed no slot raise the allowance", Load { arrived: 8, ..FREE }, 0, (16, 8)),
            ("the allowance adds up", Load { arrived: 8, ..FREE }, 8, (24, 16)),
            ("the allowance is bounded", Load { arrived: 500, ..FREE }, 0, (CLAIM_BATCH, MAX_ALLOWANCE)),
            ("arriving runs may have used up the slots", Load { arriving: 8, arrived: 8, ..FREE }, 4, (4, 4)),
            ("all slots are taken and no run waits", Load { idle: 0, ..FREE }, 0, (0, 0)),
            ("the allowance holds while all slots are taken", Load { idle: 0, ..FREE }, 6, (6, 6)),
            ("runs wait: nothing is claimed", FULL, 0, (0, 0)),
            ("runs wait: one is claimed for each that stopped waiting", Load { vacated: 3, ..FULL }, 0, (3, 0)),
            ("runs wait: the allowance is halved and not used", FULL, 9, (0, 4)),
            ("runs wait: free slots are for them", Load { idle: 2, ..FULL }, 0, (0, 0)),
            ("one run more may need no slot", Load { spare: true, ..FULL }, 0, (1, 0)),
            ("the spare run is not added to others", Load { spare: true, ..FREE }, 0, (8, 0)),
            ("places bound the claim", Load { places: 2, ..FREE }, 0, (2, 0)),
            ("no place, no claim", Load { places: 0, spare: true, ..FULL }, 0, (0, 0)),
            ("a claim has at most one batch", Load { idle: 500, ..FREE }, 0, (CLAIM_BATCH, 0)),
        ];
        for (case, load, allowance, expected) in cases {
            assert_eq!(claim_size(load, allowance), expected, "{case}");
        }
    }
}
