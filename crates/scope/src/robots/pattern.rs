//! The path of a rule, and what it matches.
//!
//! Rule and URL are brought to one form first, so that two ways to write an octet are equal. A pattern is then pieces
//! between asterisks, found from left to right: no backtracking, whatever the file says.

use memchr::memmem;

/// Stands for an asterisk in a stored pattern; in its place no octet of a normal path can be.
const ASTERISK: u8 = 0xff;

/// A path with `*` for anything and `$` for the end, in the bytes of all patterns of its file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pattern<'a> {
    /// What stands before, between and after the asterisks.
    pieces: &'a [u8],
    is_anchored: bool,
}

impl<'a> Pattern<'a> {
    /// Takes one that [`append`] has stored.
    pub(super) fn stored(pieces: &'a [u8], is_anchored: bool) -> Pattern<'a> {
        Pattern {
            pieces,
            is_anchored,
        }
    }

    /// Tells whether it matches a path that was normalised.
    pub(super) fn matches(&self, path: &[u8]) -> bool {
        let mut pieces = self.pieces.split(|byte| *byte == ASTERISK);
        let Some(left) = pieces.next().and_then(|first| path.strip_prefix(first)) else {
            return false;
        };
        let Some(last) = pieces.next_back() else {
            return !self.is_anchored || left.is_empty();
        };
        let mut left = left;
        for piece in pieces {
            let Some(at) = memmem::find(left, piece) else {
                return false;
            };
            left = &left[at + piece.len()..];
        }
        if self.is_anchored {
            left.ends_with(last)
        } else {
            memmem::find(left, last).is_some()
        }
    }
}

/// Stores the path of a rule behind what is there, and tells whether it is anchored.
pub(super) fn append(path: &[u8], stored: &mut Vec<u8>) -> bool {
    let (path, is_anchored) = match path {
        [path @ .., b'$'] => (path, true),
        path => (path, false),
    };
    let mut place = UrlPart::Path;
    for (number, piece) in path.split(|byte| *byte == b'*').enumerate() {
        if number > 0 {
            stored.push(ASTERISK);
        }
        normalise_from(&mut place, piece, stored);
    }
    is_anchored
}

/// Brings a path with its query to the form in which paths are compared.
pub(super) fn normalise(path: &[u8]) -> Vec<u8> {
    let mut normal = Vec::with_capacity(path.len());
    normalise_from(&mut UrlPart::Path, path, &mut normal);
    normal
}

/// Where in a URL an octet stands: an escaped slash is a slash in a query, and not in a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum UrlPart {
    Path,
    Query,
}

fn normalise_from(place: &mut UrlPart, path: &[u8], normal: &mut Vec<u8>) {
    let mut rest = path;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match (byte, after) {
            (b'%', [high, low, after @ ..]) if let Some(octet) = octet_of(*high, *low) => {
                rest = after;
                if means_itself(octet, *place) {
                    normal.push(octet);
                } else {
                    escape(octet, normal);
                }
            }
            (b'!'..=b'~', _) => {
                if byte == b'?' {
                    *place = UrlPart::Query;
                }
                normal.push(byte);
            }
            (other, _) => escape(other, normal),
        }
    }
}

/// Tells whether an octet is the same with and without its escape.
///
/// The RFC asks for this of unreserved characters, and its example of a query with `https://` in it for some reserved
/// ones. Those that divide the URL where they stand are kept apart.
fn means_itself(octet: u8, place: UrlPart) -> bool {
    octet.is_ascii_graphic()
        && !matches!(octet, b'%' | b'#')
        && match place {
            UrlPart::Path => !matches!(octet, b'/' | b'?' | b';'),
            UrlPart::Query => !matches!(octet, b'&' | b'=' | b'+' | b';'),
        }
}

fn octet_of(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let octet = digit(high)? * 16 + digit(low)?;
    u8::try_from(octet).ok()
}

fn escape(octet: u8, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let [high, low] = [octet >> 4, octet & 15].map(|nibble| DIGITS[usize::from(nibble)]);
    out.extend([b'%', high, low]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        let mut stored = b"before".to_vec();
        let is_anchored = append(pattern.as_bytes(), &mut stored);
        Pattern::stored(&stored[6..], is_anchored).matches(&normalise(path.as_bytes()))
    }

    /// The table in Google's description of robots.txt.
    #[test]
    fn paths_match_as_google_documents() {
        for (pattern, matching, others) in [
            ("/", &["/", "/fish", "/a?b"][..], &[][..]),
            ("/*", &["/", "/fish"], &[]),
            ("/$", &["/"], &["/fish", "/?x"]),
            (
                "/fish",
                &[
                    "/fish",
                    "/fish.html",
                    "/fish/salmon.html",
                    "/fishheads",
                    "/fishheads/yummy.html",
                    "/fish.php?id=anything",
                ],
                &["/Fish.asp", "/catfish", "/?id=fish", "/desert/fish"],
            ),
            (
                "/fish*",
                &[
                    "/fish",
                    "/fish.html",
                    "/fishheads/yummy.html",
                    "/fish.php?id=anything",
                ],
                &["/Fish.asp", "/catfish", "/?id=fish", "/desert/fish"],
            ),
            (
                "/fish/",
                &["/fish/", "/fish/?id=anything", "/fish/salmon.htm"],
                &["/fish", "/fish.html", "/animals/fish/", "/Fish/Salmon.asp"],
            ),
            (
                "/*.php",
                &[
                    "/index.php",
                    "/filename.php",
                    "/folder/filename.php?parameters",
                    "/folder/any.php.file.html",
                    "/filename.php/",
                ],
                &["/", "/windows.PHP"],
            ),
            (
                "/*.php$",
                &["/filename.php", "/folder/filename.php"],
                &[
                    "/filename.php?parameters",
                    "/filename.php/",
                    "/filename.php5",
                    "/windows.PHP",
                ],
            ),
            (
                "/fish*.php",
                &["/fish.php", "/fishheads/catfish.php?parameters"],
                &["/Fish.PHP"],
            ),
            ("*.gif", &["/a.gif", "/b/c.gif?d"], &["/a.jpg"]),
            ("fish", &[], &["/fish", "/"]),
            ("/a**b", &["/ab", "/axb", "/axyb/c"], &["/a", "/b"]),
            ("/a*$", &["/a", "/abc"], &["/b"]),
            ("/a$b", &["/a$b", "/a$bc"], &["/a"]),
            ("$", &[], &["/"]),
        ] {
            for path in matching {
                assert!(matches(pattern, path), "{pattern} {path}");
            }
            for path in others {
                assert!(!matches(pattern, path), "{pattern} {path}");
            }
        }
    }

    /// The tables of RFC 9309, sections 2.2.2 and 2.2.3.
    #[test]
    fn octets_are_equal_however_written() {
        for (pattern, path) in [
            ("/foo/bar?baz=quz", "/foo/bar?baz=quz"),
            (
                "/foo/bar?baz=https://foo.bar",
                "/foo/bar?baz=https%3A%2F%2Ffoo.bar",
            ),
            (
                "/foo/bar?baz=https%3A%2F%2Ffoo.bar",
                "/foo/bar?baz=https://foo.bar",
            ),
            ("/foo/bar/ツ", "/foo/bar/%E3%83%84"),
            ("/foo/bar/%E3%83%84", "/foo/bar/ツ"),
            ("/foo/bar/%e3%83%84", "/foo/bar/%E3%83%84"),
            ("/foo/bar/%62%61%7A", "/foo/bar/baz"),
            ("/foo/bar/baz", "/foo/bar/%62%61%7A"),
            ("/path/file-with-a-%2A.html", "/path/file-with-a-*.html"),
            ("/path/foo-%24", "/path/foo-$"),
            ("/a%20b", "/a b"),
            ("/~me", "/%7Eme"),
        ] {
            assert!(matches(pattern, path), "{pattern} {path}");
        }
        for (pattern, path) in [
            ("/a%2Fb", "/a/b"),
            ("/a/b", "/a%2Fb"),
            ("/a%3Fb", "/a?b"),
            ("/a?b%26c", "/a?b&c"),
            ("/a-%2A.html", "/a-b.html"),
            ("/a%24", "/a"),
            ("/a%25b", "/a%b"),
        ] {
            assert!(!matches(pattern, path), "{pattern} {path}");
        }
    }

    #[test]
    fn many_asterisks_cost_no_time() {
        let pattern = format!("/{}b", "a*".repeat(8_000));
        let path = format!("/{}", "a".repeat(100_000));
        assert!(!matches(&pattern, &path));
    }

    proptest! {
        /// The textbook definition, by trying everything.
        #[test]
        fn matches_as_the_definition_says(pattern in "/[ab*]{0,8}\\$?", path in "/[ab]{0,8}") {
            fn tried(pattern: &[u8], path: &[u8]) -> bool {
                match pattern {
                    [] => true,
                    [b'$'] => path.is_empty(),
                    [b'*', rest @ ..] => (0..=path.len()).any(|at| tried(rest, &path[at..])),
                    [byte, rest @ ..] => path.first() == Some(byte) && tried(rest, &path[1..]),
                }
            }
            prop_assert_eq!(matches(&pattern, &path), tried(pattern.as_bytes(), path.as_bytes()));
        }

        #[test]
        fn normalising_twice_is_normalising_once(path: Vec<u8>) {
            let once = normalise(&path);
            prop_assert_eq!(&normalise(&once), &once);
        }
    }
}
