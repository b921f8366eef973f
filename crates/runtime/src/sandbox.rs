//! Conditions that the native subset does not cover, evaluated by a full JavaScript engine in processes that can be
//! killed.
//!
//! **What is defended against.** A condition is written by a tenant, and so is the data it reads. It may loop for ever,
//! fill the memory, nest without end, spend minutes inside one builtin that no interrupt reaches, or crash the engine.
//! None of this may stop the server, hold up other runs for long, or show one tenant's data to another. What it can
//! damage is its own verdict: it is false then, and says why.
//!
//! **How.** The engine runs in a child: the same binary, started as `fermata sandbox` ([`serve_child`]). It gets a
//! question on stdin and answers on stdout; it has no environment, 256 MiB, and before the first question it gives up
//! everything else (`confine.rs`): root and capabilities, files, sockets, processes, threads and executable memory, by a
//! seccomp filter that lists what is left, and by Landlock. Every question carries only the paths its source reads, and gets a runtime of its own that
//! is thrown away after the answer. The time limit is kept twice: in the child by the engine's interrupt, and in the
//! parent ([`Sandbox`]) by SIGKILL a moment later. A child that dies is replaced; a question whose child died by
//! something else than its deadline is asked once more, which is safe because evaluating has no effects.
//!
//! **What is not.** A hole in QuickJS that lets a script take over the child lets it compute, read later questions of
//! other tenants that the same child is asked, answer them wrongly, and try the kernel's bugs behind the few system calls
//! that are left (memory, clocks, signals to itself). Where the kernel lacks seccomp, Landlock or the right to change the
//! user, the rest is done all the same, and a warning in the log names what is missing. The filter is there on Linux (x86-64,
//! ARM64, RISC-V); elsewhere only the limits are.
//!
//! **Differences to the native evaluator.** Statements (500) and call depth (10) cannot be counted in QuickJS. The time
//! limit stands in for the first, a stack of 256 KiB (a few hundred calls) for the second. Memory is what the engine
//! has allocated at a time, not the total that was ever made.
//!
//! The language is that of scripts: sloppy mode, the value of the last statement. There is no `eval`, no `Function`
//! (by any way to it), no `Math.random`, no `Proxy`, no `WeakRef`, no typed arrays or shared memory, no modules. `Date`
//! exists for sources that write its name; it does not know the current time, and its time zone is UTC.

mod child;
mod confine;
mod js;
mod pool;
mod protocol;

pub use child::serve_child;
pub use pool::Sandbox;

use fermata_expr::{EvalError, SyntaxError};
use std::{path::PathBuf, time::Duration};

/// How sandbox processes are started and kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxSettings {
    /// The program and its arguments; this program with `sandbox` if not given.
    pub command: Option<(PathBuf, Vec<String>)>,
    /// How many evaluations may go on at once, each in a process of its own. More wait. A tenant or workflow that has
    /// none may start one of a few more at once, when all are taken.
    pub max_children: usize,
    /// A process that was not needed for this long ends.
    pub idle_timeout: Duration,
}

impl Default for SandboxSettings {
    fn default() -> Self {
        SandboxSettings {
            command: None,
            max_children: 4,
            idle_timeout: Duration::from_secs(60),
        }
    }
}

/// Why there is no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SandboxError {
    /// The source is no program.
    #[error("SyntaxError: {}", .0.message)]
    Syntax(SyntaxError),
    /// The program threw or met a limit.
    #[error("{}", .0.message)]
    Failed(EvalError),
    /// It did not end in time and was killed.
    #[error("took longer than {0:?}; the process that evaluated it was killed")]
    Killed(Duration),
    /// The process ended without an answer, twice.
    #[error("the process that evaluated it ended without an answer ({0})")]
    Crashed(String),
    /// There is no process to ask.
    #[error("the sandbox cannot be started: {0}")]
    Unavailable(String),
}

impl SandboxError {
    /// Whether the time limit was met, wherever that was noticed.
    pub fn is_timeout(&self) -> bool {
        match self {
            SandboxError::Killed(_) => true,
            SandboxError::Failed(error) => error.kind == fermata_expr::EvalErrorKind::Timeout,
            _ => false,
        }
    }
}
