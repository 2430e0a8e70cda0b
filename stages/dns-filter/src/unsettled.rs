//! Names without an answer, until their round is over: in a file without a name, since there may be as many as the list has.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Seek, Write};
use std::path::{Path, PathBuf};

use ecluse_names::CheckedLine;

/// The names of a round without an answer.
pub(crate) struct Unsettled {
    temporary: PathBuf,
    /// Most rounds need none.
    file: Option<BufWriter<File>>,
    /// How many there are.
    pub(crate) names: u64,
}

impl Unsettled {
    /// Returns one without names, which may make a temporary file there.
    pub(crate) fn new(temporary: &Path) -> Self {
        Self {
            temporary: temporary.to_owned(),
            file: None,
            names: 0,
        }
    }

    /// Takes a name.
    pub(crate) fn push(&mut self, number: u64, line: &CheckedLine) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(BufWriter::new(tempfile::tempfile_in(&self.temporary)?)),
        };
        write!(file, "{number}\t")?;
        line.write(file)?;
        self.names += 1;
        Ok(())
    }

    /// Gives every name in the order in which it came.
    pub(crate) fn read(
        self,
        see: &mut dyn FnMut(u64, &CheckedLine) -> io::Result<()>,
    ) -> io::Result<()> {
        let Some(file) = self.file else { return Ok(()) };
        let mut file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.rewind()?;
        for text in BufReader::new(file).lines() {
            let text = text?;
            let (number, line) = text.split_once('\t').ok_or(io::ErrorKind::InvalidData)?;
            let line = CheckedLine::parse(line).map_err(io::Error::other)?;
            see(number.parse().map_err(io::Error::other)?, &line)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_aside_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let line = |name: &str| {
            let key = ecluse_names::key_of(name);
            let text = format!("{key}\t{name}\tSERVFAIL\t-\tunknown\t-\t-\t-\t{{}}");
            CheckedLine::parse(&text).unwrap()
        };
        let mut unsettled = Unsettled::new(dir.path());
        unsettled.push(7, &line("b.fr")).unwrap();
        unsettled.push(3, &line("a.fr")).unwrap();
        assert_eq!(unsettled.names, 2);
        let mut seen = Vec::new();
        let read = unsettled.read(&mut |number, line| {
            seen.push((number, line.clone()));
            Ok(())
        });
        read.unwrap();
        assert_eq!(seen, [(7, line("b.fr")), (3, line("a.fr"))]);
        let none = Unsettled::new(Path::new("/nowhere"));
        none.read(&mut |_, _| unreachable!("there is none"))
            .unwrap();
    }
}
