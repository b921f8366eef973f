//! A writer that fails at a limit, before the output becomes too long.

use std::io;

/// A writer that fails at a limit; without `out` it only counts.
pub(super) struct Limited {
    pub out: Option<Vec<u8>>,
    /// Bytes that may still be written.
    pub left: usize,
}

impl io::Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.left = self
            .left
            .checked_sub(bytes.len())
            .ok_or_else(|| io::Error::other("output limit"))?;
        if let Some(out) = &mut self.out {
            out.extend_from_slice(bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
