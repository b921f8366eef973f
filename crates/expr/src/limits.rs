//! The limits of an evaluation, and the meter that counts its use.
//!
//! What must stay true: everything except the timeout depends only on source, data and limits, so a
//! repeated evaluation reaches the same limit at the same place. Work and memory are charged *before*
//! they are used. Memory is the total of all values that the evaluation made; dropped values are not
//! subtracted, so the count does not depend on when they are dropped.

use std::time::{Duration, Instant};

use crate::error::EvalErrorKind;

/// The limits of a condition. The default has the values of the specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How many statements may run: one for the expression, one for every call of an arrow function.
    pub max_statements: u32,
    /// How deeply calls of arrow functions may nest.
    pub max_depth: u32,
    /// How many bytes of values the evaluation may create; the input is not counted.
    pub memory_bytes: usize,
    /// How long the evaluation may take.
    pub timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_statements: 500,
            max_depth: 10,
            memory_bytes: 4 * 1024 * 1024,
            timeout: Duration::from_secs(2),
        }
    }
}

/// A limit that was reached: its kind and its message.
pub(crate) type LimitHit = (EvalErrorKind, String);

/// The number of steps between two reads of the clock.
const STEPS_PER_LOOK: u64 = 4096;

/// Counts steps and reads the clock from time to time.
#[derive(Debug)]
pub(crate) struct Clock {
    steps: u64,
    next_look: u64,
    timeout: Duration,
    started: Option<Instant>,
}

impl Clock {
    /// The first read of the clock starts the time limit. The steps before it take microseconds.
    pub fn new(timeout: Duration) -> Self {
        Self {
            steps: 0,
            next_look: if timeout.is_zero() { 0 } else { STEPS_PER_LOOK },
            timeout,
            started: None,
        }
    }

    /// Accounts `work` steps.
    #[inline]
    pub fn step(&mut self, work: usize) -> Result<(), LimitHit> {
        self.steps = self.steps.saturating_add(work as u64);
        if self.steps < self.next_look {
            return Ok(());
        }
        self.look()
    }

    #[cold]
    fn look(&mut self) -> Result<(), LimitHit> {
        self.next_look = self.steps.saturating_add(STEPS_PER_LOOK);
        let now = Instant::now();
        let started = *self.started.get_or_insert(now);
        if now.duration_since(started) < self.timeout {
            return Ok(());
        }
        let message = format!("took longer than {:?}", self.timeout);
        Err((EvalErrorKind::Timeout, message))
    }
}

/// Counts what one evaluation of a condition uses.
#[derive(Debug)]
pub(crate) struct Meter {
    limits: Limits,
    clock: Clock,
    statements: u32,
    memory: usize,
}

impl Meter {
    pub fn new(limits: &Limits) -> Self {
        Self {
            limits: *limits,
            clock: Clock::new(limits.timeout),
            statements: 0,
            memory: 0,
        }
    }

    #[inline]
    pub fn step(&mut self, work: usize) -> Result<(), LimitHit> {
        self.clock.step(work)
    }

    pub fn statement(&mut self) -> Result<(), LimitHit> {
        if self.statements >= self.limits.max_statements {
            let message = format!("ran more than {} statements", self.limits.max_statements);
            return Err((EvalErrorKind::StatementLimit, message));
        }
        self.statements += 1;
        Ok(())
    }

    /// Accounts `bytes` of new values, and the work of writing them.
    pub fn memory(&mut self, bytes: usize) -> Result<(), LimitHit> {
        let total = self.memory.saturating_add(bytes);
        if total > self.limits.memory_bytes {
            let message = format!("needs more than {} bytes of memory", self.limits.memory_bytes);
            return Err((EvalErrorKind::MemoryLimit, message));
        }
        self.memory = total;
        self.clock.step(bytes / 64)
    }

    /// Checks a call depth (the number of calls that would then be open).
    pub fn depth(&self, open: u32) -> Result<(), LimitHit> {
        if open > self.limits.max_depth {
            let message = format!("calls nest deeper than {}", self.limits.max_depth);
            return Err((EvalErrorKind::DepthLimit, message));
        }
        Ok(())
    }

    #[cfg(test)]
    pub fn used_memory(&self) -> usize {
        self.memory
    }
}
