//! The API over HTTP: a real server on a real socket, the real engine, the memory store.

mod barrage;
mod browsers;
mod callbacks;
mod cancel;
mod dead_letters;
mod drafts;
mod executions;
mod facade;
mod harness;
mod lifecycle;
mod limits;
mod lists;
mod reference;
mod released;
mod runners;
mod runs;
mod service;
mod starting;
mod surroundings;
mod tasks;
mod workflows;
