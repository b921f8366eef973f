//! The API over HTTP: a real server on a real socket, the real engine, the memory store.

mod cancel;
mod executions;
mod harness;
mod starting;
mod surroundings;
mod workflows;
