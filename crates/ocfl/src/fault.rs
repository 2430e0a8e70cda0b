//! What is wrong with an object, by the codes of the specification.

use std::fmt;

/// Something that is wrong, or advised against.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OcflFault {
    /// The code of the specification: `E092`, `W004`.
    pub code: &'static str,
    /// Which file or field, and what of it.
    pub text: String,
}

impl fmt::Display for OcflFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.code, self.text)
    }
}

/// What was found of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OcflReport {
    /// The version of the specification that it declares; empty where it declares none.
    pub spec: String,
    /// Its identifier.
    pub id: String,
    /// How many versions it has.
    pub versions: usize,
    /// How many files of content it has.
    pub files: u64,
    /// Their size.
    pub bytes: u64,
    /// Why it is not valid; empty when it is.
    pub faults: Vec<OcflFault>,
    /// What is advised against.
    pub warnings: Vec<OcflFault>,
}

impl OcflReport {
    /// Tells whether the object is valid.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.faults.is_empty()
    }

    pub(crate) fn fault(&mut self, code: &'static str, text: impl Into<String>) {
        let text = text.into();
        self.faults.push(OcflFault { code, text });
    }

    pub(crate) fn warn(&mut self, code: &'static str, text: impl Into<String>) {
        let text = text.into();
        self.warnings.push(OcflFault { code, text });
    }
}
