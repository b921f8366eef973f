//! How many items of a step have ended, for its line.

use fermata_core::Timestamp;
use std::fmt;

pub(super) struct ItemCounts {
    total: u32,
    succeeded: u32,
    failed: u32,
    /// When the step times out.
    pub until: Option<Timestamp>,
}

impl ItemCounts {
    pub fn new(total: u32, until: Option<Timestamp>) -> ItemCounts {
        ItemCounts {
            total,
            succeeded: 0,
            failed: 0,
            until,
        }
    }

    /// Counts items that ended. True if another tenth of all items has ended, but not the last.
    pub fn add(&mut self, succeeded: u32, failed: u32) -> bool {
        let before = self.tenths();
        self.succeeded += succeeded;
        self.failed += failed;
        self.tenths() > before && self.succeeded + self.failed < self.total
    }

    fn tenths(&self) -> u64 {
        let ended = u64::from(self.succeeded) + u64::from(self.failed);
        ended * 10 / u64::from(self.total.max(1))
    }
}

impl fmt::Display for ItemCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ended = self.succeeded + self.failed;
        write!(f, "{ended} of {} items ended", self.total)?;
        match self.failed {
            0 => Ok(()),
            failed => write!(f, ", {failed} failed"),
        }
    }
}
