//! When a capture was made, as index lines write it.

use std::fmt;

/// The digits of a capture's time: 14 to the second, or 17 to the millisecond.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CaptureTime {
    // Padded with zero bytes, so that the derived order is the order of the digits.
    digits: [u8; 17],
}

impl CaptureTime {
    /// Reads 14 or 17 digits; the calendar is not checked, because old indexes hold days that never were.
    pub fn from_digits(digits: &[u8]) -> Option<Self> {
        if !matches!(digits.len(), 14 | 17) || !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let mut padded = [0; 17];
        padded[..digits.len()].copy_from_slice(digits);
        Some(Self { digits: padded })
    }

    /// Returns the digits.
    pub fn as_str(&self) -> &str {
        let length = if self.digits[14] == 0 { 14 } else { 17 };
        str::from_utf8(&self.digits[..length]).expect("only ASCII digits are stored")
    }
}

impl fmt::Display for CaptureTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for CaptureTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CaptureTime({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_14_and_17_digits_and_nothing_else() {
        for digits in ["20131226101112", "20131226101112345", "29991231231659"] {
            let time = CaptureTime::from_digits(digits.as_bytes()).unwrap();
            assert_eq!(time.as_str(), digits);
        }
        for digits in [
            "",
            "-",
            "2013",
            "2013122610111",
            "2013122610111x",
            "201312261011123456",
        ] {
            assert_eq!(
                CaptureTime::from_digits(digits.as_bytes()),
                None,
                "{digits}"
            );
        }
        let second = CaptureTime::from_digits(b"20131226101112");
        assert!(second < CaptureTime::from_digits(b"20131226101112000"));
    }
}
