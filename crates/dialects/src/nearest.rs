//! The name somebody probably meant.

/// No name is that wrong by a slip of the finger.
const MOST: usize = 5;
/// Longer names are not looked at.
const LONGEST: usize = 64;

/// The candidate nearest to `name`, if it is near enough: wrong in a third of its letters at most.
/// Of equally near ones the first, so that the answer does not change between runs.
pub(crate) fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let letters: Vec<char> = name.to_lowercase().chars().take(LONGEST + 1).collect();
    let most = (letters.len() / 3).min(MOST);
    if letters.len() > LONGEST {
        return None;
    }
    let mut best: Option<(usize, &str)> = None;
    let mut other: Vec<char> = Vec::new();
    for candidate in candidates {
        if candidate == name || candidate.len() > 4 * LONGEST {
            continue;
        }
        other.clear();
        other.extend(candidate.chars().flat_map(char::to_lowercase));
        if other.len().abs_diff(letters.len()) > most {
            continue;
        }
        if let Some(distance) = distance(&letters, &other, most)
            && best.is_none_or(|(least, _)| distance < least)
        {
            best = Some((distance, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// Damerau-Levenshtein (optimal string alignment): insert, delete, replace, swap two neighbours.
/// Only the band around the diagonal that can stay within `most` is computed.
fn distance(a: &[char], b: &[char], most: usize) -> Option<usize> {
    let far = most + 1;
    let width = b.len() + 1;
    let mut rows = [vec![far; width], (0..width).collect(), vec![far; width]];
    for i in 1..=a.len() {
        let [before, above, row] = &mut rows;
        row.fill(far);
        if i <= most {
            row[0] = i;
        }
        let mut least = row[0];
        for j in i.saturating_sub(most).max(1)..=(i + most).min(b.len()) {
            let mut here = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            here = here.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                here = here.min(before[j - 2] + 1);
            }
            row[j] = here;
            least = least.min(here);
        }
        if least > most {
            return None;
        }
        rows.rotate_left(1);
    }
    rows[1].last().copied().filter(|distance| *distance <= most)
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
