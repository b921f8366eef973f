//! What only a file can show: reopening, locks, damage, full disks, query plans.
