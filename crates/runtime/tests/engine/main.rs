//! The engine end to end: real documents, real actions, the memory store, an HTTP service on loopback. Runs started by SQL use
//! PostgreSQL, and all tests do with `FERMATA_TEST_DATABASE=postgres`.

mod action_slots;
mod callbacks;
mod child_documents;
mod children;
mod commands;
mod conditions;
mod cost;
mod dead_letters;
mod decisions;
mod dry_run;
mod flow;
mod flow_control;
mod for_each;
mod http;
mod large;
mod lease;
#[path = "../../src/log_capture.rs"]
mod log_capture;
mod logs;
mod memory;
mod parameters;
mod plans;
mod rejected;
mod requests;
mod rerun;
mod retention;
mod roles;
mod runners;
mod sql;
mod state;
mod stopping;
mod support;
mod tasks;
mod tenants;
mod traces;
mod triggers;
mod workflows;
