//! What stands below the log on a terminal and is drawn again in place: lines of the log come above it.

use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Clears from the cursor to the end of the screen.
const CLEAR: &str = "\x1b[J";

/// The one below the log of this process.
pub static FOOTER: Footer = Footer::new();

/// A text that stands at the bottom of a terminal.
#[derive(Debug)]
pub struct Footer(Mutex<Drawn>);

#[derive(Debug)]
struct Drawn {
    text: String,
    back: String,
}

impl Footer {
    const fn new() -> Self {
        Self(Mutex::new(Drawn {
            text: String::new(),
            back: String::new(),
        }))
    }

    /// Draws a text over the one that stands there. `home` leads from the end of that one to its beginning, `back` will do so
    /// for the new one. An empty text leaves nothing.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn draw(
        &self,
        out: &mut dyn Write,
        home: &str,
        text: String,
        back: String,
    ) -> io::Result<()> {
        let mut drawn = self.drawn();
        let written = out.write_all(format!("{home}{text}{CLEAR}").as_bytes());
        *drawn = Drawn { text, back };
        written
    }

    /// Writes a line of the log above it, in one write.
    pub(crate) fn write_above(&self, out: &mut dyn Write, line: &str) -> io::Result<()> {
        let drawn = self.drawn();
        if drawn.text.is_empty() {
            return out.write_all(line.as_bytes());
        }
        let Drawn { text, back } = &*drawn;
        out.write_all(format!("{back}{CLEAR}{line}{text}").as_bytes())
    }

    fn drawn(&self) -> MutexGuard<'_, Drawn> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_above_what_is_drawn_and_nothing_is_added_where_nothing_is() {
        let footer = Footer::new();
        let mut out = Vec::new();
        footer.write_above(&mut out, "one\n").unwrap();
        assert_eq!(String::from_utf8_lossy(&out), "one\n");
        out.clear();
        let draw = |out: &mut Vec<u8>, text: &str| {
            footer.draw(out, "\r", text.to_owned(), "\r".to_owned())
        };
        draw(&mut out, "1 of 9").unwrap();
        footer.write_above(&mut out, "two\n").unwrap();
        draw(&mut out, "2 of 9").unwrap();
        draw(&mut out, "").unwrap();
        footer.write_above(&mut out, "three\n").unwrap();
        assert_eq!(
            String::from_utf8_lossy(&out),
            "\r1 of 9\x1b[J\r\x1b[Jtwo\n1 of 9\r2 of 9\x1b[J\r\x1b[Jthree\n"
        );
    }
}
