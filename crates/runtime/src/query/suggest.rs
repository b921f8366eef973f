//! What can follow at a place in a query, for completion.

use super::KEYS;
use fermata_core::Status;

/// One way to complete a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suggestion {
    /// What replaces the word before the cursor.
    pub text: String,
    /// What it means.
    pub about: &'static str,
}

/// Completions of the word before `cursor`, a number of characters. The ids of workflows and the like are not known here.
///
/// ```
/// let words = fermata_runtime::query::suggest("status:fa", 9);
/// assert_eq!(words[0].text, "status:failed");
/// ```
pub fn suggest(text: &str, cursor: usize) -> Vec<Suggestion> {
    let before: String = text.chars().take(cursor).collect();
    let word = before.rsplit(char::is_whitespace).next().unwrap_or_default();
    if let Some(part) = word.strip_prefix("status:") {
        let words = Status::ALL.map(|status| status.as_str().to_ascii_lowercase());
        let words = words
            .into_iter()
            .filter(|word| word.starts_with(&part.to_ascii_lowercase()));
        let suggestion = |word| Suggestion {
            text: format!("status:{word}"),
            about: "",
        };
        return words.map(suggestion).collect();
    }
    let keys = KEYS.into_iter().filter(|(key, _)| key.starts_with(word));
    let suggestion = |(key, about)| Suggestion {
        text: format!("{key}:"),
        about,
    };
    keys.map(suggestion).collect()
}
