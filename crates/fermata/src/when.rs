//! Instants for people: how long ago, or how far ahead.

use jiff::Timestamp;

/// An instant of the API relative to now, such as `3 min ago` or `in 2 h`. After 30 days, the date. A text that is not an
/// instant is shown as it is.
pub fn relative(text: &str) -> String {
    relative_to(text, Timestamp::now())
}

/// Whether an instant of the API has passed.
pub fn is_past(text: &str) -> bool {
    text.parse::<Timestamp>().is_ok_and(|at| at <= Timestamp::now())
}

/// The instant without fractions of seconds, and how long ago: `2026-11-15 10:30:00Z (3 min ago)`.
pub fn full(text: &str) -> String {
    match text.split_once('.') {
        Some((whole, _)) => format!("{}Z ({})", whole.replace('T', " "), relative(text)),
        None => text.to_owned(),
    }
}

fn relative_to(text: &str, now: Timestamp) -> String {
    let Ok(at) = text.parse::<Timestamp>() else {
        return text.to_owned();
    };
    let seconds = now.as_second() - at.as_second();
    let amount = match seconds.unsigned_abs() {
        0 => return "now".to_owned(),
        seconds @ 1..60 => format!("{seconds} s"),
        seconds @ 60..3600 => format!("{} min", seconds / 60),
        seconds @ 3600..86_400 => format!("{} h", seconds / 3600),
        seconds @ 86_400..2_592_000 => format!("{} d", seconds / 86_400),
        _ => return text.split('T').next().unwrap_or_default().to_owned(),
    };
    match seconds > 0 {
        true => format!("{amount} ago"),
        false => format!("in {amount}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_unit_is_shown_and_old_instants_are_dates() {
        let now: Timestamp = "2026-11-15T10:30:00Z".parse().unwrap();
        for (text, shown) in [
            ("2026-11-15T10:30:00.400Z", "now"),
            ("2026-11-15T10:29:15.000Z", "45 s ago"),
            ("2026-11-15T10:20:01.000Z", "9 min ago"),
            ("2026-11-15T08:20:00.000Z", "2 h ago"),
            ("2026-11-10T10:30:00.000Z", "5 d ago"),
            ("2026-11-15T11:30:01.000Z", "in 1 h"),
            ("2026-01-02T10:30:00.000Z", "2026-01-02"),
            ("", ""),
            ("soon", "soon"),
        ] {
            assert_eq!(relative_to(text, now), shown, "{text}");
        }
    }
}
