//! Normalises a path and takes ASP.NET session identifiers out of it.
//!
//! Paths are unescaped before and escaped again after this; both are left to the caller.

/// Appends `path`, which begins with a slash, without dot segments and doubled slashes.
///
/// A `..` that has nothing to take back stays. An empty segment counts as something to take back, so `/a//..` is `/a`.
pub(crate) fn push_normalized(path: &[u8], out: &mut Vec<u8>) {
    let mut kept: Vec<&[u8]> = Vec::new();
    for segment in path.split(|&byte| byte == b'/').skip(1) {
        match segment {
            b"." => {}
            b".." if !kept.is_empty() => {
                kept.pop();
            }
            _ => kept.push(segment),
        }
    }
    out.push(b'/');
    if let Some((last, leading)) = kept.split_last() {
        for segment in leading.iter().filter(|segment| !segment.is_empty()) {
            out.extend_from_slice(segment);
            out.push(b'/');
        }
        out.extend_from_slice(last);
    }
}

/// Removes `/(S(…24…)X(…24…))` and then `/(…24…)` in front of an `.aspx` page from the lower-case path that starts at `start`.
pub(crate) fn strip_sessions(key: &mut Vec<u8>, start: usize) {
    strip_last(key, start, is_letter_groups);
    strip_last(key, start, is_identifier);
}

/// Removes the last segment in parentheses that `accepts`, if an `.aspx` page follows it.
///
/// It reads backwards once, and remembers the nearest page and question mark: a path made of such segments
/// alone must not cost the square of its length.
fn strip_last(key: &mut Vec<u8>, start: usize, accepts: impl Fn(&[u8]) -> bool) {
    let path = &key[start..];
    let (mut page, mut question) = (usize::MAX, usize::MAX);
    let mut slash_before_page = None;
    for at in (0..path.len()).rev() {
        // The name of the page has one character at least before the dot.
        if path
            .get(at + 2..)
            .is_some_and(|rest| rest.starts_with(b".aspx"))
        {
            page = at + 2;
        }
        if path[at] == b'?' {
            question = at;
        } else if path[at] == b'/' {
            if let Some(end) = slash_before_page
                && let [b'(', inner @ .., b')'] = &path[at + 1..end]
                && accepts(inner)
            {
                key.drain(start + at + 1..=start + end);
                return;
            }
            slash_before_page = (page < question).then_some(at);
        }
    }
}

/// Accepts one or more of a letter and an identifier in parentheses.
fn is_letter_groups(segment: &[u8]) -> bool {
    !segment.is_empty()
        && segment.chunks(27).all(|group| match group {
            [letter, b'(', identifier @ .., b')'] => {
                letter.is_ascii_lowercase() && is_identifier(identifier)
            }
            _ => false,
        })
}

fn is_identifier(text: &[u8]) -> bool {
    text.len() == 24 && text.iter().all(u8::is_ascii_alphanumeric)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normalized(path: &str) -> String {
        let mut out = Vec::new();
        push_normalized(path.as_bytes(), &mut out);
        String::from_utf8(out).unwrap()
    }

    fn stripped(path: &str) -> String {
        let mut key = format!("/(x)/{path}").into_bytes();
        strip_sessions(&mut key, 5);
        String::from_utf8(key).unwrap().split_off(5)
    }

    #[test]
    fn takes_dots_and_doubled_slashes_out() {
        let cases = [
            ("", "/"),
            ("/", "/"),
            ("//", "/"),
            ("/a//b/", "/a/b/"),
            ("/a/./b/.", "/a/b"),
            ("/a/b/..", "/a"),
            ("/a/b/../", "/a/"),
            ("/..", "/.."),
            ("/../a", "/../a"),
            ("/../../a", "/a"),
            ("/../../../a", "/../a"),
            ("/a/..//b", "/b"),
            ("/a//../b", "/a/b"),
            ("/...", "/..."),
        ];
        for (path, expected) in cases {
            assert_eq!(normalized(path), expected, "{path}");
        }
    }

    #[test]
    fn takes_sessions_out_before_an_aspx_page() {
        let id = "abcdefghijkl012345678901";
        assert_eq!(id.len(), 24);
        assert_eq!(stripped(&format!("/a/({id})/b.aspx")), "/a/b.aspx");
        assert_eq!(stripped(&format!("/(s({id}))/b.aspx?x")), "/b.aspx?x");
        assert_eq!(
            stripped(&format!("/(s({id})f({id}))/b/c.aspx/d")),
            "/b/c.aspx/d"
        );
        assert_eq!(stripped(&format!("/(s({id}))/({id})/b.aspx")), "/b.aspx");
        assert_eq!(
            stripped(&format!("/({id})/({id})/b.aspx")),
            format!("/({id})/b.aspx")
        );
        assert_eq!(stripped(&format!("/({id})/.aspx.aspx")), "/.aspx.aspx");
        let many = format!("/({id})").repeat(20_000);
        assert_eq!(stripped(&many), many);
        for kept in [
            format!("/({id})/.aspx"),
            format!("/({id})/?.aspx"),
            format!("/({id})/b?c.aspx"),
            format!("/({id})b.aspx"),
            format!("/({id}0)/b.aspx"),
            format!("/(s({id})/b.aspx"),
            format!("/()/b.aspx/{id}"),
            format!("({id})/b.aspx"),
        ] {
            assert_eq!(stripped(&kept), kept);
        }
    }
}
