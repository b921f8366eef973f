//! Which programs may use a database: it names the oldest one, and all newer ones may use it.

use crate::{Result, StoreError};

/// Refuses if the database at `path` needs a newer program than `have`.
pub(crate) fn check(needs: &str, have: &str, path: &str) -> Result<()> {
    match numbers(needs) > numbers(have) {
        true => Err(StoreError::TooNew {
            path: path.to_owned(),
            needs: needs.to_owned(),
            have: have.to_owned(),
        }),
        false => Ok(()),
    }
}

/// `1.20.3-rc1` as numbers; text that is not a number counts as 0.
fn numbers(version: &str) -> [u64; 3] {
    let mut parts = version
        .split(['-', '+'])
        .next()
        .unwrap_or("")
        .split('.')
        .map(|part| part.parse().unwrap_or(0));
    [(); 3].map(|()| parts.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_as_numbers() {
        assert!(numbers("0.10.0") > numbers("0.9.12"));
        assert!(numbers("1.0") > numbers("0.99.99"));
        assert_eq!(numbers("1.2.3-rc1"), [1, 2, 3]);
    }
}
