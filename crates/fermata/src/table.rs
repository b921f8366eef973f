//! Tables and lists of names and values. On a terminal they fit its width and have colours; elsewhere nothing is cut.

use crate::{cli, run::clean};
use std::io::IsTerminal;

/// Columns do not get narrower than this, or than their head, while that is enough to fit.
const NARROW: usize = 8;
/// Columns do not get narrower than this.
const NARROWEST: usize = 4;
const BETWEEN: &str = "  ";

/// How a table is drawn.
#[derive(Debug, Clone, Copy, Default)]
pub struct Style {
    /// The width to fit in, in characters.
    pub width: Option<usize>,
    pub color: bool,
}

impl Style {
    /// What this process's standard output takes.
    pub fn of_stdout() -> Style {
        let stdout = std::io::stdout();
        let width = stdout
            .is_terminal()
            .then(|| rustix::termios::tcgetwinsize(&stdout).ok())
            .flatten()
            .map(|size| usize::from(size.ws_col))
            .filter(|width| *width > 0);
        Style {
            width,
            color: cli::colors(&stdout),
        }
    }
}

/// A table with a head, for standard output.
pub fn draw(head: &[&str], rows: &[Vec<String>]) -> String {
    draw_with(head, rows, Style::of_stdout())
}

fn draw_with(head: &[&str], rows: &[Vec<String>], style: Style) -> String {
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.iter().map(|cell| clean(cell)).collect())
        .collect();
    let widths = fit(natural(head, &rows), head, style.width);
    let line = |cells: &mut dyn Iterator<Item = (&str, bool)>| {
        let mut cells = cells.zip(&widths).peekable();
        let mut text = String::new();
        while let Some(((cell, is_status), width)) = cells.next() {
            let cell = cut(cell, *width);
            let padding = match cells.peek() {
                Some(_) => " ".repeat(width.saturating_sub(cell.chars().count())) + BETWEEN,
                None => String::new(),
            };
            let color = is_status.then(|| color_of(&cell)).flatten().filter(|_| style.color);
            match color {
                Some(color) => text.push_str(&format!("{color}{cell}\x1b[0m{padding}")),
                None => text.push_str(&format!("{cell}{padding}")),
            }
        }
        format!("{}\n", text.trim_end())
    };
    let mut text = line(&mut head.iter().map(|cell| (*cell, false)));
    for row in &rows {
        let cells = row.iter().enumerate();
        text.push_str(&line(
            &mut cells.map(|(column, cell)| (cell.as_str(), is_status(head[column]))),
        ));
    }
    text
}

fn natural(head: &[&str], rows: &[Vec<String>]) -> Vec<usize> {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        let widest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
        widest.max(head[column].chars().count())
    };
    (0..head.len()).map(width).collect()
}

/// Whether the column with this head says how something stands.
fn is_status(head: &str) -> bool {
    matches!(head, "STATUS" | "NOW" | "LEVEL" | "ALIVE")
}

/// Narrows the widest columns until the table fits. The first column holds ids, which are useless when cut, and a status is
/// one word.
fn fit(mut widths: Vec<usize>, head: &[&str], width: Option<usize>) -> Vec<usize> {
    let Some(width) = width else {
        return widths;
    };
    let narrow = |column: usize| head[column].chars().count().max(NARROW);
    let narrowest = |_| NARROWEST;
    for least in [&narrow as &dyn Fn(usize) -> usize, &narrowest] {
        loop {
            let total: usize = widths.iter().sum::<usize>() + BETWEEN.len() * widths.len().saturating_sub(1);
            let widest = (1..widths.len())
                .filter(|column| widths[*column] > least(*column) && !is_status(head[*column]))
                .max_by_key(|column| widths[*column]);
            match widest {
                Some(column) if total > width => widths[column] -= 1,
                _ => break,
            }
        }
    }
    widths
}

fn cut(cell: &str, width: usize) -> String {
    match cell.char_indices().nth(width) {
        None => cell.to_owned(),
        Some(_) => cell.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// The colour of a word for how something stands.
fn color_of(word: &str) -> Option<&'static str> {
    let (green, red, yellow, cyan, dim) = ("\x1b[32m", "\x1b[31m", "\x1b[33m", "\x1b[36m", "\x1b[2m");
    let word = word.split([' ', ';']).next().unwrap_or_default();
    Some(match word {
        "Succeeded" | "Active" | "success" | "received" | "yes" => green,
        "Failed" | "PermanentFailure" | "failed" | "timeout" | "template_error" | "Error" | "no" => red,
        "RetriableFailure" | "Cancelled" | "Warn" | "Archived" => yellow,
        "Running" | "Pending" | "running" | "sleeping" | "waiting" | "Draft" => cyan,
        "skipped" => dim,
        _ => return None,
    })
}

/// Names and values, one pair on a line, for standard output; pairs without a value are left out.
pub fn pairs(rows: &[(&str, String)]) -> String {
    pairs_with(rows, Style::of_stdout())
}

fn pairs_with(rows: &[(&str, String)], style: Style) -> String {
    let rows: Vec<_> = rows.iter().filter(|(_, value)| !value.is_empty()).collect();
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let line = |(name, value): &&(&str, String)| {
        let value = clean(value);
        let color = color_of(&value).filter(|_| style.color && *name == "status");
        match color {
            Some(color) => format!("{name:<width$}  {color}{value}\x1b[0m\n"),
            None => format!("{name:<width$}  {value}\n"),
        }
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> [Vec<String>; 2] {
        [
            vec!["größe".to_owned(), "Failed".to_owned(), "a\x1b[2Jb".to_owned()],
            vec!["x".to_owned(), "Running".to_owned(), String::new()],
        ]
    }

    #[test]
    fn columns_are_aligned_and_control_characters_are_removed() {
        let expected = "ID     STATUS   NOTE\ngröße  Failed   a [2Jb\nx      Running\n";
        assert_eq!(
            draw_with(&["ID", "STATUS", "NOTE"], &rows(), Style::default()),
            expected
        );
        let pairs = pairs_with(
            &[
                ("id", "7".to_owned()),
                ("empty", String::new()),
                ("status", "Failed".to_owned()),
            ],
            Style::default(),
        );
        assert_eq!(pairs, "id      7\nstatus  Failed\n");
    }

    #[test]
    fn status_words_have_colours_and_keep_their_columns() {
        let style = Style {
            width: None,
            color: true,
        };
        let expected = "ID     STATUS   NOTE\ngröße  \x1b[31mFailed\x1b[0m   a [2Jb\nx      \x1b[36mRunning\x1b[0m\n";
        assert_eq!(
            draw_with(&["ID", "STATUS", "NOTE"], &rows(), style).replace("  \n", "\n"),
            expected
        );
    }

    #[test]
    fn wide_columns_are_cut_to_the_width_and_ids_are_not() {
        let id = "0199a7c2-0000-7000-8000-000000000000";
        let row = vec![id.to_owned(), "a-workflow-with-a-long-name".to_owned(), "x".repeat(90)];
        let mut wide = row.clone();
        wide.insert(2, "Succeeded".to_owned());
        let style = Style {
            width: Some(80),
            color: false,
        };
        let drawn = draw_with(&["ID", "WORKFLOW", "WHY"], std::slice::from_ref(&row), style);
        for line in drawn.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        assert!(drawn.contains(id) && drawn.contains('…'), "{drawn}");
        let narrow = Style {
            width: Some(10),
            color: false,
        };
        let drawn = draw_with(&["ID", "WORKFLOW", "STATUS", "WHY"], &[wide], narrow);
        assert!(drawn.contains(id) && drawn.contains("Succeeded"), "{drawn}");
        assert_eq!(
            drawn.lines().next(),
            Some(format!("{:<36}  WOR…  STATUS     WHY", "ID").as_str())
        );
    }
}
