//! Echoes: a service may return a secret that it was sent. Every echo is replaced before a result is recorded.
//!
//! A secret of [`SHORTEST`] bytes or more is found wherever it is in a text: as it is, percent-encoded, with escapes as in JSON or
//! HTML, all of them twice, in hexadecimal digits, and in base64 at any position of a longer text. A part of it at the end of a text is found too, since
//! texts are cut. A shorter secret would be found in unrelated text, so it is only replaced if it is the whole value.
//!
//! What must stay true: a text is searched in time linear in its length.

use crate::{
    actions::{Failed, Success},
    mask::MASKED,
    memory,
    offload::{LARGE, Offload},
};
use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use memchr::memmem::Finder;
use serde_json::{Map, Value};
use std::ops::Range;

/// The shortest secret that is found inside a longer text, in bytes.
const SHORTEST: usize = 8;

/// Finds the echoes of some secrets.
#[derive(Clone, Default)]
pub(crate) struct Echoes {
    /// The forms of longer secrets, folded.
    forms: Vec<Finder<'static>>,
    /// Shorter secrets.
    short: Vec<String>,
}

impl Echoes {
    /// For these secrets.
    pub fn of<'s>(secrets: impl Iterator<Item = &'s str>) -> Echoes {
        let mut echoes = Echoes::default();
        for secret in secrets {
            match secret.len() < SHORTEST {
                true => echoes.short.push(secret.to_owned()),
                false => {
                    let forms = forms(secret).into_iter();
                    echoes.forms.extend(forms.map(|form| Finder::new(&form).into_owned()));
                }
            }
        }
        echoes
    }

    pub fn is_empty(&self) -> bool {
        self.forms.is_empty() && self.short.is_empty()
    }

    /// The result of an action without echoes. A large one is searched on a blocking thread.
    pub async fn remove(self, mut result: Result<Success, Failed>, offload: &Offload) -> Result<Success, Failed> {
        if self.is_empty() {
            return result;
        }
        let size = match &result {
            Ok(success) => memory::size(&success.outputs),
            Err(failed) => failed.outputs.as_ref().map_or(0, memory::size),
        };
        let bytes = usize::try_from(size).unwrap_or(LARGE + 1);
        let search = move || {
            match &mut result {
                Ok(success) => self.success(success),
                Err(failed) => self.failed(failed),
            }
            (result,)
        };
        offload.run(bytes, search).await.0
    }

    fn success(&self, success: &mut Success) {
        self.value(&mut success.outputs);
        for link in &mut success.links {
            [&mut link.system, &mut link.resource_type, &mut link.resource_id]
                .into_iter()
                .chain(&mut link.url)
                .for_each(|text| self.text(text));
        }
        if let Some(offer) = &mut success.offer {
            offer.details = self.members(std::mem::take(&mut offer.details));
        }
    }

    fn failed(&self, failed: &mut Failed) {
        self.text(&mut failed.failure.code);
        self.text(&mut failed.failure.message);
        failed.outputs.iter_mut().for_each(|outputs| self.value(outputs));
    }

    /// Replaces all echoes in a value.
    fn value(&self, value: &mut Value) {
        match value {
            Value::String(text) => self.text(text),
            Value::Number(number) => {
                if self.replaced(number.as_str()).is_some() {
                    *value = MASKED.into();
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::Object(members) => *members = self.members(std::mem::take(members)),
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn members(&self, members: Map<String, Value>) -> Map<String, Value> {
        let clean = |(mut name, mut value): (String, Value)| {
            self.text(&mut name);
            self.value(&mut value);
            (name, value)
        };
        members.into_iter().map(clean).collect()
    }

    /// Replaces all echoes in a text.
    fn text(&self, text: &mut String) {
        if let Some(replaced) = self.replaced(text) {
            *text = replaced;
        }
    }

    /// The text without echoes, if it has some.
    fn replaced(&self, text: &str) -> Option<String> {
        if self.short.iter().any(|secret| secret == text) {
            return Some(MASKED.to_owned());
        }
        if text.len() < SHORTEST || self.forms.is_empty() {
            return None;
        }
        let mut found = Vec::new();
        let mut view = View::of(text);
        for _ in 0..=LAYERS {
            self.forms.iter().for_each(|form| view.find(form, &mut found));
            match view.decoded() {
                Some(decoded) => view = decoded,
                None => break,
            }
        }
        (!found.is_empty()).then(|| without(text, found))
    }
}

/// How many layers of encoding are removed.
const LAYERS: usize = 2;

/// The forms of a secret that are searched for.
fn forms(secret: &str) -> Vec<Vec<u8>> {
    let mut forms: Vec<Vec<u8>> = (0..3).map(|before| in_base64(secret, before)).collect();
    forms.push(secret.as_bytes().to_vec());
    let hexadecimal: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
    forms.push(hexadecimal.to_ascii_uppercase().into_bytes());
    forms.push(hexadecimal.into_bytes());
    forms.iter_mut().flatten().for_each(|byte| *byte = folded(*byte));
    forms
}

/// The characters of base64 that depend on the secret only, if it comes after `before` bytes (modulo 3).
fn in_base64(secret: &str, before: usize) -> Vec<u8> {
    let bytes = [&vec![0; before], secret.as_bytes()].concat();
    let text = STANDARD_NO_PAD.encode(&bytes).into_bytes();
    let (first, last) = ((before * 8).div_ceil(6), bytes.len() * 8 / 6);
    text[first..last].to_vec()
}

/// Characters that encodings exchange count as the same: `+`, `-` and the space, `/` and `_`.
fn folded(byte: u8) -> u8 {
    match byte {
        b'+' | b' ' => b'-',
        b'/' => b'_',
        other => other,
    }
}

/// A text with some layers of encoding removed.
struct View {
    bytes: Vec<u8>,
    /// The same bytes, folded.
    folded: Vec<u8>,
    /// For each byte the position in the text, and at the end the length of the text.
    places: Vec<u32>,
}

impl View {
    fn new(bytes: Vec<u8>, places: Vec<u32>) -> View {
        let folded = bytes.iter().map(|byte| folded(*byte)).collect();
        View { bytes, folded, places }
    }

    fn of(text: &str) -> View {
        View::new(text.as_bytes().to_vec(), (0..=text.len() as u32).collect())
    }

    /// Adds the ranges of the text with this form, and with the begin of it at the end.
    fn find(&self, form: &Finder, found: &mut Vec<Range<usize>>) {
        let place = |at: usize| self.places[at] as usize;
        let needle = form.needle();
        for at in form.find_iter(&self.folded) {
            found.push(place(at)..place(at + needle.len()));
        }
        let end = match self.folded.strip_suffix("…".as_bytes()) {
            Some(before) => before.len(),
            None => self.folded.len(),
        };
        let from = end.saturating_sub(needle.len());
        let tail = &self.folded[from..end];
        let begin = Finder::new(&needle[..SHORTEST.min(needle.len())]);
        let mut at = 0;
        while let Some(next) = begin.find(&tail[at..]) {
            at += next;
            if needle.starts_with(&tail[at..]) {
                found.push(place(from + at)..place(end));
                break;
            }
            at += 1;
        }
    }

    /// The text with one more layer removed; `None` if there is none.
    fn decoded(&self) -> Option<View> {
        if !self.bytes.iter().any(|byte| matches!(byte, b'%' | b'\\' | b'&')) {
            return None;
        }
        let (mut bytes, mut places) = (
            Vec::with_capacity(self.bytes.len()),
            Vec::with_capacity(self.places.len()),
        );
        let mut at = 0;
        while at < self.bytes.len() {
            let (decoded, length) = unit(&self.bytes[at..]);
            places.extend(std::iter::repeat_n(self.places[at], decoded.len()));
            bytes.extend_from_slice(decoded.as_slice());
            at += length;
        }
        places.push(self.places[self.bytes.len()]);
        Some(View::new(bytes, places))
    }
}

/// Up to four bytes.
struct Few([u8; 4], usize);

impl Few {
    fn one(byte: u8) -> Few {
        Few([byte, 0, 0, 0], 1)
    }

    fn len(&self) -> usize {
        self.1
    }

    fn as_slice(&self) -> &[u8] {
        &self.0[..self.1]
    }
}

/// What the begin of `bytes` stands for, and how many bytes that takes.
fn unit(bytes: &[u8]) -> (Few, usize) {
    let hex = |from: usize, to: usize| {
        let text = std::str::from_utf8(bytes.get(from..to)?).ok()?;
        let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
        u32::from_str_radix(text, 16).ok().filter(|_| is_hex)
    };
    let escaped = match bytes {
        [b'%', ..] => hex(1, 3).map(|byte| (Few::one(byte as u8), 3)),
        [b'\\', b'u', ..] => hex(2, 6).and_then(|first| {
            let pair = bytes.get(6..8) == Some(br"\u");
            let second = hex(8, 12).filter(|second| pair && (0xDC00..0xE000).contains(second));
            match (first, second) {
                (0xD800..0xDC00, Some(second)) => {
                    let code = 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
                    Some((utf8(char::from_u32(code)?), 12))
                }
                (first, _) => Some((utf8(char::from_u32(first)?), 6)),
            }
        }),
        [b'\\', escape, ..] => {
            let byte = match escape {
                b'n' => Some(b'\n'),
                b'r' => Some(b'\r'),
                b't' => Some(b'\t'),
                b'b' => Some(8),
                b'f' => Some(12),
                b'"' | b'\\' | b'/' | b'\'' => Some(*escape),
                _ => None,
            };
            byte.map(|byte| (Few::one(byte), 2))
        }
        [b'&', ..] => entity(bytes),
        _ => None,
    };
    escaped.unwrap_or((Few::one(bytes[0]), 1))
}

/// What a character reference of HTML at the begin of `bytes` stands for: a name that encoders use, or a number.
fn entity(bytes: &[u8]) -> Option<(Few, usize)> {
    const LONGEST_REFERENCE: usize = 12;
    let end = bytes.iter().take(LONGEST_REFERENCE).position(|byte| *byte == b';')?;
    let character = match std::str::from_utf8(&bytes[1..end]).ok()? {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        reference => {
            let number = reference.strip_prefix('#')?;
            let code = match number.strip_prefix(['x', 'X']) {
                Some(digits) => u32::from_str_radix(digits, 16),
                None => number.parse(),
            };
            char::from_u32(code.ok()?)?
        }
    };
    Some((utf8(character), end + 1))
}

fn utf8(c: char) -> Few {
    let mut few = Few([0; 4], 0);
    few.1 = c.encode_utf8(&mut few.0).len();
    few
}

/// The text with these ranges replaced.
fn without(text: &str, mut ranges: Vec<Range<usize>>) -> String {
    ranges.sort_unstable_by_key(|range| (range.start, range.end));
    let mut replaced = String::with_capacity(text.len());
    let mut copied = 0;
    for range in ranges {
        let (start, end) = (
            text.floor_char_boundary(range.start),
            text.ceil_char_boundary(range.end),
        );
        if end <= copied {
            continue;
        }
        if start >= copied {
            replaced.push_str(&text[copied..start]);
            replaced.push_str(MASKED);
        }
        copied = end;
    }
    replaced.push_str(&text[copied..]);
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
    use serde_json::json;

    const SECRET: &str = "p@ss/w+rd \"ü\"";

    fn clean(text: &str) -> String {
        let echoes = Echoes::of([SECRET].into_iter());
        echoes.replaced(text).unwrap_or_else(|| text.to_owned())
    }

    #[test]
    fn encoded_echoes_are_replaced() {
        let inside = |text: &str| text[1..text.len() - 1].to_owned();
        let escaped = json!(SECRET).to_string();
        let percent = percent_encoding::utf8_percent_encode(SECRET, percent_encoding::NON_ALPHANUMERIC).to_string();
        let hexadecimal: String = SECRET.bytes().map(|byte| format!("{byte:02x}")).collect();
        let form: String = url::form_urlencoded::byte_serialize(SECRET.as_bytes()).collect();
        for echo in [
            SECRET.to_owned(),
            percent.to_lowercase(),
            percent.replace("%20", "+"),
            percent.replace("%2F", "/").replace("%40", "@"),
            percent.replace('%', "%25"),
            percent,
            form,
            inside(&escaped),
            inside(&json!(inside(&escaped)).to_string()),
            SECRET.replace('ü', "\\u00FC").replace('"', "\\\"").replace('/', "\\/"),
            SECRET.replace('"', "&quot;"),
            SECRET.replace('"', "&amp;quot;"),
            SECRET
                .replace('/', "&#x2F;")
                .replace('"', "&#34;")
                .replace('ü', "&#252;"),
            hexadecimal.to_uppercase(),
            hexadecimal,
        ] {
            assert_eq!(clean(&format!("<{echo}>")), "<***>", "{echo}");
            assert_eq!(clean(&format!("{echo} and {echo}")), "*** and ***", "{echo}");
            assert_eq!(clean(&echo), "***");
        }
    }

    #[test]
    fn echoes_in_base64_are_replaced_at_every_position() {
        for before in ["", "a", "ab", "abc", "user:"] {
            for after in ["", "x", "xy", "xyz"] {
                let text = format!("{before}{SECRET}{after}");
                for encoded in [STANDARD.encode(&text), URL_SAFE_NO_PAD.encode(&text)] {
                    let cleaned = clean(&format!("Basic {encoded}"));
                    assert!(cleaned.contains(MASKED), "{before} {after}");
                    // Only the ends may remain, which are shared with the other bytes.
                    assert!(
                        cleaned.len() <= "Basic ".len() + 3 + before.len() * 2 + after.len() * 2 + 6,
                        "{cleaned}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_cut_echo_is_replaced() {
        for length in SHORTEST..SECRET.len() {
            let begin = &SECRET[..SECRET.floor_char_boundary(length)];
            assert_eq!(clean(&format!("it was {begin}")), "it was ***");
            assert_eq!(clean(&format!("it was {begin}…")), "it was ***…");
        }
        assert_eq!(clean("it was p@ss/w+"), "it was p@ss/w+", "too short to be recognised");
        assert_eq!(clean("it was p@ss/w+rd and"), "it was p@ss/w+rd and", "not cut");
    }

    #[test]
    fn names_numbers_and_nested_values_are_searched() {
        let echoes = Echoes::of(["12345678", "tiny"].into_iter());
        let mut value = json!({
            "a12345678": [12345678, 1.5, "x12345678y", null],
            "short": { "is": "tiny", "in": "a tiny text" },
            "other": [1234567, "1234567"],
        });
        echoes.value(&mut value);
        let expected = json!({
            "a***": ["***", 1.5, "x***y", null],
            "short": { "is": "***", "in": "a tiny text" },
            "other": [1234567, "1234567"],
        });
        assert_eq!(value, expected);
    }

    #[test]
    fn text_without_echoes_is_unchanged() {
        for text in [
            "", "%", "&", "&;", "&#;", "a&b;c", "%zz\\", "\\u00", "\\uD800x", "100 % ü", "p@ss/w+", "p@ss/wrd",
        ] {
            assert_eq!(clean(text), text);
        }
    }

    #[test]
    fn long_repetitive_text_is_searched_in_linear_time() {
        let secret = "a".repeat(20_000) + "b";
        let echoes = Echoes::of([secret.as_str()].into_iter());
        for text in ["a".repeat(1_000_000), "%61".repeat(300_000), "\\u0061".repeat(200_000)] {
            echoes.replaced(&text);
        }
    }
}
