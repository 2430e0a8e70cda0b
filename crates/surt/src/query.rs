//! Takes session identifiers out of a query and sorts its arguments.
//!
//! Both work in place on a query already in lower case at the end of the key, so that they need no memory of their own.

use std::cmp::Ordering;

/// Removes the session identifiers from the query that starts at `start`.
///
/// Of each kind the last one goes, and the kinds go in this order: what one leaves may be what the next looks for.
pub(crate) fn strip_sessions(key: &mut Vec<u8>, start: usize) {
    const KINDS: [Find; 5] = [
        |query, equals| named(query, equals, b"jsessionid"),
        |query, equals| named(query, equals, b"phpsessid"),
        |query, equals| named(query, equals, b"sid"),
        asp_session,
        cold_fusion,
    ];
    // Most queries have none, and one look tells.
    let query = &key[start..];
    let mut signs = (0..query.len()).filter(|&at| query[at] == b'=');
    if signs.any(|equals| may_end_session_name(&query[..equals])) {
        for find in KINDS {
            strip_last(key, start, find);
        }
    }
}

/// Sorts the arguments of the query that starts at `start`.
pub(crate) fn sort(key: &mut Vec<u8>, start: usize) {
    const ON_STACK: usize = 32;
    let mut few = [(0, 0); ON_STACK];
    let mut many = Vec::new();
    let mut count = 0;
    let mut from = start;
    for argument in key[start..].split(|&byte| byte == b'&') {
        let range = (from, from + argument.len());
        match few.get_mut(count) {
            Some(place) => *place = range,
            None => many.push(range),
        }
        count += 1;
        from = range.1 + 1;
    }
    let ranges = if count <= ON_STACK {
        &mut few[..count]
    } else {
        many.splice(0..0, few);
        &mut many[..]
    };
    // Equal arguments are the same bytes, so it does not matter that the sort is not stable.
    let in_order = |a: &(usize, usize), b: &(usize, usize)| compare(&key[a.0..a.1], &key[b.0..b.1]);
    if ranges.is_sorted_by(|a, b| in_order(a, b).is_le()) {
        return;
    }
    ranges.sort_unstable_by(in_order);
    let end = key.len();
    for &(from, to) in &*ranges {
        key.extend_from_within(from..to);
        key.push(b'&');
    }
    key.pop();
    key.copy_within(end.., start);
    key.truncate(end);
}

/// Compares two arguments: by name, then one without a value before one with it, then by value.
fn compare(a: &[u8], b: &[u8]) -> Ordering {
    let Some(at) = a.iter().zip(b).position(|(x, y)| x != y) else {
        return a.len().cmp(&b.len());
    };
    // Where the names differ, the shorter ends in '=', which counts as less than any byte of a name.
    match (a[at], b[at]) {
        (b'=', _) if !a[..at].contains(&b'=') => Ordering::Less,
        (_, b'=') if !b[..at].contains(&b'=') => Ordering::Greater,
        (x, y) => x.cmp(&y),
    }
}

/// Finds where a session of one kind begins and ends, given an equals sign in the query.
type Find = fn(&[u8], usize) -> Option<(usize, usize)>;

/// Removes the last session that `find` sees, with the `&` after it.
fn strip_last(key: &mut Vec<u8>, start: usize, find: Find) {
    let query = &key[start..];
    let mut signs = (0..query.len()).rev().filter(|&at| query[at] == b'=');
    if let Some((from, to)) = signs.find_map(|equals| find(query, equals)) {
        let to = to + usize::from(to < query.len());
        key.drain(start + from..start + to);
    }
}

/// Tells whether the text before an equals sign may be the name of a session; when in doubt it may.
fn may_end_session_name(before: &[u8]) -> bool {
    let asp = before
        .len()
        .checked_sub(8)
        .is_some_and(|letters| before[..letters].ends_with(b"sessionid"));
    asp || matches!(before, [.., b's' | b'f' | b'n', b'i', b'd'])
}

/// Finds `name=` and 32 letters and digits, up to the end of the argument.
fn named(query: &[u8], equals: usize, name: &[u8]) -> Option<(usize, usize)> {
    let rest = query[..equals].strip_suffix(name)?;
    let end = equals + 33;
    let value = query.get(equals + 1..end)?;
    (value.iter().all(u8::is_ascii_alphanumeric) && ends_at(query, end))
        .then_some((rest.len(), end))
}

/// Finds `aspsessionid` with eight letters, and 24 letters as its value.
fn asp_session(query: &[u8], equals: usize) -> Option<(usize, usize)> {
    let (before, letters) = query[..equals].split_at_checked(equals.checked_sub(8)?)?;
    let rest = before.strip_suffix(b"aspsessionid")?;
    let end = equals + 25;
    let value = query.get(equals + 1..end)?;
    let lettered = letters.iter().chain(value).all(u8::is_ascii_alphabetic);
    (lettered && ends_at(query, end)).then_some((rest.len(), end))
}

/// Finds `cfid=` and right after it `cftoken=`, neither of them empty.
///
/// It begins at the token, so that it reads each argument once even if a query is nothing but `cfid=cfid=cfid=`.
fn cold_fusion(query: &[u8], equals: usize) -> Option<(usize, usize)> {
    let identified = query[..equals].strip_suffix(b"&cftoken")?;
    let token = query[equals + 1..].split(|&byte| byte == b'&').next()?;
    let argument = identified.rsplit(|&byte| byte == b'&').next()?;
    // The last byte is left out, so that something remains after the equals sign.
    let (_, but_last) = argument.split_last()?;
    let name = but_last.windows(5).rposition(|window| window == b"cfid=")?;
    let from = identified.len() - argument.len() + name;
    (!token.is_empty()).then_some((from, equals + 1 + token.len()))
}

fn ends_at(query: &[u8], end: usize) -> bool {
    query.get(end).is_none_or(|&byte| byte == b'&')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sorted(query: &str) -> String {
        let mut key = format!("b&a?{query}").into_bytes();
        sort(&mut key, 4);
        String::from_utf8(key).unwrap().split_off(4)
    }

    fn stripped(query: &str) -> String {
        let mut key = format!("sid=?{query}").into_bytes();
        strip_sessions(&mut key, 5);
        String::from_utf8(key).unwrap().split_off(5)
    }

    #[test]
    fn sorts_by_name_then_value() {
        let cases = [
            ("", ""),
            ("b&a", "a&b"),
            ("a=1&", "&a=1"),
            ("&", "&"),
            ("a=2&b&a=1", "a=1&a=2&b"),
            ("a=&a", "a&a="),
            ("ab=1&a=2&a-b=3", "a=2&a-b=3&ab=1"),
            ("a==&a=1=&a=1", "a=1&a=1=&a=="),
        ];
        for (query, expected) in cases {
            assert_eq!(sorted(query), expected, "{query}");
        }
    }

    #[test]
    fn takes_each_kind_of_session_out() {
        let id = "0123456789abcdef0123456789abcdef";
        let letters = "abcdefghijklmnopqrstuvwx";
        let cases = [
            (format!("jsessionid={id}"), ""),
            (format!("a=b&jsessionid={id}"), "a=b&"),
            (format!("jsessionid={id}&a=b"), "a=b"),
            (format!("phpsessid={id}&a&sid={id}&b"), "a&b"),
            (format!("xsid={id}"), "x"),
            (format!("aspsessionidabcdefgh={letters}&a"), "a"),
            ("x=1&cfid=1&cftoken=2&y=3".to_owned(), "x=1&y=3"),
            ("cfid=cfid=1&cftoken=2".to_owned(), "cfid="),
            ("cfid=cfid=&cftoken=2&a".to_owned(), "a"),
            (
                "cfid=1&cftoken=2&cfid=3&cftoken=4".to_owned(),
                "cfid=1&cftoken=2&",
            ),
            (
                "cfid=1&cftoken=cfid=3&cftoken=4".to_owned(),
                "cfid=1&cftoken=",
            ),
            // What is left of one session is taken for another.
            (format!("phpsessid={id}&phpsessid={id}"), "phpses"),
            (format!("sjsessionid={id}&id={id}"), ""),
        ];
        for (query, expected) in cases {
            assert_eq!(stripped(&query), expected, "{query}");
        }
    }

    #[test]
    fn keeps_what_only_looks_like_a_session() {
        let id = "0123456789abcdef0123456789abcdef";
        for query in [
            format!("jsessionid={id}0"),
            format!("sid={}", &id[1..]),
            format!("sid={id};a"),
            "cfid=&cftoken=2".to_owned(),
            "cfid=1&cftoken=".to_owned(),
            "cfid=1&a&cftoken=2".to_owned(),
            "aspsessionidabcdefg1=abcdefghijklmnopqrstuvwx".to_owned(),
        ] {
            assert_eq!(stripped(&query), query);
        }
    }

    #[test]
    fn a_query_of_nothing_but_names_is_read_in_linear_time() {
        let query = "cfid=&cftoken=&sid=".repeat(20_000);
        assert_eq!(stripped(&query), query);
        let query = "cfid=".repeat(100_000);
        assert_eq!(stripped(&query), query);
    }

    proptest! {
        #[test]
        fn sorts_as_pairs_sort(query in "[ab=&-]{0,120}") {
            let mut pairs: Vec<(&str, Option<&str>)> = query
                .split('&')
                .map(|argument| match argument.split_once('=') {
                    Some((name, value)) => (name, Some(value)),
                    None => (argument, None),
                })
                .collect();
            pairs.sort();
            let joined: Vec<String> = pairs
                .into_iter()
                .map(|(name, value)| name.to_owned() + &value.map_or(String::new(), |value| format!("={value}")))
                .collect();
            prop_assert_eq!(sorted(&query), joined.join("&"));
        }
    }
}
