//! The real binary, from outside: what it prints, what it serves, how it ends.

mod cli_run;
mod cli_validate;
mod crash;
mod differential;
mod sandbox;
mod serve;
mod support;
