//! SIGINT and SIGTERM: the first stops the process in order, the second ends it at once.

use std::{io, process::ExitCode};
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// A signal that ends this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Ctrl-C.
    Interrupt,
    /// From a supervisor.
    Terminate,
}

impl Signal {
    /// The exit code of a process that the signal ended.
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

/// Makes a write beyond the file size limit (`ulimit -f`) fail instead of ending the process.
pub fn survive_file_size_limit() -> io::Result<()> {
    let number = rustix::process::Signal::XFSZ.as_raw();
    signal(SignalKind::from_raw(number)).map(drop) // the handler stays
}

/// Receives the signals. While it exists they do not end the process by themselves.
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
