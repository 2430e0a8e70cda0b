//! What a page asks of robots: `<meta name=robots>` and `X-Robots-Tag`.

/// Tells whether a page asks all robots not to follow its links; `value` is that of the element or of the header.
///
/// What is said to one robot by name (`googlebot: nofollow`) is not said to us.
pub fn asks_not_to_follow(value: &str) -> bool {
    let mut named = false;
    value.split(',').any(|rule| {
        let rule = rule.trim();
        if let Some((name, _)) = rule.split_once(':') {
            // These rules have values; any other name before a colon is a robot's, and what follows is for it.
            named |= ![
                "unavailable_after",
                "max-snippet",
                "max-image-preview",
                "max-video-preview",
            ]
            .iter()
            .any(|known| name.trim().eq_ignore_ascii_case(known));
        }
        !named
            && rule.split_ascii_whitespace().any(|word| {
                ["nofollow", "none"]
                    .iter()
                    .any(|no| word.eq_ignore_ascii_case(no))
            })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_said_to_all_counts() {
        for value in [
            "nofollow",
            "noindex, NoFollow",
            "none",
            "noindex nofollow",
            "max-snippet:-1, nofollow",
            "unavailable_after: 25 Jun 2027 15:00:00 PST, nofollow",
        ] {
            assert!(asks_not_to_follow(value), "{value}");
        }
        for value in [
            "",
            "index, follow",
            "noindex",
            "nofollowers",
            "googlebot: nofollow",
            "googlebot: noindex, nofollow",
        ] {
            assert!(!asks_not_to_follow(value), "{value}");
        }
    }
}
