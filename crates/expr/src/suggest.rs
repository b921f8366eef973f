//! "Did you mean": the nearest of some names, if one is near enough to be a slip of the hand.

/// The name nearest to `wanted`, if it differs in letter case only or by few edits.
pub(crate) fn nearest<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    /// Longer names are not compared: the work is quadratic, and nobody mistypes them twice.
    const LONGEST: usize = 64;
    if wanted.len() > LONGEST {
        return None;
    }
    let allowed = match wanted.chars().count() {
        0..=2 => 0,
        3..=5 => 1,
        _ => 2,
    };
    names
        .into_iter()
        .filter(|name| name.len() <= LONGEST)
        .map(|name| (distance(&fold(wanted), &fold(name)), name))
        .filter(|(edits, _)| *edits <= allowed)
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, name)| name)
}

/// Letter case and the choice of separator are slips as well.
fn fold(name: &str) -> Vec<char> {
    name.chars()
        .filter(|c| !matches!(c, '-' | '_'))
        .flat_map(char::to_lowercase)
        .collect()
}

/// Edits (insert, delete, replace) that lead from one name to the other.
fn distance(left: &[char], right: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn finds_slips_and_nothing_else() {
        let names = ["channelId", "user", "fetch-items"];
        assert_eq!(nearest("chanelId", names), Some("channelId"));
        assert_eq!(nearest("fetch_items", names), Some("fetch-items"));
        assert_eq!(nearest("USER", names), Some("user"));
        assert_eq!(nearest("boardId", names), None);
        assert_eq!(nearest("", names), None);
    }
}
