//! SIGINT and SIGTERM: the first asks, the second insists.

use std::{io, process::ExitCode};
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// A wish that this process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Ctrl-C.
    Interrupt,
    /// From a supervisor.
    Terminate,
}

impl Signal {
    /// What a process answers that was ended by it.
    pub fn code(self) -> u8 {
        match self {
            Signal::Interrupt => 130,
            Signal::Terminate => 143,
        }
    }

    /// The same, for a return from `main`.
    pub fn exit_code(self) -> ExitCode {
        ExitCode::from(self.code())
    }
}

/// Lets a write beyond the largest file size of this process (`ulimit -f`) fail, instead of ending the process. For as long
/// as the process lives.
pub fn survive_file_size_limit() -> io::Result<()> {
    let number = rustix::process::Signal::XFSZ.as_raw();
    signal(SignalKind::from_raw(number)).map(drop) // the handler stays
}

/// The signals as they come. From its making on they no longer end the process by themselves.
pub struct Signals {
    interrupt: Stream,
    terminate: Stream,
}

impl Signals {
    /// Begins to listen.
    pub fn listen() -> io::Result<Signals> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// The next one. Safe to drop and ask again.
    pub async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::Interrupt,
            _ = self.terminate.recv() => Signal::Terminate,
        }
    }
}
