//! `urls.fc`: every known URL by its key, front-coded; its number is its place.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use flate2::Crc;

use crate::error::LinksError;

const MAGIC: &[u8; 8] = b"ECLURLS1";
/// Entries of a block; the first of each is whole.
const BLOCK: u64 = 64;
/// What follows the offsets: entries, blocks, checksum.
const TAIL_BYTES: u64 = 20;
/// No key or URL is longer.
const TEXT_BYTES: usize = 8 << 20;

/// How a URL follows from its key, by the byte that says so.
const PREFIXES: [&str; 4] = ["https://", "http://", "https://www.", "http://www."];

/// Returns the byte that tells a URL by its key, and what must be said beside it.
pub fn url_code<'a>(surt: &str, url: &'a str) -> (u8, &'a str) {
    let mut plain = String::with_capacity(url.len());
    for (code, prefix) in (1..).zip(PREFIXES) {
        if url.starts_with(prefix) {
            plain.clear();
            plain.push_str(prefix);
            append_plain(surt, &mut plain);
            if plain == url {
                return (code, "");
            }
        }
    }
    (0, url)
}

/// Appends the URL that a byte and what was said beside it tell.
pub fn url_of_code(surt: &str, code: u8, said: &str, url: &mut String) {
    match PREFIXES.get(usize::from(code).wrapping_sub(1)) {
        Some(prefix) => {
            url.push_str(prefix);
            append_plain(surt, url);
        }
        None => url.push_str(said),
    }
}

/// Appends host and path of a key, as far as they can be told.
fn append_plain(surt: &str, out: &mut String) {
    let (host, path) = surt.split_once(')').unwrap_or((surt, ""));
    let (labels, port) = host.split_once(':').unwrap_or((host, ""));
    for (at, label) in labels.rsplit(',').enumerate() {
        if at > 0 {
            out.push('.');
        }
        out.push_str(label);
    }
    if !port.is_empty() {
        out.push(':');
        out.push_str(port);
    }
    out.push_str(path);
}

/// Writes the file; URLs come in the order of their keys, each once.
pub struct UrlsWriter {
    out: BufWriter<File>,
    path: PathBuf,
    crc: Crc,
    offset: u64,
    offsets: Vec<u64>,
    entries: u64,
    last: Vec<u8>,
    entry: Vec<u8>,
}

impl UrlsWriter {
    /// Begins a file that is not there.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(path: &Path) -> Result<Self, LinksError> {
        let file = File::create(path).map_err(LinksError::io("make", path))?;
        let mut writer = Self {
            out: BufWriter::with_capacity(128 << 10, file),
            path: path.to_owned(),
            crc: Crc::new(),
            offset: 0,
            offsets: Vec::new(),
            entries: 0,
            last: Vec::new(),
            entry: Vec::new(),
        };
        writer.write(MAGIC)?;
        Ok(writer)
    }

    /// Adds a URL; returns its number.
    ///
    /// # Errors
    /// When it cannot be written.
    ///
    /// # Panics
    /// When the key is not above the one before.
    pub fn push(&mut self, surt: &str, url: &str) -> Result<u64, LinksError> {
        let key = surt.as_bytes();
        assert!(
            self.entries == 0 || key > self.last.as_slice(),
            "keys come in order"
        );
        let mut shared = 0;
        if self.entries.is_multiple_of(BLOCK) {
            self.offsets.push(self.offset);
        } else {
            let pairs = key.iter().zip(&self.last);
            shared = pairs.take_while(|(left, right)| left == right).count();
        }
        let (code, said) = url_code(surt, url);
        let mut entry = std::mem::take(&mut self.entry);
        entry.clear();
        leb(shared, &mut entry);
        leb(key.len() - shared, &mut entry);
        entry.extend_from_slice(&key[shared..]);
        entry.push(code);
        if code == 0 {
            leb(said.len(), &mut entry);
            entry.extend_from_slice(said.as_bytes());
        }
        self.write(&entry)?;
        self.entry = entry;
        self.last.truncate(shared);
        self.last.extend_from_slice(&key[shared..]);
        self.entries += 1;
        Ok(self.entries - 1)
    }

    /// Ends and syncs the file; returns how many URLs it has.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(mut self) -> Result<u64, LinksError> {
        let offsets = std::mem::take(&mut self.offsets);
        for offset in &offsets {
            self.write(&offset.to_le_bytes())?;
        }
        self.write(&self.entries.to_le_bytes())?;
        self.write(&(offsets.len() as u64).to_le_bytes())?;
        self.write(&self.crc.sum().to_le_bytes())?;
        let Self { out, path, .. } = self;
        let file = out.into_inner().map_err(io::IntoInnerError::into_error);
        let synced = file.and_then(|file| file.sync_all());
        synced.map_err(LinksError::io("write", &path))?;
        Ok(self.entries)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), LinksError> {
        self.crc.update(bytes);
        self.offset += bytes.len() as u64;
        self.out
            .write_all(bytes)
            .map_err(LinksError::io("write", &self.path))
    }
}

fn leb(mut value: usize, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Reads the file, from its beginning or at any number.
pub struct Urls {
    file: File,
    path: PathBuf,
    entries: u64,
    /// Where the blocks end and their offsets begin.
    offsets_at: u64,
    blocks: u64,
}

impl Urls {
    /// Opens a file.
    ///
    /// # Errors
    /// When it cannot be read, or is no such file.
    pub fn open(path: &Path) -> Result<Self, LinksError> {
        let file = File::open(path).map_err(LinksError::io("open", path))?;
        let failed = |error| LinksError::io("read", path)(error);
        let broken = |what| LinksError::Broken {
            path: path.to_owned(),
            what,
        };
        let bytes = file.metadata().map_err(failed)?.len();
        let mut magic = [0; 8];
        let mut tail = [0; TAIL_BYTES as usize];
        if bytes < 8 + TAIL_BYTES {
            return Err(broken("too short"));
        }
        file.read_exact_at(&mut magic, 0).map_err(failed)?;
        file.read_exact_at(&mut tail, bytes - TAIL_BYTES)
            .map_err(failed)?;
        let number = |at: usize| {
            u64::from_le_bytes(tail[at..at + 8].try_into().expect("these are eight bytes"))
        };
        let (entries, blocks) = (number(0), number(8));
        let offsets_at = blocks
            .checked_mul(8)
            .and_then(|offsets| (bytes - TAIL_BYTES).checked_sub(offsets));
        match offsets_at {
            Some(offsets_at) if &magic == MAGIC && blocks == entries.div_ceil(BLOCK) => Ok(Self {
                file,
                path: path.to_owned(),
                entries,
                offsets_at,
                blocks,
            }),
            _ => Err(broken("no list of URLs")),
        }
    }

    /// Returns how many URLs there are.
    pub fn len(&self) -> u64 {
        self.entries
    }

    /// Tells whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Reads from a number on.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn from(&self, number: u64) -> Result<UrlsCursor, LinksError> {
        let block = (number / BLOCK).min(self.blocks);
        let mut cursor = self.block(block)?;
        while cursor.number < number && cursor.advance()? {}
        Ok(cursor)
    }

    /// Returns key and URL of a number; none where it has none.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn get(&self, number: u64) -> Result<Option<(String, String)>, LinksError> {
        if number >= self.entries {
            return Ok(None);
        }
        let mut cursor = self.from(number)?;
        let found = cursor.advance()?;
        Ok(found.then(|| (cursor.surt().to_owned(), cursor.url().to_owned())))
    }

    /// Returns the number of a key; none where it is not known.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn find(&self, surt: &str) -> Result<Option<u64>, LinksError> {
        let (mut low, mut high) = (0, self.blocks);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            let mut cursor = self.block(middle)?;
            if cursor.advance()? && cursor.surt() <= surt {
                low = middle;
            } else {
                high = middle;
            }
        }
        let mut cursor = self.block(low)?;
        for _ in 0..BLOCK {
            if !cursor.advance()? || cursor.surt() > surt {
                return Ok(None);
            }
            if cursor.surt() == surt {
                return Ok(Some(cursor.number - 1));
            }
        }
        Ok(None)
    }

    fn block(&self, block: u64) -> Result<UrlsCursor, LinksError> {
        let failed = |error| LinksError::io("read", &self.path)(error);
        let mut offset = [0; 8];
        let at = if block < self.blocks {
            self.file
                .read_exact_at(&mut offset, self.offsets_at + 8 * block)
                .map_err(failed)?;
            u64::from_le_bytes(offset)
        } else {
            self.offsets_at
        };
        if at > self.offsets_at {
            return Err(LinksError::Broken {
                path: self.path.clone(),
                what: "an offset is outside of the file",
            });
        }
        let source = Region {
            file: self.file.try_clone().map_err(failed)?,
            at,
            end: self.offsets_at,
        };
        Ok(UrlsCursor {
            source: BufReader::with_capacity(16 << 10, source),
            path: self.path.clone(),
            number: (block * BLOCK).min(self.entries),
            entries: self.entries,
            surt: Vec::new(),
            said: Vec::new(),
            url: String::new(),
        })
    }
}

/// A part of a file; others may read the same file elsewhere.
struct Region {
    file: File,
    at: u64,
    end: u64,
}

impl Read for Region {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        let bytes = buffer.len().min(rest);
        let read = self.file.read_at(&mut buffer[..bytes], self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

/// URLs one after the other.
pub struct UrlsCursor {
    source: BufReader<Region>,
    path: PathBuf,
    /// The number of the next one.
    number: u64,
    entries: u64,
    surt: Vec<u8>,
    said: Vec<u8>,
    url: String,
}

impl UrlsCursor {
    /// Goes to the next URL; false at the end.
    ///
    /// # Errors
    /// When the file cannot be read or is damaged.
    pub fn advance(&mut self) -> Result<bool, LinksError> {
        if self.number >= self.entries {
            return Ok(false);
        }
        let read = self.read_entry();
        let whole = read.map_err(LinksError::io("read", &self.path))?;
        if !whole {
            return Err(LinksError::Broken {
                path: self.path.clone(),
                what: "an entry is none",
            });
        }
        self.number += 1;
        Ok(true)
    }

    /// Returns the key of the URL.
    pub fn surt(&self) -> &str {
        std::str::from_utf8(&self.surt).expect("it was looked at when it was read")
    }

    /// Returns the URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    fn read_entry(&mut self) -> io::Result<bool> {
        let shared = read_leb(&mut self.source)?;
        let rest = read_leb(&mut self.source)?;
        if shared > self.surt.len() || rest > TEXT_BYTES {
            return Ok(false);
        }
        self.surt.resize(shared + rest, 0);
        self.source.read_exact(&mut self.surt[shared..])?;
        let mut code = [0];
        self.source.read_exact(&mut code)?;
        self.said.clear();
        if code[0] == 0 {
            let bytes = read_leb(&mut self.source)?;
            if bytes > TEXT_BYTES {
                return Ok(false);
            }
            self.said.resize(bytes, 0);
            self.source.read_exact(&mut self.said)?;
        }
        let (Ok(surt), Ok(said)) = (
            std::str::from_utf8(&self.surt),
            std::str::from_utf8(&self.said),
        ) else {
            return Ok(false);
        };
        self.url.clear();
        url_of_code(surt, code[0], said, &mut self.url);
        Ok(true)
    }
}

fn read_leb(source: &mut impl Read) -> io::Result<usize> {
    let (mut value, mut shift) = (0, 0);
    loop {
        let mut byte = [0];
        source.read_exact(&mut byte)?;
        value |= usize::from(byte[0] & 0x7f) << shift;
        if byte[0] < 0x80 {
            return Ok(value);
        }
        shift += 7;
        if shift > 42 {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]
        #[test]
        fn every_url_has_its_number(keys in proptest::collection::btree_map("[a-c,]{1,6}(:80)?\\)/[a-c]{0,4}", "https?://(www\\.)?[a-c.]{1,6}/[A-Ca-c]{0,4}", 0..300)) {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("urls.fc");
            let keys: BTreeMap<String, String> = keys;
            let mut writer = UrlsWriter::create(&path).unwrap();
            for (surt, url) in &keys {
                writer.push(surt, url).unwrap();
            }
            prop_assert_eq!(writer.finish().unwrap(), keys.len() as u64);
            let urls = Urls::open(&path).unwrap();
            prop_assert_eq!(urls.len(), keys.len() as u64);
            let mut cursor = urls.from(0).unwrap();
            for (number, (surt, url)) in keys.iter().enumerate() {
                prop_assert!(cursor.advance().unwrap());
                prop_assert_eq!((cursor.surt(), cursor.url()), (surt.as_str(), url.as_str()));
                prop_assert_eq!(urls.find(surt).unwrap(), Some(number as u64));
                prop_assert_eq!(urls.find(&format!("{surt}!")).unwrap(), None);
                prop_assert_eq!(urls.get(number as u64).unwrap(), Some((surt.clone(), url.clone())));
            }
            prop_assert!(!cursor.advance().unwrap());
            prop_assert_eq!(urls.get(keys.len() as u64).unwrap(), None);
            prop_assert_eq!(urls.find("!").unwrap(), None);
        }
    }

    #[test]
    fn plain_urls_take_one_byte() {
        for (surt, url, code) in [
            ("fr,example)/", "https://example.fr/", 1),
            ("fr,example)/a?b", "http://example.fr/a?b", 2),
            ("fr,example)/", "https://www.example.fr/", 3),
            ("fr,example,b:81)/", "http://www.b.example.fr:81/", 4),
            ("fr,example)/a", "https://example.fr/A", 0),
        ] {
            let (found, said) = url_code(surt, url);
            assert_eq!(found, code, "{url}");
            let mut again = String::new();
            url_of_code(surt, found, said, &mut again);
            assert_eq!(again, url);
        }
    }

    #[test]
    fn what_is_no_such_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("urls.fc");
        for bytes in [vec![], vec![0; 40], vec![0xff; 100]] {
            std::fs::write(&path, &bytes).unwrap();
            assert!(matches!(Urls::open(&path), Err(LinksError::Broken { .. })));
        }
    }
}
