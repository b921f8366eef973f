//! What is wrong with a cron expression that cannot be read: the field, the value, what is allowed there, and the position.
//!
//! It only explains; the parser decides what is refused. So an expression that is accepted today is never refused because of
//! this file.

/// A field of an expression.
struct Field {
    name: &'static str,
    min: u16,
    max: u16,
    /// The names that stand for numbers.
    names: &'static [&'static str],
}

const MONTHS: [&str; 12] = [
    "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC",
];
const DAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];
const MACROS: [&str; 7] = [
    "@hourly",
    "@daily",
    "@midnight",
    "@weekly",
    "@monthly",
    "@yearly",
    "@annually",
];

const DAY_OF_MONTH: &str = "day of month";
const DAY_OF_WEEK: &str = "day of week";

/// The fields of an expression with seconds.
const FIELDS: [Field; 6] = [
    field("second", 0, 59, &[]),
    field("minute", 0, 59, &[]),
    field("hour", 0, 23, &[]),
    field(DAY_OF_MONTH, 1, 31, &[]),
    field("month", 1, 12, &MONTHS),
    field(DAY_OF_WEEK, 0, 7, &DAYS),
];

const fn field(name: &'static str, min: u16, max: u16, names: &'static [&'static str]) -> Field {
    Field { name, min, max, names }
}

/// Why `text`, which has five or six fields or is a macro, is not a cron expression.
pub(super) fn explain(text: &str) -> String {
    if text.starts_with('@') {
        let known = MACROS.join(", ");
        return match fermata_expr::nearest(text, MACROS) {
            Some(near) => format!("there is no macro `{text}`; did you mean `{near}`?"),
            None => format!("there is no macro `{text}`; there are {known}"),
        };
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    let fields = &FIELDS[FIELDS.len().saturating_sub(words.len())..];
    for (field, word) in fields.iter().zip(&words) {
        let mut begin = offset(text, word);
        for item in word.split(',') {
            let found = field.problem(item);
            if let Some((part, why)) = found {
                let position = text[..begin + offset(item, part)].chars().count() + 1;
                return format!("{} `{part}` at character {position}: {why}", field.name);
            }
            begin += item.len() + 1;
        }
    }
    "it has a value that no field has".to_owned()
}

/// Where `part`, which is a part of `whole`, begins.
fn offset(whole: &str, part: &str) -> usize {
    (part.as_ptr() as usize).saturating_sub(whole.as_ptr() as usize)
}

impl Field {
    /// The part of an item of the list that is wrong, and why.
    fn problem<'a>(&self, item: &'a str) -> Option<(&'a str, String)> {
        let is_day_of_week = self.name == DAY_OF_WEEK;
        let bare = match is_day_of_week {
            true => item.strip_prefix('+').unwrap_or(item),
            false => item,
        };
        if bare.contains('+') {
            return Some((item, "`+` stands only at the beginning of the day of week".to_owned()));
        }
        if bare.contains('?') && !is_day_of_week && self.name != DAY_OF_MONTH {
            return Some((item, format!("`?` is not allowed here; {}", self.allowed())));
        }
        let (range, step) = match bare.split_once('/') {
            Some((range, step)) => (range, Some(step)),
            None => (bare, None),
        };
        if let Some(step) = step {
            if step.contains('/') {
                return Some((bare, "it has more than one step".to_owned()));
            }
            match step.parse::<u16>() {
                Ok(0) => return Some((bare, "the step must be at least 1".to_owned())),
                Ok(_) => {}
                Err(_) => return Some((bare, format!("the step `{step}` is not a whole number"))),
            }
            if range.is_empty() {
                return Some((bare, format!("the step has no range; write `*/{step}`")));
            }
            if range != "*" && !range.contains('-') {
                let max = self.max.min(if is_day_of_week { 6 } else { u16::MAX });
                let why = format!("a step needs a range; write `{range}-{max}/{step}` or `*/{step}`");
                return Some((bare, why));
            }
        }
        match range {
            "" | "*" | "?" => None,
            _ if range.contains('-') => self.range(range),
            _ => self.value(range),
        }
    }

    fn range<'a>(&self, range: &'a str) -> Option<(&'a str, String)> {
        let ends: Vec<&str> = range.split('-').collect();
        let [first, last] = ends[..] else {
            return Some((range, format!("a range has two ends; {}", self.allowed())));
        };
        let last = last.split('#').next().unwrap_or(last);
        match (self.number(first), self.number(last)) {
            (Some(from), Some(to)) if from > to => {
                let why = format!(
                    "the range goes backwards; write two ranges, such as `{from}-{},{}-{to}`",
                    self.max, self.min
                );
                Some((range, why))
            }
            (Some(_), Some(_)) => None,
            (None, _) if !first.is_empty() => Some((first, self.allowed())),
            (_, None) if !last.is_empty() => Some((last, self.allowed())),
            _ => Some((range, format!("an end of the range is missing; {}", self.allowed()))),
        }
    }

    /// A single value, with the letters that mean a day by its place.
    fn value<'a>(&self, value: &'a str) -> Option<(&'a str, String)> {
        let upper = value.to_ascii_uppercase();
        let is_name = self.names.contains(&upper.as_str());
        if is_name || self.number(value).is_some() {
            return None;
        }
        if self.name == DAY_OF_MONTH {
            if upper == "L" || upper == "LW" {
                return None;
            }
            if let Some(day) = upper.strip_suffix('W') {
                let why = format!("`W` follows a day from {} to {}, such as `15W`", self.min, self.max);
                return self.number(day).is_none().then_some((value, why));
            }
        }
        if self.name == DAY_OF_WEEK {
            if upper == "L" {
                return None;
            }
            let (day, which) = match upper.split_once('#') {
                Some((day, which)) => (day, Some(which)),
                None => (upper.strip_suffix('L').unwrap_or(&upper), None),
            };
            if self.number(day).is_none() {
                return Some((value, self.allowed()));
            }
            let is_which = which.is_none_or(|which| which == "L" || matches!(which.parse(), Ok(1..=5)));
            let why = "after `#` stands a number from 1 to 5, or `L` for the last one".to_owned();
            return (!is_which).then_some((value, why));
        }
        for (letter, place) in [
            ('#', DAY_OF_WEEK),
            ('W', DAY_OF_MONTH),
            ('L', "day of month and the day of week"),
        ] {
            let stem = upper.trim_end_matches(|c: char| c == letter || c.is_ascii_digit());
            if upper.contains(letter) && stem.is_empty() {
                return Some((value, format!("`{letter}` is allowed only in the {place}")));
            }
        }
        Some((value, self.allowed()))
    }

    /// The number or name, if the field has it.
    fn number(&self, text: &str) -> Option<u16> {
        let upper = text.to_ascii_uppercase();
        if let Some(at) = self.names.iter().position(|name| *name == upper) {
            return u16::try_from(at).ok().map(|at| at + u16::from(self.name == "month"));
        }
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|_| is_number)?;
        (self.min..=self.max).contains(&number).then_some(number)
    }

    fn allowed(&self) -> String {
        let numbers = format!("allowed are {} to {}", self.min, self.max);
        match (self.names.first(), self.names.last()) {
            (Some(first), Some(last)) => format!("{numbers} and {first} to {last}"),
            _ => numbers,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::schedule::cron::Cron;

    #[test]
    fn mistakes_are_explained_with_field_value_range_and_position() {
        for (text, why) in [
            ("60 * * * *", "minute `60` at character 1: allowed are 0 to 59"),
            ("* 24 * * *", "hour `24` at character 3: allowed are 0 to 23"),
            ("0  0 0 * *", "day of month `0` at character 6: allowed are 1 to 31"),
            (
                "* * * 13 *",
                "month `13` at character 7: allowed are 1 to 12 and JAN to DEC",
            ),
            (
                "* * * * 8",
                "day of week `8` at character 9: allowed are 0 to 7 and SUN to SAT",
            ),
            (
                "* * * * MOX",
                "day of week `MOX` at character 9: allowed are 0 to 7 and SUN to SAT",
            ),
            ("0 9 1,32 * *", "day of month `32` at character 7: allowed are 1 to 31"),
            ("99 * * * * *", "second `99` at character 1: allowed are 0 to 59"),
            ("0 61 * * * *", "minute `61` at character 3: allowed are 0 to 59"),
            (
                "99999999999 * * * *",
                "minute `99999999999` at character 1: allowed are 0 to 59",
            ),
            (
                "-5 * * * *",
                "minute `-5` at character 1: an end of the range is missing; allowed are 0 to 59",
            ),
            ("1.5 * * * *", "minute `1.5` at character 1: allowed are 0 to 59"),
            ("a b c d e", "minute `a` at character 1: allowed are 0 to 59"),
            ("* 9-25 * * *", "hour `25` at character 5: allowed are 0 to 23"),
            (
                "* 22-4 * * *",
                "hour `22-4` at character 3: the range goes backwards; write two ranges, such as `22-23,0-4`",
            ),
            (
                "1-2-3 * * * *",
                "minute `1-2-3` at character 1: a range has two ends; allowed are 0 to 59",
            ),
            (
                "*/0 * * * *",
                "minute `*/0` at character 1: the step must be at least 1",
            ),
            (
                "*/x * * * *",
                "minute `*/x` at character 1: the step `x` is not a whole number",
            ),
            (
                "*/5/5 * * * *",
                "minute `*/5/5` at character 1: it has more than one step",
            ),
            (
                "/5 * * * *",
                "minute `/5` at character 1: the step has no range; write `*/5`",
            ),
            (
                "5/10 * * * *",
                "minute `5/10` at character 1: a step needs a range; write `5-59/10` or `*/10`",
            ),
            (
                "* * * * MON#6",
                "day of week `MON#6` at character 9: after `#` stands a number from 1 to 5, or `L` for the last one",
            ),
            (
                "* * 32W * *",
                "day of month `32W` at character 5: `W` follows a day from 1 to 31, such as `15W`",
            ),
            (
                "15W * * * *",
                "minute `15W` at character 1: `W` is allowed only in the day of month",
            ),
            (
                "* * 1#2 * *",
                "day of month `1#2` at character 5: `#` is allowed only in the day of week",
            ),
            (
                "* L * * *",
                "hour `L` at character 3: `L` is allowed only in the day of month and the day of week",
            ),
            (
                "? * * * *",
                "minute `?` at character 1: `?` is not allowed here; allowed are 0 to 59",
            ),
            (
                "+1 * * * *",
                "minute `+1` at character 1: `+` stands only at the beginning of the day of week",
            ),
            ("@dayly", "there is no macro `@dayly`; did you mean `@daily`?"),
            (
                "@fortnight",
                "there is no macro `@fortnight`; there are @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually",
            ),
            (
                "5 4 * * ä",
                "day of week `ä` at character 9: allowed are 0 to 7 and SUN to SAT",
            ),
        ] {
            let found = Cron::parse(text).expect_err(text);
            assert_eq!(found, format!("is not a cron expression: `{text}`: {why}"));
        }
    }
}
