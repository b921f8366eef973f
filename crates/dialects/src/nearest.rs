//! The name somebody probably meant.

/// The candidate nearest to `name`, if it is near enough: a typing error in three letters at most.
/// Of equally near ones the first, so that the answer does not change between runs.
pub(crate) fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const LONGEST: usize = 100;
    let letters: Vec<char> = name.to_lowercase().chars().take(LONGEST + 1).collect();
    let most = letters.len() / 3;
    if letters.len() > LONGEST {
        return None;
    }
    let mut best: Option<(usize, &str)> = None;
    for candidate in candidates {
        if candidate == name || candidate.len() > 4 * LONGEST {
            continue;
        }
        let other: Vec<char> = candidate.to_lowercase().chars().collect();
        if other.len().abs_diff(letters.len()) > most {
            continue;
        }
        let distance = distance(&letters, &other);
        if distance <= most && best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// Damerau-Levenshtein (optimal string alignment): insert, delete, replace, swap two neighbours.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replace = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replace.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(before[j - 2] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut above, row);
    }
    above.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_finger_is_understood() {
        let names = ["refund", "charge", "notify"];
        assert_eq!(nearest("chrage", names), Some("charge"));
        assert_eq!(nearest("Charge", names), Some("charge"));
        assert_eq!(nearest("chargee", names), Some("charge"));
        assert_eq!(nearest("ship", names), None);
        assert_eq!(nearest("a", ["b"]), None);
        assert_eq!(nearest("", names), None);
        assert_eq!(nearest(&"x".repeat(10_000), names), None);
    }
}
