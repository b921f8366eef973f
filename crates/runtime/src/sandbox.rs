//! Expressions whose cost is not bounded by their size, evaluated in child processes that can be killed: JavaScript and
//! JSONLogic beyond the native subsets, and all CEL. One child serves all languages.
//!
//! **Threats.** A tenant writes the condition and may control the data it reads. It may loop for ever, exhaust memory, nest
//! without end, spend minutes inside one builtin that no interrupt reaches, or crash the engine. None of this may stop the
//! server, delay other runs for long, or show one tenant's data to another. A condition can only damage its own verdict, which
//! is false then, with the error recorded.
//!
//! **Defence.** The engine runs in a child: the same binary, started as `fermata sandbox` ([`serve_child`]). It reads requests
//! from stdin and writes responses to stdout. It has no environment variables and 256 MiB of memory. Before the first request
//! it drops everything else (`confine.rs`): root and capabilities, files, sockets, processes, threads and executable memory,
//! by a seccomp filter that allows only a list of system calls, and by Landlock. A request contains only the data that its
//! source reads, and JavaScript gets its own runtime, which is dropped after the response. The time limit is enforced twice:
//! in the child by the interrupt of QuickJS, and in the parent ([`Sandbox`]) by SIGKILL shortly afterwards; CEL and JSONLogic
//! have no interrupt. A child that dies is replaced. A request whose child died before the deadline is sent once more, which is
//! safe because evaluation has no effects. The parent sends no CEL that is long, nests deeply or chains many operators
//! (`fermata_expr::cel`): parsers of CEL recurse, and a stack overflow would end the child.
//!
//! **Limits of the defence.** A script that exploits a bug in QuickJS and takes over the child can compute, read later requests
//! of other tenants to the same child, answer them wrongly, and attack the kernel through the few allowed system calls (memory,
//! clocks, signals to itself). If the kernel lacks seccomp, Landlock or the right to change the user, the other steps are done
//! all the same, and a warning in the log names what is missing. The filter exists on Linux (x86-64, ARM64, RISC-V); other
//! systems have only the resource limits.
//!
//! **Differences to the native evaluator.** QuickJS cannot count statements (500) and call depth (10). The time limit replaces
//! the first, a stack of 256 KiB (a few hundred calls) the second. The memory limit applies to what the engine has allocated at
//! a time, not to the total of all allocations. CEL and JSONLogic have only the limit of the process, 256 MiB; a child that
//! exceeds it ends, and the evaluation with it.
//!
//! JavaScript is that of scripts: sloppy mode; the value of the last statement is the result. There is no `eval`, no
//! `Function` (however it is reached), no `Math.random`, no `Proxy`, no `WeakRef`, no typed arrays or shared memory, no
//! modules. `Date` exists for sources that contain its name; it does not know the current time, and its time zone is UTC.

mod cel;
mod child;
mod confine;
mod js;
mod logic;
mod pool;
mod protocol;

pub use child::serve_child;
pub use pool::Sandbox;

use fermata_expr::{EvalError, SandboxLanguage, SyntaxError};
use std::{path::PathBuf, time::Duration};

/// How sandbox processes are started and kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxSettings {
    /// The program and its arguments; by default this program with the argument `sandbox`.
    pub command: Option<(PathBuf, Vec<String>)>,
    /// How many evaluations may run at the same time, each in its own process. Further ones wait. When all processes are busy, a
    /// tenant or workflow without one may use one of a small reserve.
    pub max_children: usize,
    /// A process that was idle for this long is ended.
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

/// A source and its language. A plain text is JavaScript.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source<'a> {
    /// The language.
    pub language: SandboxLanguage,
    /// The source.
    pub text: &'a str,
}

impl<'a> Source<'a> {
    /// A rule of JSONLogic, as JSON.
    pub fn jsonlogic(text: &'a str) -> Source<'a> {
        Source {
            language: SandboxLanguage::JsonLogic,
            text,
        }
    }

    /// An expression of CEL.
    pub fn cel(text: &'a str) -> Source<'a> {
        Source {
            language: SandboxLanguage::Cel,
            text,
        }
    }
}

impl<'a> From<&'a str> for Source<'a> {
    fn from(text: &'a str) -> Source<'a> {
        Source {
            language: SandboxLanguage::Js,
            text,
        }
    }
}

impl<'a> From<&'a String> for Source<'a> {
    fn from(text: &'a String) -> Source<'a> {
        Source::from(text.as_str())
    }
}

/// Why there is no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SandboxError {
    /// The source is not a valid program.
    #[error("SyntaxError: {}", .0.message)]
    Syntax(SyntaxError),
    /// The program threw or exceeded a limit.
    #[error("{}", .0.message)]
    Failed(EvalError),
    /// It exceeded its time limit and was killed.
    #[error("took longer than {0:?}; the sandbox process was killed")]
    Killed(Duration),
    /// The process ended without a response, twice.
    #[error(
        "the sandbox process ended without a response ({0}); the expression may need more memory or stack than it is allowed"
    )]
    Crashed(String),
    /// The process cannot be started.
    #[error("the sandbox cannot be started: {0}")]
    Unavailable(String),
}

impl SandboxError {
    /// Whether the time limit was exceeded, in the child or in the parent.
    pub fn is_timeout(&self) -> bool {
        match self {
            SandboxError::Killed(_) => true,
            SandboxError::Failed(error) => error.kind == fermata_expr::EvalErrorKind::Timeout,
            _ => false,
        }
    }
}
