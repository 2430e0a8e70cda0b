//! The bytes of a tally that the crawl keeps for each host and seed.
//!
//! A version byte, then fields: `tag u8, length n, content`, where `n` is a number in groups of seven bits, lowest
//! first. A field with an unknown tag is passed over, so that what a later version writes can be read. Numbers that are
//! nought are not written.

/// Why the bytes of a tally could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// It is of another make.
    #[error("tally of version {found}")]
    Version {
        /// What its first byte says; nothing if there is none.
        found: u8,
    },
    /// It ends too early, or a field holds what it cannot.
    #[error("cannot read tally of {bytes} bytes at byte {offset}")]
    Malformed {
        /// The length of the whole.
        bytes: usize,
        /// Where the field begins.
        offset: usize,
    },
}

const VERSION: u8 = 1;

/// Makes the bytes.
pub(crate) struct Encoder(Vec<u8>);

impl Encoder {
    pub(crate) fn new() -> Self {
        Self(vec![VERSION])
    }

    pub(crate) fn number(&mut self, tag: u8, number: u64) {
        if number != 0 {
            let mut content = Vec::new();
            put_number(&mut content, number);
            self.field(tag, &content);
        }
    }

    /// Puts a signed number: small ones of either sign are short.
    pub(crate) fn signed(&mut self, tag: u8, number: i64) {
        self.number(tag, zigzag(number));
    }

    pub(crate) fn text(&mut self, tag: u8, text: &str) {
        self.field(tag, text.as_bytes());
    }

    pub(crate) fn code_count(&mut self, tag: u8, code: i32, count: u64) {
        let mut content = Vec::new();
        put_number(&mut content, zigzag(i64::from(code)));
        put_number(&mut content, count);
        self.field(tag, &content);
    }

    pub(crate) fn text_count(&mut self, tag: u8, text: &str, count: u64) {
        let mut content = Vec::new();
        put_number(&mut content, count);
        content.extend_from_slice(text.as_bytes());
        self.field(tag, &content);
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.0
    }

    fn field(&mut self, tag: u8, content: &[u8]) {
        self.0.push(tag);
        put_number(&mut self.0, content.len() as u64);
        self.0.extend_from_slice(content);
    }
}

/// One field.
pub(crate) struct Field<'b> {
    pub(crate) tag: u8,
    content: &'b [u8],
}

impl Field<'_> {
    pub(crate) fn number(&self) -> Option<u64> {
        let mut rest = self.content;
        take_number(&mut rest).filter(|_| rest.is_empty())
    }

    pub(crate) fn signed(&self) -> Option<i64> {
        self.number().map(unzigzag)
    }

    pub(crate) fn text(&self) -> Option<String> {
        String::from_utf8(self.content.to_vec()).ok()
    }

    pub(crate) fn code_count(&self) -> Option<(i32, u64)> {
        let mut rest = self.content;
        let code = i32::try_from(unzigzag(take_number(&mut rest)?)).ok()?;
        Some((code, take_number(&mut rest)?)).filter(|_| rest.is_empty())
    }

    pub(crate) fn text_count(&self) -> Option<(String, u64)> {
        let mut rest = self.content;
        let count = take_number(&mut rest)?;
        let text = String::from_utf8(rest.to_vec()).ok()?;
        Some((text, count))
    }
}

/// Hands every field to `take`, which returns nothing for one it cannot read.
pub(crate) fn decode(
    bytes: &[u8],
    mut take: impl FnMut(&Field<'_>) -> Option<()>,
) -> Result<(), DecodeError> {
    let (&version, mut rest) = bytes
        .split_first()
        .ok_or(DecodeError::Version { found: 0 })?;
    if version != VERSION {
        return Err(DecodeError::Version { found: version });
    }
    while !rest.is_empty() {
        let malformed = DecodeError::Malformed {
            bytes: bytes.len(),
            offset: bytes.len() - rest.len(),
        };
        let read = take_field(&mut rest).and_then(|field| take(&field));
        read.ok_or(malformed)?;
    }
    Ok(())
}

fn take_field<'b>(rest: &mut &'b [u8]) -> Option<Field<'b>> {
    let (&tag, behind) = rest.split_first()?;
    *rest = behind;
    let length = usize::try_from(take_number(rest)?).ok()?;
    let (content, behind) = rest.split_at_checked(length)?;
    *rest = behind;
    Some(Field { tag, content })
}

fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(0x80 | (number & 0x7f) as u8);
        number >>= 7;
    }
    out.push(number as u8);
}

fn take_number(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, behind) = rest.split_first()?;
        *rest = behind;
        let bits = u64::from(byte & 0x7f);
        if bits << shift >> shift != bits {
            return None;
        }
        number |= bits << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_come_back(number in any::<u64>(), signed in any::<i64>()) {
            let mut bytes = Vec::new();
            put_number(&mut bytes, number);
            let mut rest = bytes.as_slice();
            prop_assert_eq!(take_number(&mut rest), Some(number));
            prop_assert!(rest.is_empty());
            prop_assert_eq!(unzigzag(zigzag(signed)), signed);
        }

        #[test]
        fn any_bytes_can_be_read(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = decode(&bytes, |field| field.number().map(|_| ()));
        }
    }

    #[test]
    fn faults_say_where() {
        assert_eq!(
            decode(&[], |_| Some(())),
            Err(DecodeError::Version { found: 0 })
        );
        assert_eq!(
            decode(&[9], |_| Some(())),
            Err(DecodeError::Version { found: 9 })
        );
        let mut encoder = Encoder::new();
        encoder.number(1, 300);
        encoder.text(2, "abc");
        let bytes = encoder.finish();
        assert_eq!(decode(&bytes, |_| Some(())), Ok(()));
        let cut = decode(&bytes[..bytes.len() - 1], |_| Some(()));
        assert_eq!(
            cut,
            Err(DecodeError::Malformed {
                bytes: 9,
                offset: 5
            })
        );
        assert_eq!(
            cut.unwrap_err().to_string(),
            "cannot read tally of 9 bytes at byte 5"
        );
    }
}
