//! The real binary, from outside: what it prints, what it serves, how it ends.

mod bench;
mod chaos;
mod cli_client;
mod cli_eval;
mod cli_get;
mod cli_ids;
mod cli_messages;
mod cli_run;
mod cli_runlater;
mod cli_tools;
mod cli_validate;
mod cli_workflows;
mod crash;
mod dead_letters;
mod dev;
mod differential;
mod disk;
mod limits;
mod migrate;
mod postgres;
mod prune;
mod runlater;
mod sandbox;
mod serve;
mod support;
mod transfer;
