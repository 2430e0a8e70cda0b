//! The `srcset` attribute, by the grammar of the HTML standard.

/// Calls `each` with every URL of a `srcset`.
///
/// Commas may be part of a URL; only those at its end, and those after its descriptors and outside of parentheses, part candidates.
pub(crate) fn urls(value: &str, mut each: impl FnMut(&str)) {
    let mut rest = value;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == ',');
        if rest.is_empty() {
            return;
        }
        let end = rest
            .find(|c: char| c.is_ascii_whitespace())
            .unwrap_or(rest.len());
        let (url, after) = rest.split_at(end);
        let bare = url.trim_end_matches(',');
        each(bare);
        rest = if bare.len() < url.len() {
            after
        } else {
            after_descriptors(after)
        };
    }
}

fn after_descriptors(text: &str) -> &str {
    let mut inside = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' => inside = true,
            b')' => inside = false,
            b',' if !inside => return &text[at + 1..],
            _ => {}
        }
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::urls;

    fn parsed(value: &str) -> Vec<String> {
        let mut found = Vec::new();
        urls(value, |url| found.push(url.to_owned()));
        found
    }

    #[test]
    fn candidates_are_parted_as_browsers_part_them() {
        for (value, expected) in [
            ("a.png", &["a.png"] as &[&str]),
            ("a.png 1x, b.png 2x", &["a.png", "b.png"]),
            ("a.png 100w,b.png 200w", &["a.png", "b.png"]),
            ("a.png, b.png 2x", &["a.png", "b.png"]),
            (
                "\n\t a.png 1.5x,\n\t b.png 600w 400h ,c.png\n",
                &["a.png", "b.png", "c.png"],
            ),
            (
                "w_100,h_50/a.png 1x, b.png 2x",
                &["w_100,h_50/a.png", "b.png"],
            ),
            ("a.png,b.png", &["a.png,b.png"]),
            ("a.png x(1,2), b.png", &["a.png", "b.png"]),
            (
                "data:image/png;base64,AA== 1x, b.png 2x",
                &["data:image/png;base64,AA==", "b.png"],
            ),
            (", ,,a.png,,", &["a.png"]),
            ("a.png (", &["a.png"]),
            ("", &[]),
            (" , ", &[]),
        ] {
            assert_eq!(parsed(value), expected, "{value:?}");
        }
    }
}
