//! The part of an address behind its question mark.

/// Parameters in order; a name may occur more than once.
#[derive(Debug, Default)]
pub(crate) struct Parameters {
    pairs: Vec<(String, String)>,
}

/// More parameters are not read.
const PARAMETERS: usize = 100;

impl Parameters {
    pub(crate) fn parse(query: &str) -> Self {
        let pairs = query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .take(PARAMETERS)
            .map(|pair| {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                (decode(name, true), decode(value, true))
            })
            .collect();
        Self { pairs }
    }

    /// Returns the first value of a name.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let mut pairs = self.pairs.iter();
        let (_, value) = pairs.find(|(known, _)| known == name)?;
        Some(value)
    }

    /// Returns all values of a name.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let pairs = self.pairs.iter().filter(move |(known, _)| known == name);
        pairs.map(|(_, value)| value.as_str())
    }

    /// Says whether something is asked for: `1`, `true`, `yes` or `on`.
    pub(crate) fn is_set(&self, name: &str) -> bool {
        let value = self.get(name).unwrap_or_default();
        ["1", "true", "yes", "on"].contains(&value.to_ascii_lowercase().as_str())
    }
}

/// Undoes percent signs, and a plus for a blank where `is_form` says so; what is not UTF-8 is replaced.
pub(crate) fn decode(text: &str, is_form: bool) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = |at: usize| {
            let digit = *bytes.get(at)?;
            u8::try_from(char::from(digit).to_digit(16)?).ok()
        };
        match (bytes[at], hex(at + 1), hex(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push(high << 4 | low);
                at += 3;
                continue;
            }
            (b'+', ..) if is_form => out.push(b' '),
            (byte, ..) => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8(out)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read() {
        let read =
            Parameters::parse("url=http%3A%2F%2Fa%2F%3Fx%3D1&filter=a&filter=b+c&x&&limit=%zz%4");
        assert_eq!(read.get("url"), Some("http://a/?x=1"));
        assert_eq!(read.all("filter").collect::<Vec<_>>(), ["a", "b c"]);
        assert_eq!(read.get("x"), Some(""));
        assert_eq!(read.get("limit"), Some("%zz%4"));
        assert_eq!(read.get("y"), None);
        assert!(Parameters::parse("a=True").is_set("a") && !Parameters::parse("a=0").is_set("a"));
    }
}
