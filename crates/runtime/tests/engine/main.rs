//! The engine end to end: real documents, real actions, the memory store, an HTTP service on loopback.

mod conditions;
mod flow;
mod http;
mod parameters;
mod roles;
mod support;
mod tasks;
mod workflows;
