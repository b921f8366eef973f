//! Strings with ECMAScript's semantics: sequences of UTF-16 code units.
//!
//! What must stay true: a text is kept as UTF-8 whenever it is well formed, and as code units only
//! if it contains a lone surrogate. The form is therefore canonical, and equality is a comparison of
//! the form. Input strings are borrowed, and slices of ASCII input stay borrowed.

use std::{borrow::Cow, cmp::Ordering, rc::Rc};

/// A string value.
#[derive(Debug, Clone)]
pub(super) enum Text<'a> {
    /// Part of the source or of the data.
    Borrowed(&'a str),
    /// Made by the evaluation.
    Owned(Rc<str>),
    /// Not well formed: holds at least one lone surrogate.
    Wide(Rc<[u16]>),
}

impl<'a> Text<'a> {
    pub fn owned(text: String) -> Self {
        Self::Owned(text.into())
    }

    /// A text from code units, in its canonical form.
    pub fn from_units(units: &[u16]) -> Self {
        match String::from_utf16(units) {
            Ok(text) => Self::owned(text),
            Err(_) => Self::Wide(units.into()),
        }
    }

    /// The text as UTF-8, if it is well formed.
    #[inline]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Borrowed(text) => Some(text),
            Self::Owned(text) => Some(text),
            Self::Wide(_) => None,
        }
    }

    /// The text as UTF-8, with replacement characters for lone surrogates.
    pub fn to_str_lossy(&self) -> Cow<'_, str> {
        match self {
            Self::Borrowed(text) => Cow::Borrowed(text),
            Self::Owned(text) => Cow::Borrowed(text),
            Self::Wide(units) => Cow::Owned(String::from_utf16_lossy(units)),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.bytes() == 0
    }

    /// How many bytes the text takes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Borrowed(text) => text.len(),
            Self::Owned(text) => text.len(),
            Self::Wide(units) => units.len() * 2,
        }
    }

    fn ascii(&self) -> Option<&str> {
        self.as_str().filter(|text| text.is_ascii())
    }

    /// The length in code units.
    pub fn len(&self) -> usize {
        match self {
            Self::Wide(units) => units.len(),
            _ => self.as_str().map_or(0, |text| {
                if text.is_ascii() {
                    text.len()
                } else {
                    text.encode_utf16().count()
                }
            }),
        }
    }

    pub fn units(&self) -> Vec<u16> {
        match self {
            Self::Wide(units) => units.to_vec(),
            _ => self
                .as_str()
                .map_or_else(Vec::new, |text| text.encode_utf16().collect()),
        }
    }

    /// The code unit at `index`.
    pub fn unit(&self, index: usize) -> Option<u16> {
        match self {
            Self::Wide(units) => units.get(index).copied(),
            _ => match self.ascii() {
                Some(text) => text.as_bytes().get(index).map(|byte| u16::from(*byte)),
                None => self.as_str()?.encode_utf16().nth(index),
            },
        }
    }

    /// The code units from `start` up to `end`; both must lie within the text, in order.
    pub fn slice(&self, start: usize, end: usize) -> Text<'a> {
        match self {
            Self::Borrowed(text) if text.is_ascii() => Self::Borrowed(&text[start..end]),
            Self::Owned(text) if text.is_ascii() => Self::Owned(text[start..end].into()),
            _ => Self::from_units(&self.units()[start..end]),
        }
    }

    /// The concatenation of both texts.
    pub fn concat(&self, other: &Text<'_>) -> Text<'a> {
        if let (Some(left), Some(right)) = (self.as_str(), other.as_str()) {
            let mut both = String::with_capacity(left.len() + right.len());
            both.push_str(left);
            both.push_str(right);
            return Self::owned(both);
        }
        let mut units = self.units();
        units.extend(other.units());
        Self::from_units(&units)
    }

    /// Where `needle` first occurs at or after `from`, in code units.
    pub fn find(&self, needle: &Text<'_>, from: usize) -> Option<usize> {
        if let (Some(text), Some(wanted)) = (self.as_str(), needle.as_str()) {
            // A well-formed needle matches at character boundaries only, except the empty one.
            if wanted.is_empty() {
                return (from <= self.len()).then_some(from);
            }
            let start = byte_offset(text, from)?;
            let at = start + text[start..].find(wanted)?;
            return Some(unit_offset(text, at));
        }
        let units = self.units();
        let rest = units.get(from..)?;
        find_units(rest, &needle.units()).map(|at| at + from)
    }

    /// Where `needle` last occurs at or before `from`, in code units.
    pub fn rfind(&self, needle: &Text<'_>, from: usize) -> Option<usize> {
        let (mut units, mut wanted) = (self.units(), needle.units());
        let last = units.len().checked_sub(wanted.len())?.min(from);
        units.truncate(last + wanted.len());
        units.reverse();
        wanted.reverse();
        find_units(&units, &wanted).map(|at| last - at)
    }

    /// The pieces between the occurrences of `needle`, of which at most `most` are searched.
    /// An empty needle occurs before, between and after all code units.
    pub fn cut(&self, needle: &Text<'_>, most: usize) -> Vec<Text<'a>> {
        let pieces = most.saturating_add(1);
        if !needle.is_empty() {
            match (self, needle.as_str()) {
                (Self::Borrowed(text), Some(wanted)) => {
                    return text.splitn(pieces, wanted).map(Self::Borrowed).collect();
                }
                (Self::Owned(text), Some(wanted)) => {
                    let pieces = text.splitn(pieces, wanted);
                    return pieces.map(|piece| Self::Owned(piece.into())).collect();
                }
                _ => {}
            }
        }
        let (units, wanted) = (self.units(), needle.units());
        let mut cuts = Vec::new();
        let (mut start, mut search) = (0, 0);
        while cuts.len() < most {
            let found = if wanted.is_empty() {
                (search <= units.len()).then_some(search)
            } else {
                find_units(&units[start..], &wanted).map(|at| at + start)
            };
            let Some(at) = found else { break };
            cuts.push(Self::from_units(&units[start..at]));
            start = at + wanted.len();
            search = at + 1;
        }
        cuts.push(Self::from_units(&units[start..]));
        cuts
    }

    /// The order of the code units, which is not the order of UTF-8 bytes.
    pub fn compare(&self, other: &Text<'_>) -> Ordering {
        let (Some(left), Some(right)) = (self.as_str(), other.as_str()) else {
            return self.units().cmp(&other.units());
        };
        let (left, right) = (left.as_bytes(), right.as_bytes());
        let Some((a, b)) = left.iter().zip(right).find(|(a, b)| a != b) else {
            return left.len().cmp(&right.len());
        };
        // Characters beyond U+FFFF (lead bytes F0…) are surrogates in UTF-16, and so come before
        // U+E000…U+FFFF (lead bytes EE, EF).
        match (*a, *b) {
            (0xF0.., 0xEE..=0xEF) => Ordering::Less,
            (0xEE..=0xEF, 0xF0..) => Ordering::Greater,
            (a, b) => a.cmp(&b),
        }
    }

    /// The text cut into code points (a lone surrogate counts as one).
    pub fn code_points(&self) -> Vec<Text<'a>> {
        match self {
            Self::Borrowed(text) => text
                .char_indices()
                .map(|(at, c)| Self::Borrowed(&text[at..at + c.len_utf8()]))
                .collect(),
            _ => char::decode_utf16(self.units())
                .map(|point| match point {
                    Ok(c) => Self::owned(c.to_string()),
                    Err(lone) => Self::from_units(&[lone.unpaired_surrogate()]),
                })
                .collect(),
        }
    }

    /// Applies a function of well-formed text to every well-formed stretch.
    pub fn map_str(&self, change: impl Fn(&str) -> String) -> Text<'a> {
        let Self::Wide(units) = self else {
            return self
                .as_str()
                .map_or_else(|| self.clone(), |text| Self::owned(change(text)));
        };
        let mut out: Vec<u16> = Vec::with_capacity(units.len());
        let mut stretch = String::new();
        for point in char::decode_utf16(units.iter().copied()) {
            match point {
                Ok(c) => stretch.push(c),
                Err(lone) => {
                    out.extend(change(&stretch).encode_utf16());
                    stretch.clear();
                    out.push(lone.unpaired_surrogate());
                }
            }
        }
        out.extend(change(&stretch).encode_utf16());
        Self::from_units(&out)
    }
}

/// The byte offset of the character at or after a code unit offset.
fn byte_offset(text: &str, units: usize) -> Option<usize> {
    if text.is_ascii() {
        return (units <= text.len()).then_some(units);
    }
    let mut seen = 0;
    for (at, c) in text.char_indices() {
        if seen >= units {
            return Some(at);
        }
        seen += c.len_utf16();
    }
    (seen >= units).then_some(text.len())
}

fn unit_offset(text: &str, bytes: usize) -> usize {
    let before = &text[..bytes];
    if before.is_ascii() {
        bytes
    } else {
        before.encode_utf16().count()
    }
}

/// The first occurrence, in linear time (Knuth, Morris and Pratt).
fn find_units(units: &[u16], wanted: &[u16]) -> Option<usize> {
    let mut border = vec![0usize; wanted.len()];
    let mut length = 0;
    for at in 1..wanted.len() {
        while length > 0 && wanted[at] != wanted[length] {
            length = border[length - 1];
        }
        length += usize::from(wanted[at] == wanted[length]);
        border[at] = length;
    }
    if wanted.is_empty() {
        return Some(0);
    }
    let mut matched = 0;
    for (at, unit) in units.iter().enumerate() {
        while matched > 0 && *unit != wanted[matched] {
            matched = border[matched - 1];
        }
        matched += usize::from(*unit == wanted[matched]);
        if matched == wanted.len() {
            return Some(at + 1 - matched);
        }
    }
    None
}

/// Builds a text from pieces, copying each once.
#[derive(Debug, Default)]
pub(super) struct Builder {
    text: String,
    wide: Option<Vec<u16>>,
}

impl Builder {
    pub fn push(&mut self, piece: &Text<'_>) {
        match (&mut self.wide, piece.as_str()) {
            (None, Some(piece)) => self.text.push_str(piece),
            (Some(units), _) => units.extend(piece.units()),
            (None, None) => {
                let mut units: Vec<u16> = self.text.encode_utf16().collect();
                units.extend(piece.units());
                self.wide = Some(units);
            }
        }
    }

    pub fn finish<'a>(self) -> Text<'a> {
        match self.wide {
            None => Text::owned(self.text),
            Some(units) => Text::from_units(&units),
        }
    }
}

impl PartialEq for Text<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Wide(left), Self::Wide(right)) => left == right,
            _ => match (self.as_str(), other.as_str()) {
                (Some(left), Some(right)) => left == right,
                _ => false,
            },
        }
    }
}

impl Eq for Text<'_> {}

impl std::hash::Hash for Text<'_> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        match self {
            Self::Wide(units) => units.hash(state),
            _ => self.as_str().hash(state),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_cuts_code_units() {
        let text = Text::Borrowed("a😀b");
        assert_eq!(text.len(), 4);
        assert_eq!(text.unit(1), Some(0xD83D));
        let half = text.slice(0, 2);
        assert!(matches!(half, Text::Wide(_)));
        assert_eq!(half.concat(&text.slice(2, 4)), text);
    }

    #[test]
    fn orders_by_code_unit() {
        let astral = Text::Borrowed("😀");
        let high = Text::Borrowed("\u{ffff}");
        assert_eq!(astral.compare(&high), Ordering::Less);
        assert_eq!(high.compare(&astral), Ordering::Greater);
        assert_eq!(Text::Borrowed("a").compare(&Text::Borrowed("ab")), Ordering::Less);
    }

    #[test]
    fn finds_in_code_units() {
        let text = Text::Borrowed("ä😀ä");
        assert_eq!(text.find(&Text::Borrowed("ä"), 1), Some(3));
        assert_eq!(text.rfind(&Text::Borrowed("ä"), 2), Some(0));
        assert_eq!(text.find(&Text::Borrowed(""), 9), None);
    }
}
