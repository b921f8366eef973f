//! A test for every heading of the specification's "Edge Cases", named after it, that asserts its sentences one by one.
//!
//! | heading | where |
//! | --- | --- |
//! | Task Failure in a Workflow, Workflow Run Terminal Status, Cascade Skipping | `outcomes` |
//! | Circular Dependencies, Orphaned Needs Validation | `documents` |
//! | Template Resolution Failures, Response Payload Limits | `payloads` |
//! | Long-Running Workflows, Wait Step Timeouts, Sleep Step Precision, Workflow Run Timeout | `time` |
//! | Concurrent Runs, Multi-Node Concurrency, Engine Recovery (Safety Net) | `engines` |
//!
//! Where the specification tells how it works inside (advisory locks, ticks, PubSub), what is asserted is what that is for.

mod documents;
mod engines;
mod outcomes;
mod payloads;
mod time;
