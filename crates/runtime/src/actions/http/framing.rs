//! A connection is not reused after a response without a body.
//!
//! A response to HEAD, and one with status 204 or 304, ends with its head. A service that sends a body all the same leaves
//! bytes on the connection. They may arrive after the next request was sent, possibly one of another run, and would be read as
//! the beginning of its response. So for the client the stream ends with the head of such a response. Responses over HTTP/2 are
//! framed, so they are not examined.
//!
//! | state | request is written | head of a response with a body | head without a body | 1xx |
//! | --- | --- | --- | --- | --- |
//! | `Body` | `Head` | | | |
//! | `Head` | `Head` | `Body` | `Ended` | `Head` |
//!
//! If a service sends more than its `Content-Length`, the client itself notices it when the rest arrives at once or while the
//! connection is idle. Bytes that arrive after the next request was sent fail that request.

use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

/// The client's first read has the same size.
const HEAD_READ: usize = 8 * 1024;

/// A connection whose stream ends with a response without a body.
pub(super) struct Framed<T> {
    stream: T,
    state: State,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    /// A response is awaited or its head is being read.
    Head { seen: Vec<u8>, to_head: bool },
    /// The rest of a response, or no request was sent yet.
    Body,
    /// Nothing more is read.
    Ended,
    /// HTTP/2: nothing is examined.
    Multiplexed,
}

impl<T: Connection> Framed<T> {
    pub(super) fn new(stream: T) -> Self {
        let state = match stream.connected().is_negotiated_h2() {
            true => State::Multiplexed,
            false => State::Body,
        };
        Framed { stream, state }
    }
}

impl State {
    /// A request or a part of one is sent. A new request begins only after a response, since requests are not pipelined.
    fn sent(&mut self, bytes: &[u8]) {
        if *self == State::Body {
            *self = State::Head {
                seen: Vec::new(),
                to_head: bytes.starts_with(b"HEAD "),
            };
        }
    }

    /// How many of these bytes belong to a response.
    fn take(&mut self, bytes: &[u8]) -> usize {
        let State::Head { seen, to_head } = self else {
            return bytes.len();
        };
        let before = seen.len();
        seen.extend_from_slice(bytes);
        let mut start = 0;
        loop {
            let head = &seen[start..];
            let status = match status(head) {
                Status::Known(status) => status,
                Status::NotYet => return bytes.len(),
                Status::None => break,
            };
            let is_interim = (100..200).contains(&status);
            if !is_interim && !*to_head && !matches!(status, 204 | 304) {
                break;
            }
            let Some(end) = head_end(head) else {
                return bytes.len();
            };
            start += end;
            if !is_interim {
                *self = State::Ended;
                return start.saturating_sub(before);
            }
        }
        *self = State::Body;
        bytes.len()
    }
}

enum Status {
    Known(u16),
    /// More bytes are needed.
    NotYet,
    /// This is not an HTTP/1 response.
    None,
}

/// The status of the response that begins here.
fn status(head: &[u8]) -> Status {
    const VERSION: &[u8] = b"HTTP/1.";
    let shared = head.len().min(VERSION.len());
    if head[..shared] != VERSION[..shared] {
        return Status::None;
    }
    let Some(digits) = head.get(9..12) else {
        return Status::NotYet;
    };
    let text = std::str::from_utf8(digits).ok();
    text.and_then(|text| text.parse().ok())
        .map_or(Status::None, Status::Known)
}

/// Where the head ends: after the first empty line.
fn head_end(head: &[u8]) -> Option<usize> {
    let ends = |at: usize| match head.get(at + 1)? {
        b'\n' => Some(at + 2),
        b'\r' if head.get(at + 2) == Some(&b'\n') => Some(at + 3),
        _ => None,
    };
    let lines = (0..head.len()).filter(|at| head[*at] == b'\n');
    lines.into_iter().find_map(ends)
}

impl<T: Read + Unpin> Read for Framed<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, mut buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match this.state {
            State::Body | State::Multiplexed => return Pin::new(&mut this.stream).poll_read(cx, buf),
            State::Ended => return Poll::Ready(Ok(())),
            State::Head { .. } => {}
        }
        let mut bytes = [0; HEAD_READ];
        let room = buf.remaining().min(HEAD_READ);
        let mut read = ReadBuf::new(&mut bytes[..room]);
        ready!(Pin::new(&mut this.stream).poll_read(cx, read.unfilled()))?;
        let count = this.state.take(read.filled());
        buf.put_slice(&read.filled()[..count]);
        Poll::Ready(Ok(()))
    }
}

impl<T: Write + Unpin> Write for Framed<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.state.sent(bytes);
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.state.sent(parts.first().map_or(&[], |part| part));
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }
}

impl<T: Connection> Connection for Framed<T> {
    fn connected(&self) -> Connected {
        self.stream.connected()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that are passed on of these pieces, and the state afterwards.
    fn read(request: &[u8], pieces: &[&str]) -> (String, State) {
        let mut state = State::Body;
        state.sent(request);
        let mut out = String::new();
        for piece in pieces {
            if state == State::Ended {
                break;
            }
            let count = state.take(piece.as_bytes());
            out.push_str(&piece[..count]);
        }
        (out, state)
    }

    #[test]
    fn response_without_a_body_ends_the_stream() {
        let no_content = "HTTP/1.1 204 No Content\r\nA: b\r\n\r\n";
        let fine = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n";
        for (request, answer, rest, ends) in [
            ("POST / HTTP/1.1\r\n", no_content, "a body", true),
            (
                "GET / HTTP/1.1\r\n",
                "HTTP/1.1 304 Not Modified\r\n\r\n",
                "a body",
                true,
            ),
            ("GET / HTTP/1.1\r\n", "HTTP/1.0 204 Bare\n\n", "\na body", true),
            ("HEAD / HTTP/1.1\r\n", fine, "a body", true),
            ("GET / HTTP/1.1\r\n", fine, "HTTP/1.1 204 x\r\n\r\nmore", false),
            ("GET / HTTP/1.1\r\n", "no answer", " at all\r\n\r\n", false),
            ("GET / HTTP/1.1\r\n", "HTTP/1.1 2x4 No\r\n", "\r\nbody", false),
        ] {
            let whole = format!("{answer}{rest}");
            let interim = format!("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nA: b\r\n\r\n{whole}");
            let before = interim.len() - whole.len();
            for (text, begin) in [(whole.as_str(), 0), (interim.as_str(), before)] {
                let expected = if ends { &text[..begin + answer.len()] } else { text };
                for cut in 0..text.len() {
                    let (out, state) = read(request.as_bytes(), &[&text[..cut], &text[cut..]]);
                    assert_eq!((out.as_str(), state == State::Ended), (expected, ends), "{text} {cut}");
                }
            }
        }
    }

    #[test]
    fn next_request_awaits_a_head() {
        let mut state = State::Body;
        state.sent(b"HEAD /");
        state.sent(b"more of it");
        assert!(matches!(state, State::Head { to_head: true, .. }));
        let mut state = State::Body;
        state.sent(b"GET /");
        state.take(b"HTTP/1.1 200 OK\r\n\r\n");
        assert_eq!(state, State::Body);
        state.sent(b"HEAD /");
        assert!(matches!(state, State::Head { to_head: true, .. }));
        let mut state = State::Multiplexed;
        state.sent(b"HEAD /");
        assert_eq!(state, State::Multiplexed);
    }
}
