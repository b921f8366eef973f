//! JSON for people: indented and coloured text.
//!
//! What must stay true: numbers are shown with the digits they were stored with; they are never converted. A text that is larger
//! than [`MAX_PREVIEW`] is cut, and the whole of it can be downloaded.

use maud::{Markup, PreEscaped, Render, html};
use serde_json::Value;
use std::fmt::Write;

/// The most bytes of a JSON text that a page shows.
pub(crate) const MAX_PREVIEW: usize = 64 * 1024;
/// Larger texts have no colours: they would make the page several times as large.
const MAX_COLOURED: usize = 16 * 1024;

/// A stored JSON text with a heading. `download` is where the whole of it is.
pub(crate) fn block(title: &str, text: &str, download: &str) -> Markup {
    let is_cut = text.len() > MAX_PREVIEW;
    html! {
        section.data {
            header {
                h3 { (title) }
                span.muted { (bytes(text.len())) }
                span.grow {}
                button.plain data-copy-next { "Copy" }
                a.plain href=(download) download { "Download" }
            }
            pre.json tabindex="0" { (shown(text)) }
            @if is_cut {
                p.note { "Only the first 64 KB are shown. " a href=(download) download { "Download all " (bytes(text.len())) } }
            }
        }
    }
}

/// A JSON text without a heading.
pub(crate) fn plain(text: &str) -> Markup {
    html! { pre.json tabindex="0" { (shown(text)) } }
}

/// A stored JSON text, indented, or its begin.
fn shown(text: &str) -> Markup {
    if text.len() > MAX_PREVIEW {
        let cut = text.floor_char_boundary(MAX_PREVIEW);
        return html! { (&text[..cut]) "…" };
    }
    let Ok(value) = serde_json::from_str::<Value>(text) else {
        return html! { (text) };
    };
    let mut writer = Writer {
        out: String::with_capacity(text.len() * 2),
        coloured: text.len() <= MAX_COLOURED,
    };
    writer.value(&value, 0);
    PreEscaped(writer.out)
}

/// A small value in one line.
pub(crate) fn inline(value: &Value) -> Markup {
    let text = value.to_string();
    let mut writer = Writer {
        out: String::new(),
        coloured: true,
    };
    match value {
        Value::Array(_) | Value::Object(_) => html! { (text) },
        value => {
            writer.value(value, 0);
            PreEscaped(writer.out)
        }
    }
}

/// The text of a document. JSON in one line, which a program wrote, is indented.
pub(crate) fn readable(source: &[u8]) -> String {
    let text = String::from_utf8_lossy(source).into_owned();
    if text.trim().contains('\n') {
        return text;
    }
    let value = serde_json::from_str::<Value>(&text);
    let indented = value.and_then(|value| serde_json::to_string_pretty(&value));
    indented.map_or(text, |indented| format!("{indented}\n"))
}

/// A size for people.
pub(crate) fn bytes(count: usize) -> String {
    match count {
        0..1024 => format!("{count} B"),
        1024..1_048_576 => format!("{:.1} KB", count as f64 / 1024.0),
        _ => format!("{:.1} MB", count as f64 / 1_048_576.0),
    }
}

struct Writer {
    out: String,
    coloured: bool,
}

impl Writer {
    fn value(&mut self, value: &Value, depth: usize) {
        match value {
            Value::Object(members) if !members.is_empty() => {
                self.out.push('{');
                for (at, (name, member)) in members.iter().enumerate() {
                    self.line(at > 0, depth + 1);
                    self.token("k", &Value::String(name.clone()).to_string());
                    self.out.push_str(": ");
                    self.value(member, depth + 1);
                }
                self.line(false, depth);
                self.out.push('}');
            }
            Value::Array(items) if !items.is_empty() => {
                self.out.push('[');
                for (at, item) in items.iter().enumerate() {
                    self.line(at > 0, depth + 1);
                    self.value(item, depth + 1);
                }
                self.line(false, depth);
                self.out.push(']');
            }
            Value::String(_) => self.token("s", &value.to_string()),
            Value::Number(_) => self.token("n", &value.to_string()),
            Value::Bool(_) | Value::Null => self.token("w", &value.to_string()),
            empty => self.escape(&empty.to_string()),
        }
    }

    fn line(&mut self, comma: bool, depth: usize) {
        self.out.push_str(if comma { ",\n" } else { "\n" });
        for _ in 0..depth {
            self.out.push_str("  ");
        }
    }

    fn token(&mut self, class: &str, text: &str) {
        if self.coloured {
            let _ = write!(self.out, "<span class={class}>");
        }
        self.escape(text);
        if self.coloured {
            self.out.push_str("</span>");
        }
    }

    fn escape(&mut self, text: &str) {
        text.render_to(&mut self.out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_digits_and_markup_is_text() {
        let text = r#"{"n":9007199254740993,"f":1.10,"x":"<script>alert(1)</script>","</pre>":[]}"#;
        let shown = shown(text).into_string();
        for part in [">9007199254740993<", ">1.10<", "&lt;script&gt;", "&lt;/pre&gt;"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert!(!shown.contains("<script") && !shown.contains("</pre"), "{shown}");
    }

    #[test]
    fn documents_in_one_line_are_indented() {
        assert_eq!(
            readable(br#"{"b":1.10,"a":9007199254740993}"#),
            "{\n  \"b\": 1.10,\n  \"a\": 9007199254740993\n}\n"
        );
        for kept in ["{\n\"a\":1}", "a: 1 # yes", "{"] {
            assert_eq!(readable(kept.as_bytes()), kept);
        }
    }

    #[test]
    fn large_and_broken_texts_are_shown_as_they_are() {
        let large = format!("\"{}<b>\"", "ä".repeat(MAX_PREVIEW));
        let text = shown(&large).into_string();
        assert!(text.ends_with('…') && text.len() <= MAX_PREVIEW + 20, "{}", text.len());
        assert_eq!(shown("<b>").into_string(), "&lt;b&gt;");
    }
}
