//! The client side of the PostgreSQL protocol, split into messages: enough to see where a transaction ends.

use std::collections::HashMap;

const STARTUP: u32 = 196_608;
const TLS_REQUEST: u32 = 80_877_103;
/// No client sends longer messages. A longer one is not the protocol.
const LONGEST: usize = 256 << 20;

/// A complete message, as it was sent.
#[derive(Debug, PartialEq, Eq)]
pub struct Message {
    /// Zero for startup messages, which have no type.
    tag: u8,
    pub bytes: Vec<u8>,
}

/// What a message means for the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// A request for TLS. It is answered with `N` and not forwarded.
    Tls,
    /// After this message the server commits a transaction that may have written something.
    Commit,
    Other,
}

/// The data is not the protocol.
#[derive(Debug)]
pub struct Nonsense;

/// The client's side of one connection.
#[derive(Debug, Default)]
pub struct Frontend {
    buffer: Vec<u8>,
    begun: bool,
    in_transaction: bool,
    /// Prepared statements, and whether they write.
    statements: HashMap<Vec<u8>, bool>,
    /// Whether a statement that writes was bound since the last Sync.
    writes: bool,
}

impl Frontend {
    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete message, if there is one.
    pub fn next(&mut self) -> Result<Option<(Message, Meaning)>, Nonsense> {
        let tagged = usize::from(self.begun);
        let Some(length) = self.buffer.get(tagged..tagged + 4) else {
            return Ok(None);
        };
        let length = u32::from_be_bytes([length[0], length[1], length[2], length[3]]) as usize + tagged;
        if !(4 + tagged..LONGEST).contains(&length) {
            return Err(Nonsense);
        }
        if self.buffer.len() < length {
            return Ok(None);
        }
        let rest = self.buffer.split_off(length);
        let message = Message {
            tag: if self.begun { self.buffer[0] } else { 0 },
            bytes: std::mem::replace(&mut self.buffer, rest),
        };
        let meaning = self.meaning(&message);
        Ok(Some((message, meaning)))
    }

    fn meaning(&mut self, message: &Message) -> Meaning {
        let body = message.bytes.get(5..).unwrap_or_default();
        let mut texts = body.split(|byte| *byte == 0);
        match message.tag {
            0 => {
                let code = message.bytes.get(4..8).unwrap_or_default();
                let is = |number: u32| code == number.to_be_bytes();
                self.begun = is(STARTUP);
                if is(TLS_REQUEST) {
                    return Meaning::Tls;
                }
            }
            // A simple query.
            b'Q' => return self.query(texts.next().unwrap_or_default()),
            // Parse: the name, then the text.
            b'P' => {
                if let (Some(name), Some(sql)) = (texts.next(), texts.next()) {
                    self.statements.insert(name.to_owned(), writes(sql));
                }
            }
            // Bind: a portal, then the name of the statement.
            b'B' => {
                let statement = texts.nth(1).and_then(|name| self.statements.get(name));
                self.writes |= statement.copied().unwrap_or(false);
            }
            // Sync without a statement that writes commits nothing.
            b'S' => {
                let writes = std::mem::take(&mut self.writes);
                if writes && !self.in_transaction {
                    return Meaning::Commit;
                }
            }
            _ => {}
        }
        Meaning::Other
    }

    fn query(&mut self, sql: &[u8]) -> Meaning {
        let sql = String::from_utf8_lossy(sql).to_ascii_uppercase();
        let mut meaning = Meaning::Other;
        for statement in sql.split(';') {
            match statement.split_whitespace().next() {
                Some("BEGIN" | "START") => self.in_transaction = true,
                Some("ROLLBACK") => self.in_transaction = false,
                Some("COMMIT" | "END") => {
                    self.in_transaction = false;
                    meaning = Meaning::Commit;
                }
                _ => {}
            }
        }
        meaning
    }
}

fn writes(sql: &[u8]) -> bool {
    let first = sql
        .split(|byte| byte.is_ascii_whitespace())
        .find(|word| !word.is_empty());
    ["INSERT", "UPDATE", "DELETE", "WITH"]
        .iter()
        .any(|word| first.is_some_and(|first| first.eq_ignore_ascii_case(word.as_bytes())))
}

/// Whether this is the end of a server's response outside of a transaction.
pub fn is_idle(end_of_answer: &[u8]) -> bool {
    end_of_answer.ends_with(b"Z\0\0\0\x05I")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![tag];
        bytes.extend((body.len() as u32 + 4).to_be_bytes());
        bytes.extend(body);
        bytes
    }

    fn startup(code: u32) -> Vec<u8> {
        let mut bytes = 8u32.to_be_bytes().to_vec();
        bytes.extend(code.to_be_bytes());
        bytes
    }

    /// The meanings of all messages in these bytes, split at any place.
    fn meanings(bytes: &[u8], piece: usize) -> Vec<Meaning> {
        let mut frontend = Frontend::default();
        let (mut meanings, mut passed) = (Vec::new(), Vec::new());
        for piece in bytes.chunks(piece) {
            frontend.push(piece);
            while let Some((message, meaning)) = frontend.next().unwrap() {
                passed.extend(message.bytes);
                meanings.push(meaning);
            }
        }
        assert_eq!(passed, bytes, "every byte is passed on");
        meanings
    }

    #[test]
    fn ends_of_transactions_are_found() {
        use Meaning::{Commit, Other, Tls};
        let said: Vec<(Vec<u8>, Meaning)> = vec![
            (startup(TLS_REQUEST), Tls),
            (startup(STARTUP), Other),
            (message(b'P', b"s1\0 insert INTO t SELECT 'COMMIT'\0\0\0"), Other),
            (message(b'P', b"s2\0SELECT 1\0\0\0"), Other),
            // Outside of a transaction block a statement that writes is a transaction; one that reads does not matter.
            (message(b'B', b"\0s1\0\0\0"), Other),
            (message(b'E', b"\0\0\0\0\0"), Other),
            (message(b'S', b""), Commit),
            (message(b'B', b"\0s2\0\0\0"), Other),
            (message(b'S', b""), Other),
            // Inside a transaction block only its end matters.
            (message(b'Q', b"DISCARD PLANS; BEGIN\0"), Other),
            (message(b'B', b"\0s1\0\0\0"), Other),
            (message(b'S', b""), Other),
            (message(b'Q', b"COMMIT\0"), Commit),
            (message(b'Q', b"begin\0"), Other),
            (message(b'Q', b"ROLLBACK\0"), Other),
            (message(b'Q', b"SELECT 'x COMMIT'\0"), Other),
        ];
        let bytes: Vec<u8> = said.iter().flat_map(|(bytes, _)| bytes.clone()).collect();
        let expected: Vec<Meaning> = said.iter().map(|(_, meaning)| *meaning).collect();
        for piece in [1, 3, 7, bytes.len()] {
            assert_eq!(meanings(&bytes, piece), expected);
        }
    }

    #[test]
    fn data_that_is_not_the_protocol_is_refused() {
        let mut frontend = Frontend::default();
        frontend.push(b"GET / HTTP/1.1\r\n\r\n");
        assert!(frontend.next().is_err());
    }
}
