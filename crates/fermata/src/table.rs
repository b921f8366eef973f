//! Tables for people: columns as wide as what stands in them, two spaces apart.

use crate::run::clean;

/// A table with a head; the last column may be as long as it is.
pub fn draw(head: &[&str], rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.iter().map(|cell| clean(cell)).collect())
        .collect();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        let widest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
        widest.max(head[column].chars().count())
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let cells: Vec<String> = cells
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    let mut text = line(&mut head.iter().copied());
    for row in &rows {
        text.push_str(&line(&mut row.iter().map(String::as_str)));
    }
    text
}

/// Names and values, one pair on a line; pairs without a value are left out.
pub fn pairs(rows: &[(&str, String)]) -> String {
    let rows: Vec<_> = rows.iter().filter(|(_, value)| !value.is_empty()).collect();
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let line = |(name, value): &&(&str, String)| format!("{name:<width$}  {}\n", clean(value));
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_below_each_other_and_nothing_moves_the_cursor() {
        let rows = [
            vec!["größe".to_owned(), "1".to_owned(), "a\x1b[2Jb".to_owned()],
            vec!["x".to_owned(), "100".to_owned(), String::new()],
        ];
        let expected = "ID     N    NOTE\ngröße  1    a [2Jb\nx      100\n";
        assert_eq!(draw(&["ID", "N", "NOTE"], &rows), expected);
        let pairs = pairs(&[
            ("id", "7".to_owned()),
            ("empty", String::new()),
            ("status", "Failed".to_owned()),
        ]);
        assert_eq!(pairs, "id      7\nstatus  Failed\n");
    }
}
