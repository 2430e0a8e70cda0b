//! Queries that grow without end: facets, repeated arguments, URLs in URLs in URLs.

/// Arguments that are looked at; the rule on their number rejects what has more.
const MOST_ARGUMENTS: usize = 256;

/// What is counted in a query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts<'a> {
    /// Arguments that are not empty.
    pub(super) arguments: usize,
    /// The name that stands most often, and how often. `f[0]` and `f[1]` are one name.
    pub(super) same: Option<(&'a str, usize)>,
    /// Arguments that choose a facet.
    pub(super) facets: usize,
    /// How many times over an escape is escaped: `%25252F` is two.
    pub(super) nesting: usize,
}

pub(super) fn count(query: &str) -> Counts<'_> {
    let arguments = || {
        query
            .split(['&', ';'])
            .filter(|argument| !argument.is_empty())
    };
    let mut names: Vec<&str> = arguments().take(MOST_ARGUMENTS).map(name_of).collect();
    let facets = names.iter().filter(|name| is_facet(name)).count();
    names.sort_unstable();
    let same = names
        .chunk_by(|a, b| a == b)
        .map(|chunk| (chunk[0], chunk.len()))
        .max_by_key(|(_, times)| *times);
    Counts {
        arguments: arguments().count(),
        same,
        facets,
        nesting: nesting(query),
    }
}

/// A name without its index: `f` of `f[0]`, `f%5B%5D` and `f[]`.
fn name_of(argument: &str) -> &str {
    let name = argument.split('=').next().unwrap_or_default();
    let bracket = name.find('[').or_else(|| find_ignoring_case(name, "%5b"));
    match bracket {
        // `filter[colour]` and `filter[size]` are two names of one facet; both are kept whole.
        Some(at) if is_index(&name[at..]) => &name[..at],
        _ => name,
    }
}

fn find_ignoring_case(text: &str, wanted: &str) -> Option<usize> {
    let windows = text.as_bytes().windows(wanted.len());
    windows
        .enumerate()
        .find(|(_, window)| window.eq_ignore_ascii_case(wanted.as_bytes()))
        .map(|(at, _)| at)
}

/// `[]`, `[12]`, `%5B12%5D`.
fn is_index(bracket: &str) -> bool {
    let inside = bracket
        .strip_prefix('[')
        .or_else(|| bracket.get(3..))
        .unwrap_or_default();
    let inside = inside
        .strip_suffix(']')
        .or_else(|| {
            inside
                .len()
                .checked_sub(3)
                .and_then(|end| inside.get(..end))
        })
        .unwrap_or(inside);
    inside.bytes().all(|byte| byte.is_ascii_digit())
}

/// Names by which catalogues choose a facet.
fn is_facet(name: &str) -> bool {
    const BEGINNINGS: [&str; 12] = [
        "filter", "facet", "refine", "fq", "f.", "pf_", "attr", "prefn", "prefv", "pa_", "layered",
        "criteria",
    ];
    let begins = |beginning: &&str| {
        name.get(..beginning.len())
            .is_some_and(|front| front.eq_ignore_ascii_case(beginning))
    };
    name == "f" || BEGINNINGS.iter().any(begins)
}

fn nesting(query: &str) -> usize {
    let mut deepest = 0;
    let mut rest = query.as_bytes();
    while let Some(at) = memchr::memchr(b'%', rest) {
        rest = &rest[at + 1..];
        let mut depth = 0;
        while let Some(after) = rest.strip_prefix(b"25") {
            depth += 1;
            rest = after;
        }
        deepest = deepest.max(depth);
    }
    deepest
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_grows_is_counted() {
        let counts = |arguments, same, facets, nesting| Counts {
            arguments,
            same,
            facets,
            nesting,
        };
        for (query, expected) in [
            ("", counts(0, None, 0, 0)),
            ("a=1&&b=2&", counts(2, Some(("b", 1)), 0, 0)),
            ("a=1;a=2&a", counts(3, Some(("a", 3)), 0, 0)),
            ("f[0]=x&f[1]=y&f%5B2%5D=z", counts(3, Some(("f", 3)), 3, 0)),
            (
                "filter[colour]=x&filter_size=y&fq=z",
                counts(3, Some(("fq", 1)), 3, 0),
            ),
            ("u=http%3A%2F%2Fa", counts(1, Some(("u", 1)), 0, 0)),
            ("u=a%25252F%3Fb%252Fc", counts(1, Some(("u", 1)), 0, 2)),
            ("u=100%25", counts(1, Some(("u", 1)), 0, 1)),
        ] {
            assert_eq!(count(query), expected, "{query}");
        }
    }

    proptest! {
        #[test]
        fn no_query_panics(query in "\\PC*", close in "[a-f%5BbDd\\[\\]=&;0-9é]{0,30}") {
            for query in [query, close] {
                let counts = count(&query);
                prop_assert!(counts.facets <= counts.arguments);
            }
        }
    }
}
