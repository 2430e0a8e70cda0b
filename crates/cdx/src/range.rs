//! Which lines of a sorted index a question asks for, as a range of bytes.
//!
//! The keys are SURTs (`com,example)/path`), made by others. The ranges are those pywb computes, so that both
//! give the same captures: a host or a domain does not include the same names on another port, whose keys
//! (`com,example:8080)/`) stand elsewhere in the file.

/// The lines that are not below `from` and are below `to`, in byte order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRange {
    /// The lowest line that could be meant.
    pub from: Vec<u8>,
    /// The lowest line that is no longer meant; none for the end of the file.
    pub to: Option<Vec<u8>>,
}

impl KeyRange {
    /// Returns the range of all lines.
    pub fn all() -> Self {
        Self {
            from: Vec::new(),
            to: None,
        }
    }

    /// Returns the range of the lines that begin with these bytes.
    pub fn starting_with(bytes: &[u8]) -> Self {
        let mut to = bytes.to_vec();
        // The next string that does not begin so: the last byte that can be raised, raised.
        while let Some(last) = to.pop() {
            if last < u8::MAX {
                to.push(last + 1);
                return Self {
                    from: bytes.to_vec(),
                    to: Some(to),
                };
            }
        }
        Self {
            from: bytes.to_vec(),
            to: None,
        }
    }

    /// Returns the range of the captures of one key.
    pub fn exact(key: &[u8]) -> Self {
        let mut field = key.to_vec();
        field.push(b' ');
        Self::starting_with(&field)
    }

    /// Returns the range of the captures whose key begins with `key`.
    pub fn prefix(key: &[u8]) -> Self {
        Self::starting_with(key)
    }

    /// Returns the range of the captures on the host of `key`: `com,example)/a` asks for `com,example)…`.
    pub fn host(key: &[u8]) -> Self {
        let mut host = host_of(key).to_vec();
        host.push(b')');
        Self::starting_with(&host)
    }

    /// Returns the range of the captures on the host of `key` and on every name below it.
    ///
    /// A key without a comma is a top-level domain, of which only the names below are meant.
    pub fn domain(key: &[u8]) -> Self {
        let host = host_of(key);
        let lowest = if host.contains(&b',') { b')' } else { b',' };
        let bounded = |byte| [host, &[byte]].concat();
        // `)` and `,` are the two bytes that may follow a host's name; `-` comes right after them.
        Self {
            from: bounded(lowest),
            to: Some(bounded(b'-')),
        }
    }

    /// Says whether a line is in the range.
    pub fn contains(&self, line: &[u8]) -> bool {
        line >= self.from.as_slice() && !self.is_past(line)
    }

    /// Says whether a line, and so every line after it, is above the range.
    pub(crate) fn is_past(&self, line: &[u8]) -> bool {
        self.to.as_deref().is_some_and(|to| line >= to)
    }
}

fn host_of(key: &[u8]) -> &[u8] {
    let end = memchr::memchr(b')', key).unwrap_or(key.len());
    &key[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(range: &KeyRange) -> (&str, &str) {
        (
            str::from_utf8(&range.from).unwrap(),
            str::from_utf8(range.to.as_deref().unwrap()).unwrap(),
        )
    }

    #[test]
    fn ranges_are_those_of_pywb() {
        let key = b"com,example)/path/file.html";
        assert_eq!(
            bounds(&KeyRange::exact(key)),
            (
                "com,example)/path/file.html ",
                "com,example)/path/file.html!"
            )
        );
        assert_eq!(
            bounds(&KeyRange::prefix(key)),
            ("com,example)/path/file.html", "com,example)/path/file.htmm")
        );
        assert_eq!(
            bounds(&KeyRange::host(key)),
            ("com,example)", "com,example*")
        );
        assert_eq!(
            bounds(&KeyRange::domain(key)),
            ("com,example)", "com,example-")
        );
        assert_eq!(bounds(&KeyRange::domain(b"com")), ("com,", "com-"));
    }

    #[test]
    fn a_domain_has_its_subdomains_and_not_its_neighbours() {
        let range = KeyRange::domain(b"com,example)/");
        for line in [
            "com,example)/ 2014",
            "com,example)/a 2014",
            "com,example,www)/ 2014",
        ] {
            assert!(range.contains(line.as_bytes()), "{line}");
        }
        for line in [
            "com,example-shop)/ 2014",
            "com,exampla)/ 2014",
            "com,examples)/ 2014",
            "com,example 2014",
        ] {
            assert!(!range.contains(line.as_bytes()), "{line}");
        }
    }

    #[test]
    fn the_byte_that_cannot_be_raised_is_dropped() {
        assert_eq!(
            KeyRange::starting_with(b"a\xff\xff").to.as_deref(),
            Some(b"b".as_slice())
        );
        assert_eq!(KeyRange::starting_with(b"\xff").to, None);
        assert_eq!(KeyRange::starting_with(b""), KeyRange::all());
    }
}
