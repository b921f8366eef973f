//! Errors of the YAML parser, explained: most of them are wrong indentation, which the parser describes in its own
//! terms and often notices a line too late.

use crate::diagnostics::Diagnostic;
use crate::source::Span;

/// The problem at byte `at` of the source; `text` begins at byte `base` of it, and `info` is what the parser says.
pub(super) fn explain(text: &str, at: usize, base: usize, info: &str) -> Diagnostic {
    let error = |start: usize, end: usize, message: String| {
        Diagnostic::error("SYNTAX", Span::new(base + start, base + end), message)
    };
    let here = text.floor_char_boundary((at - base).min(text.len()));
    let line_start = text[..here].rfind('\n').map_or(0, |found| found + 1);
    if info.contains("tab")
        && let Some(tab) = indenting_tab(text, line_start)
    {
        return error(tab, tab + 1, "this line is indented with a tab".to_owned())
            .help("replace the tab with spaces: YAML allows only spaces in indentation");
    }
    let is_structure = [
        "did not find expected key",
        "expected '-'",
        "block",
        "mapping values",
        "invalid indentation",
    ];
    let within_value = ["flow", "quoted"].iter().any(|word| info.contains(word));
    if !within_value
        && is_structure.iter().any(|words| info.contains(words))
        && let Some(wrong) = Misplaced::find(text, line_start)
    {
        let message = format!(
            "this line is indented by {}, which fits none of the lines above it",
            spaces(&wrong.given.to_string(), wrong.given)
        );
        let place = line_start + wrong.given;
        return error(place, place + 1, message).help(wrong.help());
    }
    let (message, help) = in_plain_words(info);
    let problem = error(here, here + 1, message);
    match help.is_empty() {
        true => problem,
        false => problem.help(help),
    }
}

/// An error of the YAML parser in plain words, and what to do. The first entry whose words occur in it is taken.
fn in_plain_words(info: &str) -> (String, &'static str) {
    const KNOWN: [(&str, &str, &str); 13] = [
        (
            "expected '-'",
            "this line is indented like the items of a list, but does not begin with `-`",
            "begin it with `- `, or indent it like the key it belongs to",
        ),
        (
            "did not find expected key",
            "this line is not indented like the other keys of its mapping",
            "give all keys of a mapping the same indentation, and end each with `:`",
        ),
        (
            "mapping values",
            "a `:` is not allowed here",
            "indent the line like the one above; if the `:` is part of the text, put the text in quotes",
        ),
        (
            "block sequence entries",
            "a list item (`-`) is not allowed here",
            "begin the list on a new line below its key",
        ),
        (
            "simple key",
            "a key without `:`, here or in the line above",
            "add `:` after the key",
        ),
        ("flow mapping", "expected `,` or `}`", "close the mapping with `}`"),
        ("flow sequence", "expected `,` or `]`", "close the list with `]`"),
        (
            "end of stream",
            "a quoted string is not closed",
            "add the closing quote",
        ),
        (
            "escape character",
            "this escape does not exist in YAML",
            "write a backslash as `\\\\`, or put the text in single quotes",
        ),
        (
            "unknown anchor",
            "this alias refers to an anchor that does not exist",
            "if the `*` is part of the text, put the text in quotes",
        ),
        (
            "unexpected character",
            "a value cannot begin with this character",
            "put the text in quotes",
        ),
        (
            "quoted scalar",
            "a quoted string is not closed, or its next line is not indented",
            "add the closing quote",
        ),
        (
            "indent",
            "this line is not indented correctly",
            "lines that belong together must have the same indentation",
        ),
    ];
    match KNOWN.iter().find(|(words, ..)| info.contains(words)) {
        Some((_, message, help)) => (format!("this is not valid YAML: {message}"), *help),
        None => (format!("this is not valid YAML: {info}"), ""),
    }
}

/// The first tab in the indentation of a line, from `line_start` on.
fn indenting_tab(text: &str, line_start: usize) -> Option<usize> {
    let mut start = line_start;
    for line in text[line_start..].split_inclusive('\n') {
        let indentation = line.len() - line.trim_start_matches([' ', '\t']).len();
        if let Some(tab) = line[..indentation].find('\t') {
            return Some(start + tab);
        }
        start += line.len();
    }
    None
}

/// A line whose indentation continues nothing.
struct Misplaced {
    given: usize,
    /// The indentations that would continue something, in ascending order.
    possible: Vec<usize>,
}

impl Misplaced {
    /// `None` if the indentation of the line is not what is wrong.
    fn find(text: &str, line_start: usize) -> Option<Misplaced> {
        let line = text[line_start..].lines().next()?;
        let given = indentation(line);
        let is_item = begins_item(line);
        if is_first_child(text[..line_start].lines(), given) {
            return None;
        }
        let mut possible = Vec::new();
        let mut limit = usize::MAX;
        for above in text[..line_start].lines().rev() {
            let content = above.trim_start();
            if content.is_empty() || content.starts_with('#') {
                continue;
            }
            let indent = indentation(above);
            if indent >= limit {
                continue;
            }
            match (begins_item(above), is_item) {
                (true, false) => possible.push(above.len() - content[1..].trim_start().len()),
                (true, true) | (false, _) => possible.push(indent),
            }
            limit = indent;
            if limit == 0 {
                break;
            }
        }
        possible.sort_unstable();
        possible.dedup();
        (!possible.is_empty() && !possible.contains(&given)).then_some(Misplaced { given, possible })
    }

    fn help(&self) -> String {
        let listed: Vec<String> = self.possible.iter().map(usize::to_string).collect();
        let last = self.possible.last().copied().unwrap_or_default();
        let listed = match listed.split_last() {
            Some((last, [])) => last.clone(),
            Some((last, others)) => format!("{} or {last}", others.join(", ")),
            None => String::new(),
        };
        let amount = spaces(&listed, last);
        format!("indent it like the key or the list item that it belongs to: by {amount}")
    }
}

/// Whether a line with this indentation is the first below a key or a list item, which may have any deeper indentation.
fn is_first_child<'a>(above: impl DoubleEndedIterator<Item = &'a str>, indent: usize) -> bool {
    let is_content = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    above.rev().find(is_content).is_some_and(|line| {
        let content = line.trim_end();
        (content.ends_with(':') || content.trim_start() == "-") && indent > indentation(line)
    })
}

fn spaces(amount: &str, last: usize) -> String {
    format!("{amount} space{}", if last == 1 { "" } else { "s" })
}

fn indentation(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

fn begins_item(line: &str) -> bool {
    let content = line.trim_start();
    content == "-" || content.starts_with("- ")
}
