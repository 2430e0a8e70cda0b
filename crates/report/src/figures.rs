//! Figures as Heritrix writes them for people.

/// Returns a duration as `5d12h13m12s113ms`; units of which there are none are left out.
pub(crate) fn duration(milliseconds: u64) -> String {
    let mut left = milliseconds;
    let mut out = String::new();
    for (unit, name) in [
        (86_400_000, "d"),
        (3_600_000, "h"),
        (60_000, "m"),
        (1_000, "s"),
        (1, "ms"),
    ] {
        if left >= unit {
            out += &format!("{}{name}", left / unit);
            left %= unit;
        }
    }
    if out.is_empty() {
        "0ms".to_owned()
    } else {
        out
    }
}

/// Returns a size as `7.2 KiB` or `143 KiB`.
pub(crate) fn size(bytes: u64) -> String {
    let mut shown = bytes as f64;
    let mut units = ["B", "KiB", "MiB", "GiB", "TiB"].into_iter();
    let mut unit = units.next().unwrap_or_default();
    while shown >= 1024.0
        && let Some(next) = units.next()
    {
        shown /= 1024.0;
        unit = next;
    }
    if bytes == 0 {
        return "0 B".to_owned();
    }
    let digits = usize::from(shown < 10.0);
    format!("{} {unit}", grouped(&format!("{shown:.digits$}")))
}

/// Returns a number with at most two digits behind the point.
pub(crate) fn decimal(number: f64) -> String {
    if !number.is_finite() {
        return "0".to_owned();
    }
    let text = format!("{number:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    grouped(if text == "-0" { "0" } else { text })
}

/// Returns `count` for each second of `milliseconds`; nothing in no time is nothing.
pub(crate) fn per_second(count: f64, milliseconds: u64) -> f64 {
    if milliseconds == 0 {
        return 0.0;
    }
    count * 1000.0 / milliseconds as f64
}

/// Puts a comma before each group of three digits, as Java does for an American.
fn grouped(number: &str) -> String {
    let (whole, fraction) = match number.find('.') {
        Some(point) => number.split_at(point),
        None => (number, ""),
    };
    let (sign, digits) = match whole.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", whole),
    };
    let mut out = sign.to_owned();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out + fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_leave_out_what_is_nought() {
        assert_eq!(duration(41_968), "41s968ms");
        assert_eq!(duration(475_992_113), "5d12h13m12s113ms");
        assert_eq!(duration(71_460_000), "19h51m");
        assert_eq!(duration(0), "0ms");
    }

    #[test]
    fn sizes_have_two_digits_at_least() {
        assert_eq!(size(153_399), "150 KiB");
        assert_eq!(size(7_405), "7.2 KiB");
        assert_eq!(size(1_023), "1,023 B");
        assert_eq!(size(5), "5.0 B");
        assert_eq!(size(0), "0 B");
        assert_eq!(size(u64::MAX), "16,777,216 TiB");
    }

    #[test]
    fn numbers_are_grouped_and_short() {
        assert_eq!(decimal(0.36), "0.36");
        assert_eq!(decimal(12_345.5), "12,345.5");
        assert_eq!(decimal(-1_234_567.0), "-1,234,567");
        assert_eq!(decimal(100.0), "100");
        assert_eq!(decimal(-0.001), "0");
        assert_eq!(decimal(f64::NAN), "0");
        assert_eq!(per_second(15.0, 0), 0.0);
        assert_eq!(per_second(15.0, 30_000), 0.5);
    }
}
