//! "Did you mean": the known name that is closest to a misspelt one.

/// Longer names get no suggestion: the comparison is quadratic, and a document can have thousands of names.
const LONGEST: usize = 48;
/// More edits than this are not a typing error.
const MOST_EDITS: usize = 5;

/// The name closest to `wanted`, if at most a third of its characters differ. Upper and lower case, `-` and `_` are
/// ignored. Of several names at the same distance, the first is returned, so the suggestion is always the same.
///
/// ```
/// assert_eq!(fermata_expr::nearest("chrage", ["refund", "charge"]), Some("charge"));
/// assert_eq!(fermata_expr::nearest("ship", ["refund", "charge"]), None);
/// ```
pub fn nearest<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if wanted.is_empty() || wanted.len() > LONGEST {
        return None;
    }
    let folded = fold(wanted);
    let length = folded.chars().count();
    let allowed = (length / 3).min(MOST_EDITS);
    let edits = |name: &str| {
        if name == wanted || name.len() > LONGEST {
            return None;
        }
        let name = fold(name);
        if name.is_empty() || name.chars().count().abs_diff(length) > allowed {
            return None;
        }
        Some(strsim::osa_distance(&folded, &name)).filter(|edits| *edits <= allowed)
    };
    let near = names.into_iter().filter_map(|name| Some((edits(name)?, name)));
    near.min_by_key(|(edits, _)| *edits).map(|(_, name)| name)
}

fn fold(name: &str) -> String {
    let characters = name.chars().filter(|c| !matches!(c, '-' | '_'));
    characters.flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn typing_errors_are_matched_and_other_names_are_not() {
        let names = ["refund", "charge", "channelId", "user", "fetch-items"];
        for (wanted, expected) in [
            ("chrage", Some("charge")),
            ("Charge", Some("charge")),
            ("chargee", Some("charge")),
            ("chanelId", Some("channelId")),
            ("fetch_items", Some("fetch-items")),
            ("USER", Some("user")),
            ("boardId", None),
            ("ship", None),
            ("-", None),
            ("", None),
        ] {
            assert_eq!(nearest(wanted, names), expected, "{wanted}");
        }
        assert_eq!(nearest("a", ["b"]), None);
        assert_eq!(nearest(&"x".repeat(10_000), names), None);
    }
}
