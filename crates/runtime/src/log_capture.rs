//! Captures log lines in unit tests.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
};
use tracing::{Level, subscriber::DefaultGuard};

/// Lines that this thread logs at `info` and above, for as long as this lives.
pub(crate) struct LogCapture {
    lines: Lines,
    _guard: DefaultGuard,
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl LogCapture {
    pub fn begin() -> LogCapture {
        // Without a global subscriber, a log line that a test without capture reaches first is cached as disabled.
        let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry()); // may be set already
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_max_level(Level::INFO)
            .with_writer(move || writer.clone())
            .finish();
        LogCapture {
            lines,
            _guard: tracing::subscriber::set_default(subscriber),
        }
    }

    /// The lines since this was last called.
    pub fn take(&self) -> Vec<String> {
        let mut lines = self.lines.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&lines).into_owned();
        lines.clear();
        text.lines().map(str::to_owned).collect()
    }
}
