//! One line of a source with carets under a place.
//!
//! What must stay true: no text of the source can move the cursor of the terminal.

use std::fmt::Write;

/// The widest excerpt, in characters; longer lines are cut around the place.
const WIDTH: usize = 100;

/// A place in a text: line and column from one, and its width in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub line: usize,
    pub column: usize,
    pub width: usize,
}

impl Place {
    /// The place of some bytes. Bytes inside a character mean that character.
    pub fn of(source: &str, offset: usize, length: usize) -> Place {
        let start = source.floor_char_boundary(offset.min(source.len()));
        let end = source.ceil_char_boundary(offset.saturating_add(length).min(source.len()));
        let before = &source[..start];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let meant = source[start..end.max(start)].split('\n').next().unwrap_or_default();
        Place {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            width: meant.chars().count().max(1),
        }
    }
}

/// The drawing, ending with a line break.
pub fn draw(source: &str, place: Place) -> String {
    let line = source.split('\n').nth(place.line.saturating_sub(1)).unwrap_or_default();
    let column = place.column.saturating_sub(1);
    let skipped = match line.chars().nth(WIDTH) {
        Some(_) => column.saturating_sub(WIDTH / 2),
        None => 0,
    };
    let printable = |c: char| match c {
        c if c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}') =>
        {
            ' '
        }
        c => c,
    };
    let shown: String = line.chars().skip(skipped).take(WIDTH).map(printable).collect();
    let number = place.line.to_string();
    let margin = " ".repeat(number.len());
    let carets = "^".repeat(
        place
            .width
            .min(WIDTH.saturating_sub(column.saturating_sub(skipped)))
            .max(1),
    );
    let mut text = String::new();
    let _ = writeln!(text, "{margin} |\n{number} | {}", shown.trim_end());
    let _ = writeln!(text, "{margin} | {}{carets}", " ".repeat(column - skipped));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caret_is_under_the_place() {
        let source = "one\ntwo größe x";
        let place = Place::of(source, source.find("größe").unwrap(), "größe".len());
        assert_eq!((place.line, place.column, place.width), (2, 5, 5));
        assert_eq!(draw(source, place), "  |\n2 | two größe x\n  |     ^^^^^\n");
    }

    #[test]
    fn no_place_is_too_far_or_too_long() {
        for (offset, length) in [(0, 0), (1, 1), (usize::MAX, usize::MAX), (3, 900)] {
            draw("é\x1b[2J", Place::of("é\x1b[2J", offset, length));
        }
        let long = "x".repeat(5000);
        let drawn = draw(&long, Place::of(&long, 4000, 500));
        assert!(drawn.lines().all(|line| line.len() < 120), "{drawn}");
        assert!(!draw("\x1b[2J", Place::of("\x1b[2J", 0, 1)).contains('\x1b'));
    }
}
