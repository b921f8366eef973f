//! A connection whose client must read: if nothing can be written for too long, it is closed.

use std::{
    future::Future,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep_until},
};

/// A stream with a limit on how long a write may make no progress.
pub(crate) struct Patient<S> {
    stream: S,
    patience: Duration,
    /// When a write that waits is given up.
    deadline: Pin<Box<Sleep>>,
    waits: bool,
}

impl<S> Patient<S> {
    pub fn new(stream: S, patience: Duration) -> Patient<S> {
        Patient {
            stream,
            patience,
            deadline: Box::pin(sleep_until(Instant::now())),
            waits: false,
        }
    }

    pub fn get_ref(&self) -> &S {
        &self.stream
    }

    /// The same result, or an error if the write has waited for too long.
    fn watched<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waits = false;
            return written;
        }
        if !self.waits {
            self.waits = true;
            self.deadline.as_mut().reset(Instant::now() + self.patience);
        }
        ready!(self.deadline.as_mut().poll(context));
        let message = "the client did not read its answer in time";
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, message)))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watched(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.watched(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.watched(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn a_write_without_progress_is_given_up() {
        let (ours, mut theirs) = tokio::io::duplex(10);
        let mut ours = Patient::new(ours, Duration::from_millis(20));
        ours.write_all(&[0; 10]).await.unwrap();
        theirs.read_exact(&mut [0; 10]).await.unwrap();
        ours.write_all(&[0; 10]).await.unwrap();
        let error = ours.write_all(&[0; 1]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
