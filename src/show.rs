//! Figures as people read them.

/// Returns how many of something there are.
pub(crate) fn count(count: impl TryInto<u64>, one: &str, many: &str) -> String {
    match count.try_into().unwrap_or(u64::MAX) {
        1 => format!("1 {one}"),
        count => format!("{count} {many}"),
    }
}

/// Returns seconds as `41s`, `12m`, `3h 05m`, `2d 04h`.
pub(crate) fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h {:02}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d {:02}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// Returns a short time as `0.4s`, `12s`, `3m`.
pub(crate) fn span(seconds: f64) -> String {
    if seconds < 9.95 {
        format!("{:.1}s", seconds.max(0.0))
    } else {
        age(seconds.round() as u64)
    }
}

/// Returns bytes as `1.5 GB`.
pub(crate) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "kB", "MB", "GB", "TB", "PB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 || value >= 99.5 {
        format!("{value:.0} {}", UNITS[unit])
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

/// Returns a time of day, or a date for another day.
pub(crate) fn clock(unix_seconds: u64) -> String {
    let Ok(second) = i64::try_from(unix_seconds) else {
        return "-".into();
    };
    let Ok(time) = jiff::Timestamp::from_second(second) else {
        return "-".into();
    };
    let zoned = time.to_zoned(jiff::tz::TimeZone::system());
    let today = jiff::Timestamp::now()
        .to_zoned(jiff::tz::TimeZone::system())
        .date();
    if zoned.date() == today {
        zoned.strftime("%H:%M:%S").to_string()
    } else {
        zoned.strftime("%Y-%m-%d %H:%M").to_string()
    }
}

/// Returns an RFC 3339 time as local time.
pub(crate) fn local(rfc3339: &str) -> String {
    rfc3339
        .parse::<jiff::Timestamp>()
        .ok()
        .and_then(|time| u64::try_from(time.as_second()).ok())
        .map_or_else(|| rfc3339.to_owned(), clock)
}

/// Cuts a text to a width, with an ellipsis.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// Returns a text in one line, with single spaces.
pub(crate) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Breaks a text into lines of a width, at spaces where there are any; the last of too many ends with an ellipsis.
pub(crate) fn wrap(text: &str, width: usize, most: usize) -> Vec<String> {
    let width = width.max(1);
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let mut word = word;
        loop {
            let line = lines.last_mut().expect("there is always a line");
            let used = line.chars().count();
            let space = usize::from(used > 0);
            let length = word.chars().count();
            if used + space + length <= width {
                line.push_str(if space > 0 { " " } else { "" });
                line.push_str(word);
                break;
            }
            if used == 0 {
                let at = word
                    .char_indices()
                    .nth(width)
                    .map_or(word.len(), |(at, _)| at);
                line.push_str(&word[..at]);
                word = &word[at..];
            }
            lines.push(String::new());
        }
    }
    if lines.len() > most {
        let rest = lines.split_off(most.saturating_sub(1)).join(" ");
        lines.push(cut(&rest, width));
    }
    lines
}

/// Returns a word as a shell takes it, without a backslash: that is doubled wherever names from outside are shown.
pub(crate) fn word(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/:.-_~+,=@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r#"'"'"'"#))
}

/// Returns the columns of a terminal; one that does not know has eighty.
pub(crate) fn columns(terminal: impl std::os::fd::AsFd) -> usize {
    match rustix::termios::tcgetwinsize(terminal) {
        Ok(size) if size.ws_col > 0 => usize::from(size.ws_col).clamp(20, 400),
        _ => 80,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_well() {
        assert_eq!(age(59), "59s");
        assert_eq!(age(3660), "1h 01m");
        assert_eq!(age(180_000), "2d 02h");
        assert_eq!(span(0.44), "0.4s");
        assert_eq!(span(12.4), "12s");
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1_500_000_000), "1.5 GB");
        assert_eq!(bytes(999_600), "1.0 MB");
        assert_eq!(cut("abcdef", 4), "abc…");
    }

    #[test]
    fn a_text_is_broken_into_lines() {
        assert_eq!(wrap("one two three", 7, 9), ["one two", "three"]);
        assert_eq!(wrap("abcdefghij kl", 4, 9), ["abcd", "efgh", "ij", "kl"]);
        assert_eq!(wrap("one two three four", 7, 2), ["one two", "three …"]);
        assert_eq!(wrap("", 7, 2), [""]);
    }

    #[test]
    fn a_word_is_one_for_a_shell() {
        assert_eq!(word("https://a.example/b"), "https://a.example/b");
        assert_eq!(word("my archive"), "'my archive'");
        assert_eq!(word("a&b'c"), r#"'a&b'"'"'c'"#);
    }
}
