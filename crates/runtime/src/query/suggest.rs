//! What can follow at a place in a query, for completion.

use super::KEYS;
use fermata_core::Status;

/// Times that are offered.
const TIMES: [(&str, &str); 4] = [
    ("1h", "an hour ago"),
    ("24h", "a day ago"),
    ("7d", "a week ago"),
    ("30d", "30 days ago"),
];

/// One way to complete a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suggestion {
    /// What replaces the last word.
    pub text: String,
    /// What it means.
    pub about: String,
}

/// The word that is being written: what follows the last space.
pub fn last_word(text: &str) -> &str {
    text.rsplit(char::is_whitespace).next().unwrap_or_default()
}

/// Completions of the last word of a text: keys, statuses and times. [`crate::Reads::suggest`] knows workflows and tags too.
///
/// ```
/// let words = fermata_runtime::query::suggest("tag:eu status:fa");
/// assert_eq!(words[0].text, "status:failed");
/// ```
pub fn suggest(text: &str) -> Vec<Suggestion> {
    let word = last_word(text);
    let values = |key: &str, part: &str, values: &[(&str, &str)]| {
        let part = part.to_ascii_lowercase();
        let fitting = values.iter().filter(|(value, _)| value.starts_with(&part));
        let suggestion = |(value, about): &(&str, &str)| Suggestion {
            text: format!("{key}:{value}"),
            about: (*about).to_owned(),
        };
        fitting.map(suggestion).collect()
    };
    match word.split_once(':') {
        Some(("status", part)) => {
            let words = Status::ALL.map(|status| status.as_str().to_ascii_lowercase());
            values("status", part, &words.each_ref().map(|word| (word.as_str(), "")))
        }
        Some((key @ ("since" | "until"), part)) => values(key, part, &TIMES),
        Some(_) => Vec::new(),
        None => {
            let keys = KEYS.into_iter().filter(|(key, _)| key.starts_with(word));
            let suggestion = |(key, about): (&str, &str)| Suggestion {
                text: format!("{key}:"),
                about: about.to_owned(),
            };
            keys.map(suggestion).collect()
        }
    }
}
