//! Tools that measure Fermata and break what it depends on.
//!
//! [`bench`] is what `fermata bench` calls. The module `chaos`, behind the feature of that name, is the fault rig; only
//! the binary `rig` and tests use it, so it is not part of the shipped program.

pub mod bench;
#[cfg(feature = "chaos")]
pub mod chaos;
