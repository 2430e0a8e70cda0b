//! The value of a `Refresh` header and of `<meta http-equiv=refresh>`, by the HTML standard.

/// Returns the URL a refresh leads to, unless it is the document again.
pub(crate) fn target(value: &str) -> Option<&str> {
    let value = value.trim_start_matches(|c: char| c.is_ascii_whitespace());
    let rest = value.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let timed = rest.len() < value.len();
    let rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace());
    let rest = rest.strip_prefix([';', ',']).unwrap_or(rest);
    let rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace());
    let named = without_name(rest);
    // The standard wants a number first; pages write `content="url=/next"`, and some browsers obeyed.
    let rest = if timed { named.unwrap_or(rest) } else { named? };
    let url = match rest.chars().next()? {
        quote @ ('"' | '\'') => rest[1..].split(quote).next().unwrap_or_default(),
        _ => rest,
    };
    let url = url.trim_matches(|c: char| c.is_ascii_whitespace());
    (!url.is_empty()).then_some(url)
}

fn without_name(text: &str) -> Option<&str> {
    if text
        .get(..3)
        .is_some_and(|start| start.eq_ignore_ascii_case("url"))
        && let Some(url) = text[3..]
            .trim_start_matches(|c: char| c.is_ascii_whitespace())
            .strip_prefix('=')
    {
        return Some(url.trim_start_matches(|c: char| c.is_ascii_whitespace()));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::target;

    #[test]
    fn the_target_is_found_in_every_form() {
        for (value, expected) in [
            ("0;url=/next", Some("/next")),
            ("5; URL = '/next page'; x", Some("/next page")),
            ("1.5,/next", Some("/next")),
            ("0; /next", Some("/next")),
            ("0 url=\"/next", Some("/next")),
            ("url=/next", Some("/next")),
            ("0; urlaub.html", Some("urlaub.html")),
            ("30", None),
            ("30;", None),
            ("0;url=", None),
            ("0;url=''", None),
            ("", None),
            ("no-cache", None),
            ("é", None),
            ("0;é", Some("é")),
        ] {
            assert_eq!(target(value), expected, "{value:?}");
        }
    }
}
