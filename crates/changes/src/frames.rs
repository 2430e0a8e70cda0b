//! Where the frames of a file begin: a list in a skippable frame at its end, which every other reader of zstd passes over.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use crate::error::{BadLine, ChangesError};

/// What a skippable frame begins with; then comes its length in four bytes.
const SKIPPABLE: [u8; 4] = [0x50, 0x2A, 0x4D, 0x18];
/// What the file ends with, behind the length of the list in eight bytes.
const MARK: &[u8; 8] = b"ecluseFL";

/// The first key of each frame and where it begins.
#[derive(Default)]
pub(crate) struct FrameList {
    text: String,
}

impl FrameList {
    pub(crate) fn push(&mut self, key: &str, offset: u64) {
        self.text.push_str(key);
        self.text.push_str(&format!("\t{offset}\n"));
    }

    /// Returns the frame that holds it; nothing where it is too long for one, and then keys are found by reading.
    pub(crate) fn to_frame(&self) -> Vec<u8> {
        let Ok(length) = u32::try_from(self.text.len() + 16) else {
            return Vec::new();
        };
        let mut frame = SKIPPABLE.to_vec();
        frame.extend(length.to_le_bytes());
        frame.extend(self.text.as_bytes());
        frame.extend((self.text.len() as u64).to_le_bytes());
        frame.extend(MARK);
        frame
    }
}

/// Returns where the frame begins that a key is in; 0 where no list says.
pub(crate) fn frame_of(path: &Path, key: &str) -> Result<u64, ChangesError> {
    let mut file = File::open(path).map_err(ChangesError::io("open", path))?;
    let list = read_list(&mut file).map_err(ChangesError::io("read", path))?;
    let mut offset = 0;
    for (line, number) in list.lines().zip(1..) {
        let bad = |column| ChangesError::Damaged {
            path: path.to_owned(),
            line: number,
            source: BadLine { column },
        };
        let (first, begins) = line.split_once('\t').ok_or_else(|| bad("frame"))?;
        if first > key {
            break;
        }
        offset = begins.parse().map_err(|_| bad("frame"))?;
    }
    Ok(offset)
}

fn read_list(file: &mut File) -> io::Result<String> {
    let bytes = file.metadata()?.len();
    let mut end = [0; 16];
    if bytes < 16 {
        return Ok(String::new());
    }
    file.seek(SeekFrom::End(-16))?;
    file.read_exact(&mut end)?;
    let (length, mark) = end.split_at(8);
    let length = u64::from_le_bytes(length.try_into().expect("it has eight bytes"));
    if mark != MARK || length.saturating_add(24) > bytes {
        return Ok(String::new());
    }
    file.seek(SeekFrom::Start(bytes - 16 - length))?;
    let mut list = String::new();
    file.take(length).read_to_string(&mut list)?;
    Ok(list)
}
