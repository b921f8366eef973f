//! Tests of the API over HTTP: a real server on a real socket, the real engine, and the memory store.

mod browsers;
mod callbacks;
mod cancel;
mod dead_letters;
mod delete;
mod drafts;
mod every_request;
mod executions;
mod facade;
mod harness;
mod inbox;
mod invalid_requests;
mod jsondagapi;
mod lifecycle;
mod limits;
mod lists;
mod reference;
mod runners;
mod runs;
mod service;
mod starting;
mod tasks;
mod without_drafts;
mod workflows;
