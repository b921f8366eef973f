//! Logging: lines on stderr.
//!
//! What must stay true:
//! * No line holds a secret or a payload, at any level. Lines of the PostgreSQL driver are filtered here for that.
//! * One event is one line: control characters that came from outside (a service's answer, a document, the database) are
//!   escaped, in both formats.

use crate::{
    cli,
    config::{Log, LogFormat},
};
use anyhow::anyhow;
use std::{
    borrow::Cow,
    io::{self, Write},
};
use tracing::{Level, Metadata};
use tracing_subscriber::{
    EnvFilter, filter::filter_fn, fmt::MakeWriter, layer::SubscriberExt, util::SubscriberInitExt,
};

/// Starts logging. `RUST_LOG` takes precedence over the configuration.
pub fn begin(log: &Log) -> anyhow::Result<()> {
    let directives = match std::env::var("RUST_LOG") {
        Ok(directives) if !directives.is_empty() => directives,
        _ => log.level.clone(),
    };
    let filter = EnvFilter::try_new(&directives).map_err(|error| {
        anyhow!("`{directives}` is not a log level: {error}; use error, warn, info, debug or trace")
    })?;
    let colours = cli::colors(&io::stderr());
    let writer = Lines {
        to: io::stderr,
        colours,
    };
    let lines = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(colours);
    // A separate filter, because a directive that names the driver would override one that is added to the others.
    let wanted = tracing_subscriber::registry()
        .with(filter)
        .with(filter_fn(|line| !tells_data(line)));
    let installed = match log.format {
        LogFormat::Text => wanted.with(lines).try_init(),
        LogFormat::Json => wanted.with(lines.json()).try_init(),
    };
    installed.map_err(|error| anyhow!(error))
}

/// Below `info` the PostgreSQL driver logs every statement with its parameters: tokens of callbacks, payloads.
fn tells_data(line: &Metadata<'_>) -> bool {
    let of_driver = matches!(
        line.target().split("::").next(),
        Some("tokio_postgres" | "postgres_protocol")
    );
    of_driver && *line.level() > Level::INFO
}

/// Writes each event as one line. The formatter hands over a whole event at once, with a newline at its end.
struct Lines<M> {
    to: M,
    /// Whether the formatter makes colours.
    colours: bool,
}

impl<'a, M: MakeWriter<'a>> MakeWriter<'a> for Lines<M> {
    type Writer = Line<M::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        Line {
            to: self.to.make_writer(),
            colours: self.colours,
        }
    }
}

struct Line<W> {
    to: W,
    colours: bool,
}

impl<W: Write> Write for Line<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let (text, end) = match event.split_last() {
            Some((b'\n', text)) => (text, "\n"),
            _ => (event, ""),
        };
        let text = String::from_utf8_lossy(text);
        let line = format!("{}{end}", escaped(&text, self.colours));
        self.to.write_all(line.as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// The text without control characters and line separators; colours may stay. Inside of JSON strings the result is still
/// JSON.
fn escaped(text: &str, colours: bool) -> Cow<'_, str> {
    if !text.contains(breaks) {
        return Cow::Borrowed(text);
    }
    let mut line = String::with_capacity(text.len() + 16);
    for (at, c) in text.char_indices() {
        match c {
            '\n' => line.push_str("\\n"),
            '\r' => line.push_str("\\r"),
            '\t' => line.push_str("\\t"),
            '\u{1b}' if colours && is_colour(&text[at..]) => line.push(c),
            c if breaks(c) => line.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => line.push(c),
        }
    }
    Cow::Owned(line)
}

fn breaks(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')
}

/// Whether this begins with a colour or style, such as `ESC[2m`.
fn is_colour(text: &str) -> bool {
    let rest = text.strip_prefix("\u{1b}[").unwrap_or_default();
    rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';')
        .starts_with('m')
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The line of an event that contains this text.
    fn logged(json: bool, outside: &str) -> String {
        let buffer = Buffer::default();
        let writer = buffer.clone();
        let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(Lines {
            to: move || writer.clone(),
            colours: false,
        });
        let log = || {
            let error = io::Error::other(outside.to_owned());
            tracing::warn!(%error, what = outside, debug = ?outside, "it said: {outside}");
        };
        match json {
            true => tracing::subscriber::with_default(tracing_subscriber::registry().with(lines.json()), log),
            false => tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), log),
        }
        let bytes = buffer.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn an_event_is_one_line() {
        let outside = "a\nERROR fake\r\nb\u{1b}[31mred\u{1b}]0;title\u{7}\0\u{85}\u{2028}\u{7f}ü";
        for json in [false, true] {
            let text = logged(json, outside);
            let line = text.strip_suffix('\n').unwrap();
            assert!(!line.contains(breaks), "{line:?}");
            assert!(line.contains("ü") && line.contains("\\nERROR fake"), "{line}");
            if json {
                let event: serde_json::Value = serde_json::from_str(line).unwrap();
                assert_eq!(event["fields"]["what"], outside, "nothing is lost in JSON");
            }
        }
    }

    #[test]
    fn plain_lines_and_colours_stay_as_they_are() {
        for line in ["", "plain ü", "\u{1b}[2m12:00\u{1b}[0m \u{1b}[1;33mWARN\u{1b}[0m x"] {
            assert_eq!(escaped(line, true), line);
        }
        assert_eq!(escaped("\u{1b}[2J\u{1b}", true), "\\u001b[2J\\u001b");
        assert_eq!(escaped("\u{1b}[2m", false), "\\u001b[2m");
    }
}
