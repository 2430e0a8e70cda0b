//! Colours, on a terminal that wants them.

/// Puts colours around texts, or none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paint {
    pub(crate) color: bool,
}

impl Paint {
    fn wrap(&self, code: &str, text: &str) -> String {
        if !self.color {
            return text.to_owned();
        }
        let body = text.trim_end_matches('\n');
        format!("\x1b[{code}m{body}\x1b[0m{}", &text[body.len()..])
    }

    pub(crate) fn bold(&self, text: &str) -> String {
        self.wrap("1", text)
    }

    pub(crate) fn dim(&self, text: &str) -> String {
        self.wrap("2", text)
    }

    pub(crate) fn red(&self, text: &str) -> String {
        self.wrap("31", text)
    }

    pub(crate) fn yellow(&self, text: &str) -> String {
        self.wrap("33", text)
    }
}
