//! One test for every heading of the specification's "Edge Cases". It has the name of the heading and asserts every
//! sentence below it.
//!
//! | heading | where |
//! | --- | --- |
//! | Task Failure in a Workflow, Workflow Run Terminal Status, Cascade Skipping | `outcomes` |
//! | Circular Dependencies, Orphaned Needs Validation | `documents` |
//! | Template Resolution Failures, Response Payload Limits | `payloads` |
//! | Long-Running Workflows, Wait Step Timeouts, Sleep Step Precision, Workflow Run Timeout | `time` |
//! | Concurrent Runs, Multi-Node Concurrency, Engine Recovery (Safety Net) | `engines` |
//!
//! Where the specification describes internals (advisory locks, ticks, PubSub), the test asserts their purpose.

mod documents;
mod engines;
mod outcomes;
mod payloads;
mod time;
