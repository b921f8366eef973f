//! A stream of server-sent events that connects again when the connection breaks.

use super::{Client, ClientError};
use reqwest::{Response, Url};
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// A server sends something at least every 15 seconds. A connection that is silent for longer is dead.
const SILENCE: Duration = Duration::from_secs(45);

/// How long a server may be unreachable before that is an error.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(500);

/// A message of a stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Message {
    pub event: String,
    pub data: String,
}

/// A stream of messages.
pub(super) struct Stream<'a> {
    client: &'a Client,
    url: Url,
    connection: Option<Response>,
    parser: Parser,
    /// When the connection broke.
    broken_since: Option<Instant>,
}

impl<'a> Stream<'a> {
    pub fn new(client: &'a Client, path: &[&str]) -> Stream<'a> {
        Stream {
            client,
            url: client.url(path),
            connection: None,
            parser: Parser::default(),
            broken_since: None,
        }
    }

    /// The next message. Connects again if the connection breaks. May be dropped while it waits.
    pub async fn next(&mut self) -> Result<Message, ClientError> {
        loop {
            if let Some(message) = self.parser.take() {
                return Ok(message);
            }
            let Some(connection) = &mut self.connection else {
                self.connect().await?;
                continue;
            };
            match timeout(SILENCE, connection.chunk()).await {
                Ok(Ok(Some(bytes))) => self.parser.add(&bytes),
                // The server stops, or the connection broke: continue after the last message.
                Ok(Ok(None) | Err(_)) | Err(_) => {
                    self.connection = None;
                    self.parser.forget_rest();
                }
            }
        }
    }

    async fn connect(&mut self) -> Result<(), ClientError> {
        let broken_since = *self.broken_since.get_or_insert_with(Instant::now);
        match self
            .client
            .open_stream(self.url.clone(), self.parser.last_id.as_deref())
            .await
        {
            Ok(connection) => {
                self.connection = Some(connection);
                self.broken_since = None;
                Ok(())
            }
            Err(error) if error.is_passing() && broken_since.elapsed() < PATIENCE => {
                tokio::time::sleep(PAUSE).await;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

/// Reads the format of server-sent events.
#[derive(Default)]
struct Parser {
    bytes: Vec<u8>,
    message: Message,
    id: Option<String>,
    /// The id of the last whole message that had one.
    last_id: Option<String>,
}

impl Parser {
    fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole message.
    fn take(&mut self) -> Option<Message> {
        while let Some(end) = self.bytes.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.bytes.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            let line = line.trim_end_matches(['\r', '\n']);
            if line.is_empty() {
                let message = std::mem::take(&mut self.message);
                if let Some(id) = self.id.take() {
                    self.last_id = Some(id);
                }
                if !message.data.is_empty() {
                    return Some(message);
                }
                continue;
            }
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "event" => value.clone_into(&mut self.message.event),
                "id" => self.id = Some(value.to_owned()),
                "data" => {
                    if !self.message.data.is_empty() {
                        self.message.data.push('\n');
                    }
                    self.message.data.push_str(value);
                }
                _ => {}
            }
        }
        None
    }

    /// A message that was not received whole is sent again.
    fn forget_rest(&mut self) {
        self.bytes.clear();
        self.message = Message::default();
        self.id = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_whole() {
        let mut parser = Parser::default();
        parser.add(b"retry: 1000\n\n:\n\nid: 4\r\nevent: events\r\ndata: [1]\r\n\r\nid: 5\nevent: ev");
        let message = |event: &str, data: &str| Message {
            event: event.to_owned(),
            data: data.to_owned(),
        };
        assert_eq!(parser.take(), Some(message("events", "[1]")));
        assert_eq!(parser.take(), None);
        assert_eq!(parser.last_id.as_deref(), Some("4"), "the message 5 is not whole");
        parser.forget_rest();
        parser.add(b"id:5\nevent:events\ndata:a\ndata: b\n\nevent: end\ndata: {}\n\n");
        assert_eq!(parser.take(), Some(message("events", "a\nb")));
        assert_eq!(parser.take(), Some(message("end", "{}")));
        assert_eq!((parser.take(), parser.last_id.as_deref()), (None, Some("5")));
    }
}
