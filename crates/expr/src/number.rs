//! Conversion between numbers and text, as in ECMAScript.
//!
//! What must stay true: `to_text` is Number::toString of the standard to the last digit (Rust
//! prints the same shortest digits; only the layout differs), and `from_text` is StringToNumber.

/// The double of a JSON number, which may be too large for one: JSON.parse makes Infinity of it.
pub(crate) fn of_json(number: &serde_json::Number) -> f64 {
    number.as_str().parse().unwrap_or(f64::NAN)
}

/// Number::toString with radix 10.
pub(crate) fn to_text(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    if number.fract() == 0.0 && number.abs() < 1e15 {
        // Also writes -0 as "0", as the standard requires.
        return (number as i64).to_string();
    }
    let scientific = format!("{:e}", number.abs());
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let digits: String = mantissa.chars().filter(|c| *c != '.').collect();
    let point = exponent.parse::<i32>().unwrap_or(0) + 1;
    let sign = if number < 0.0 { "-" } else { "" };
    format!("{sign}{}", lay_out(&digits, point))
}

/// Places the decimal point after `point` digits, or writes an exponent.
fn lay_out(digits: &str, point: i32) -> String {
    let count = digits.len() as i32;
    if count <= point && point <= 21 {
        return format!("{digits}{}", "0".repeat((point - count) as usize));
    }
    if 0 < point && point <= 21 {
        let (whole, fraction) = digits.split_at(point as usize);
        return format!("{whole}.{fraction}");
    }
    if -6 < point && point <= 0 {
        return format!("0.{}{digits}", "0".repeat((-point) as usize));
    }
    let exponent = point - 1;
    let sign = if exponent < 0 { '-' } else { '+' };
    let (first, rest) = digits.split_at(1);
    let dot = if rest.is_empty() { "" } else { "." };
    format!("{first}{dot}{rest}e{sign}{}", exponent.abs())
}

/// Number.prototype.toFixed for `digits` in 0..=100.
pub(crate) fn to_fixed(number: f64, digits: usize) -> String {
    if !number.is_finite() || number.abs() >= 1e21 {
        return to_text(number);
    }
    let magnitude = number.abs();
    let rounded = if is_tie(magnitude, digits) {
        // The standard takes the larger of two equally near values, Rust the even one.
        let longer = format!("{magnitude:.*}", digits + 1);
        add_one_ulp_of_decimal(&longer[..longer.len() - 1])
    } else {
        format!("{magnitude:.digits$}")
    };
    let negative = number < 0.0;
    // With `x < 0`, the standard writes the sign even if all digits are zero.
    if negative { format!("-{rounded}") } else { rounded }
}

/// Whether the number lies exactly between two decimals of `digits` places.
fn is_tie(magnitude: f64, digits: usize) -> bool {
    if !format!("{magnitude:.*}", digits + 1).ends_with('5') {
        return false;
    }
    // A double has at most 1074 binary, hence decimal, places.
    let exact = format!("{magnitude:.1075}");
    let Some((_, places)) = exact.split_once('.') else {
        return false;
    };
    let places = places.as_bytes();
    places[digits] == b'5' && places[digits + 1..].iter().all(|digit| *digit == b'0')
}

/// Adds one to the last digit of a decimal (a trailing point, if any, is dropped).
fn add_one_ulp_of_decimal(decimal: &str) -> String {
    let decimal = decimal.strip_suffix('.').unwrap_or(decimal);
    let mut out: Vec<u8> = decimal.bytes().collect();
    for digit in out.iter_mut().rev() {
        match *digit {
            b'.' => {}
            b'9' => *digit = b'0',
            other => {
                *digit = other + 1;
                return String::from_utf8_lossy(&out).into_owned();
            }
        }
    }
    format!("1{}", String::from_utf8_lossy(&out))
}

/// White space and line ends of ECMAScript, which are not quite Unicode's.
pub(crate) fn is_space(c: char) -> bool {
    match c {
        '\u{85}' => false,
        '\u{feff}' => true,
        other => other.is_whitespace(),
    }
}

/// StringToNumber.
pub(crate) fn from_text(text: &str) -> f64 {
    let text = text.trim_matches(is_space);
    if text.is_empty() {
        return 0.0;
    }
    if let Some(rest) = text.strip_prefix('0') {
        let radix = match rest.as_bytes().first() {
            Some(b'x' | b'X') => Some(16),
            Some(b'o' | b'O') => Some(8),
            Some(b'b' | b'B') => Some(2),
            _ => None,
        };
        if let Some(radix) = radix {
            return from_digits(&rest[1..], radix).unwrap_or(f64::NAN);
        }
    }
    match decimal_prefix(text) {
        Some((value, length)) if length == text.len() => value,
        _ => f64::NAN,
    }
}

/// The longest prefix that is a StrDecimalLiteral, and its length in bytes.
pub(crate) fn decimal_prefix(text: &str) -> Option<(f64, usize)> {
    let bytes = text.as_bytes();
    let start = usize::from(matches!(bytes.first(), Some(b'+' | b'-')));
    if text[start..].starts_with("Infinity") {
        let value = if bytes[0] == b'-' {
            f64::NEG_INFINITY
        } else {
            f64::INFINITY
        };
        return Some((value, start + "Infinity".len()));
    }
    let digits = |from: usize| bytes[from..].iter().take_while(|b| b.is_ascii_digit()).count();
    let whole = digits(start);
    let mut end = start + whole;
    if bytes.get(end) == Some(&b'.') {
        let fraction = digits(end + 1);
        if whole + fraction > 0 {
            end += 1 + fraction;
        }
    }
    if end == start {
        return None;
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let exponent = if end + 1 + sign <= bytes.len() {
            digits(end + 1 + sign)
        } else {
            0
        };
        if exponent > 0 {
            end += 1 + sign + exponent;
        }
    }
    text[..end].parse().ok().map(|value| (value, end))
}

/// Digits of a radix that is a power of two, rounded once (half to even) as the standard asks.
/// `None` if there is no digit or a wrong one.
pub(crate) fn from_digits(digits: &str, radix: u32) -> Option<f64> {
    let bits = radix.trailing_zeros();
    if digits.is_empty() {
        return None;
    }
    let mut mantissa: u128 = 0;
    let mut dropped: i32 = 0;
    let mut sticky = false;
    for c in digits.chars() {
        let digit = u128::from(c.to_digit(radix)?);
        if mantissa >> 64 == 0 {
            mantissa = (mantissa << bits) | digit;
        } else {
            // The first 64 bits are kept; the rest only decides ties.
            sticky |= digit != 0;
            dropped = dropped.saturating_add(bits as i32);
        }
    }
    if sticky {
        mantissa |= 1;
    }
    Some(mantissa as f64 * 2f64.powi(dropped))
}

/// ToInt32.
pub(crate) fn to_int32(number: f64) -> i32 {
    to_uint32(number) as i32
}

/// ToUint32.
pub(crate) fn to_uint32(number: f64) -> u32 {
    if !number.is_finite() {
        return 0;
    }
    const MODULUS: f64 = 4_294_967_296.0;
    let remainder = number.trunc() % MODULUS;
    let positive = if remainder < 0.0 {
        remainder + MODULUS
    } else {
        remainder
    };
    positive as u32
}

/// Number::exponentiate, which differs from C's `pow` in three cases.
pub(crate) fn power(base: f64, exponent: f64) -> f64 {
    if exponent.is_nan() || (base.abs() == 1.0 && exponent.is_infinite()) {
        return f64::NAN;
    }
    base.powf(exponent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn writes_numbers_as_the_standard_does() {
        let table = [
            (0.0, "0"),
            (-0.0, "0"),
            (1.0, "1"),
            (-12.5, "-12.5"),
            (0.1 + 0.2, "0.30000000000000004"),
            (1e21, "1e+21"),
            (1e20, "100000000000000000000"),
            (123456789012345680000.0, "123456789012345680000"),
            (1e-6, "0.000001"),
            (1e-7, "1e-7"),
            (1.5e-7, "1.5e-7"),
            (1.7976931348623157e308, "1.7976931348623157e+308"),
            (5e-324, "5e-324"),
            (9007199254740993.0, "9007199254740992"),
            (9223372036854775808.0, "9223372036854776000"),
        ];
        for (number, text) in table {
            assert_eq!(to_text(number), text);
        }
    }

    #[test]
    fn reads_numbers_as_the_standard_does() {
        let table = [
            ("", 0.0),
            (" 12 ", 12.0),
            ("0x1F", 31.0),
            ("0b101", 5.0),
            ("0o17", 15.0),
            (".5", 0.5),
            ("5.", 5.0),
            ("+1e3", 1000.0),
            ("-Infinity", f64::NEG_INFINITY),
            ("\u{feff}1\u{2028}", 1.0),
            ("0x20000000000001", 9007199254740992.0),
            ("0x20000000000003", 9007199254740996.0),
        ];
        for (text, number) in table {
            assert_eq!(from_text(text), number, "{text:?}");
        }
        for text in [
            "1px", "inf", "nan", "infinity", "1e", "0x", "-0x1", ".", "\u{85}1", "1_0",
        ] {
            assert!(from_text(text).is_nan(), "{text:?}");
        }
        assert!(from_text("-0").is_sign_negative());
    }

    #[test]
    fn fixes_digits_with_ties_away_from_zero() {
        let table = [
            (0.5, 0, "1"),
            (2.5, 0, "3"),
            (-2.5, 0, "-3"),
            (1.005, 2, "1.00"),
            (1.45, 1, "1.4"),
            (8.345, 2, "8.35"),
            (0.000001, 7, "0.0000010"),
            (123.456, 0, "123"),
            (9.5, 0, "10"),
            (-0.0000001, 2, "-0.00"),
            (-0.0, 2, "0.00"),
            (1e21, 2, "1e+21"),
            (0.125, 2, "0.13"),
        ];
        for (number, digits, text) in table {
            assert_eq!(to_fixed(number, digits), text, "{number} {digits}");
        }
    }

    proptest! {
        #[test]
        fn writing_and_reading_are_inverse(number in any::<f64>()) {
            let back = from_text(&to_text(number));
            prop_assert!(back == number || (back.is_nan() && number.is_nan()));
        }

        #[test]
        fn reading_never_panics(text in any::<String>()) {
            from_text(&text);
            decimal_prefix(&text);
        }
    }
}
