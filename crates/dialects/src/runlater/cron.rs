//! Checks the cron trigger: it needs a valid expression of five fields.

use super::trigger;
use crate::check::{Check, text};
use crate::diagnostics::quote;
use fermata_triggers::Schedule;
use serde_json::json;
use std::collections::HashSet;
use std::ops::RangeInclusive;

const AT: &str = "/cron_expression";
const HELP: &str = "write the five fields minute, hour, day of month, month and day of week, such as `0 9 * * 1-5`";
const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// A field: its name, its range, and the names of its values from the lowest on.
struct Field {
    name: &'static str,
    numbers: RangeInclusive<u32>,
    words: &'static [&'static str],
}

const FIELDS: [Field; 5] = [
    Field::plain("minute", 0..=59),
    Field::plain("hour", 0..=23),
    Field::plain("day of month", 1..=31),
    Field {
        name: "month",
        numbers: 1..=12,
        words: &MONTHS,
    },
    Field {
        name: "day of week",
        numbers: 0..=7,
        words: &DAYS,
    },
];

/// `meant` are fields that are present under a misspelled name.
pub(super) fn check(check: &mut Check, meant: &HashSet<String>) {
    let document = check.document.value();
    let given = document.get("cron_expression").filter(|given| !given.is_null());
    let by_clock = trigger(document) == "cron";
    match given {
        None if by_clock && !meant.contains(AT) => {
            let message = "the field `cron_expression` is missing: a workflow with the trigger `cron` needs it";
            let problem = check.error("MISSING_FIELD", "/trigger", message);
            check.add(problem.help(HELP));
        }
        Some(_) if !by_clock => {
            let message = format!(
                "`cron_expression` has no effect: the trigger is {}",
                quote(trigger(document))
            );
            let mut problem = check.warning("UNUSED_FIELD", AT, message);
            problem.span = check.document.locate_key(AT);
            check.add(problem.help("set `trigger` to `cron`, or remove `cron_expression`"));
        }
        _ => {}
    }
    let Some(expression) = text(document, "cron_expression") else {
        return;
    };
    if let Err(message) = parse(expression) {
        let problem = check.error("INVALID_CRON", AT, message);
        check.add(problem.help(HELP));
    } else if let Err(problems) = Schedule::parse(&json!({ "cron": expression }), "") {
        // Its fields are right, but it never fires: 30 February.
        let message = problems
            .first()
            .map_or(String::new(), |problem| problem.message.clone());
        let problem = check.error("INVALID_CRON", AT, format!("the cron expression {message}"));
        check.add(problem.help(HELP));
    }
}

fn parse(expression: &str) -> Result<(), String> {
    let given: Vec<&str> = expression.split_whitespace().collect();
    if given.len() != FIELDS.len() {
        return Err(format!(
            "a cron expression has five fields, but {} has {}",
            quote(expression),
            given.len()
        ));
    }
    for (field, given) in FIELDS.iter().zip(given) {
        field.check(given)?;
    }
    Ok(())
}

impl Field {
    const fn plain(name: &'static str, numbers: RangeInclusive<u32>) -> Field {
        Field {
            name,
            numbers,
            words: &[],
        }
    }

    fn check(&self, given: &str) -> Result<(), String> {
        given.split(',').try_for_each(|part| self.part(part))
    }

    /// `*`, `5`, `1-5`, each perhaps with `/2`.
    fn part(&self, part: &str) -> Result<(), String> {
        let wrong = || {
            let (first, last) = (self.numbers.start(), self.numbers.end());
            format!(
                "{} is not a valid {}: use `*` or numbers from {first} to {last}",
                quote(part),
                self.name
            )
        };
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(step)),
            None => (part, None),
        };
        if step.is_some_and(|step| number(step).is_none_or(|step| step == 0)) {
            return Err(wrong());
        }
        let fits = match range.split_once('-') {
            _ if range == "*" => true,
            Some((first, last)) => self.value(first).zip(self.value(last)).is_some_and(|(a, b)| a <= b),
            None => self.value(range).is_some(),
        };
        fits.then_some(()).ok_or_else(wrong)
    }

    fn value(&self, given: &str) -> Option<u32> {
        let word = self.words.iter().position(|word| given.eq_ignore_ascii_case(word));
        let of_word = word
            .and_then(|at| u32::try_from(at).ok())
            .map(|at| at + self.numbers.start());
        of_word.or_else(|| number(given).filter(|number| self.numbers.contains(number)))
    }
}

fn number(text: &str) -> Option<u32> {
    text.parse()
        .ok()
        .filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn cron_needs_five_fields_within_their_ranges() {
        let good = [
            "* * * * *",
            "0 9 * * 1-5",
            "*/15 0,12 1-31/2 jan-MAR mon",
            " 5  4\t1 12 7 ",
            "0 0 * * sun-sat",
        ];
        for expression in good {
            assert_eq!(parse(expression), Ok(()), "{expression}");
        }
        let bad = [
            ("", "`` has 0"),
            ("0 9 * *", "has 4"),
            ("0 0 9 * * *", "has 6"),
            ("@daily", "has 1"),
            (
                "60 * * * *",
                "`60` is not a valid minute: use `*` or numbers from 0 to 59",
            ),
            ("* 24 * * *", "valid hour"),
            ("* * 0 * *", "valid day of month"),
            ("* * * 13 *", "valid month"),
            ("* * * foo *", "`foo`"),
            ("* * * * 8", "valid day of week"),
            ("5-1 * * * *", "`5-1`"),
            ("*/0 * * * *", "`*/0`"),
            ("1,,2 * * * *", "``"),
            ("+1 * * * *", "`+1`"),
            ("1- * * * *", "`1-`"),
        ];
        for (expression, what) in bad {
            let message = parse(expression).expect_err(expression);
            assert!(message.contains(what), "{expression}: {message}");
        }
    }
}
