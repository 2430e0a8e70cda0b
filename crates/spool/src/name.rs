//! Names on disk: parcels, waiting entries, workers.
//!
//! Every state of a parcel is legible from a directory listing, so these names are the state.
//! A [`ParcelId`] cannot hold a separator, a dot at its start or a control character: no name
//! from the web or from an operator's shell leaves the tree or reaches a terminal raw.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The longest parcel id; leaves room in a 255-byte name for due time, attempts and suffixes.
pub(crate) const PARCEL_ID_BYTES: usize = 180;

/// The name of a parcel, unique in the archive.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ParcelId(String);

/// Why a string is not a parcel id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadName {
    /// Empty, or longer than [`PARCEL_ID_BYTES`].
    #[error("a parcel id has 1 to {PARCEL_ID_BYTES} bytes, found {0}")]
    Length(usize),
    /// A byte outside `A-Z a-z 0-9 . _ + -`, or a dot at the start.
    #[error("a parcel id is made of A-Z a-z 0-9 . _ + - and does not start with a dot: {0:?}")]
    Byte(String),
}

impl ParcelId {
    /// Returns the id, when `name` can be one.
    pub fn new(name: &str) -> Result<Self, BadName> {
        if name.is_empty() || name.len() > PARCEL_ID_BYTES {
            return Err(BadName::Length(name.len()));
        }
        if name.starts_with('.') || !name.bytes().all(is_id_byte) {
            return Err(BadName::Byte(name.to_owned()));
        }
        Ok(Self(name.to_owned()))
    }

    /// Returns an id for a file that carries any name at all, told apart by its content.
    ///
    /// Bytes an id cannot hold become `_`; the digest makes two names that fold together distinct,
    /// by the name as well where it was folded: two names of one content are two files.
    pub fn for_file(name: &OsStr, sha256: &str) -> Self {
        let safe = safe_file_name(name);
        let mut digest = sha256.to_owned();
        if name != safe.as_str() {
            let mut hash = Sha256::new();
            hash.update(name.as_bytes());
            hash.update(sha256);
            digest = hex(&hash.finalize());
        }
        digest.truncate(12);
        Self::of_stem(&safe, &digest)
    }

    /// Returns the id of the same work done again on purpose: `X`, `X+2`, `X+3`.
    pub fn again(&self) -> Self {
        let (stem, round) = match self.0.rsplit_once('+') {
            Some((stem, round)) => match round.parse::<u32>() {
                Ok(round) => (stem, round),
                Err(_) => (self.0.as_str(), 1),
            },
            None => (self.0.as_str(), 1),
        };
        let suffix = format!("+{}", round.saturating_add(1));
        let room = PARCEL_ID_BYTES - suffix.len();
        Self(format!("{}{suffix}", &stem[..stem.len().min(room)]))
    }

    /// Returns the id of the batch made of `members`, the same for the same members in any order. A stage may be of one
    /// machine, `merge@alpha`: its batches are `merge_alpha-…`.
    pub fn of_batch(stage: &str, members: &[ParcelId]) -> Self {
        let mut sorted: Vec<&str> = members.iter().map(ParcelId::as_str).collect();
        sorted.sort_unstable();
        let mut hash = Sha256::new();
        for member in sorted {
            hash.update(member.as_bytes());
            hash.update(b"\n");
        }
        Self::of_stem(stage, &hex(&hash.finalize())[..20])
    }

    /// Returns `<stem>-<digest>`, whatever the stem: bytes an id cannot hold become `_`.
    fn of_stem(stem: &str, digest: &str) -> Self {
        let room = PARCEL_ID_BYTES - digest.len() - 1;
        let id_byte = |b: u8| if is_id_byte(b) { char::from(b) } else { '_' };
        let mut safe: String = stem.bytes().take(room).map(id_byte).collect();
        if safe.starts_with('.') {
            safe.replace_range(..1, "_");
        }
        Self(format!("{safe}-{digest}"))
    }

    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the two hex digits that name the shard of this parcel.
    pub fn shard(&self) -> String {
        format!("{:02x}", fnv1a(self.0.as_bytes()) & 0xff)
    }

    /// Returns a 64-bit hash of the id mixed with `seed`: every worker its own order.
    pub fn order(&self, seed: u64) -> u64 {
        spread(fnv1a(self.0.as_bytes()) ^ seed)
    }
}

impl fmt::Display for ParcelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for ParcelId {
    type Error = BadName;
    fn try_from(name: String) -> Result<Self, BadName> {
        Self::new(&name)
    }
}

impl From<ParcelId> for String {
    fn from(id: ParcelId) -> Self {
        id.0
    }
}

/// A parcel in `ready/`, `in/` or `held/`: `<parcel>~<attempts begun>`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ParcelEntry {
    /// The parcel.
    pub id: ParcelId,
    /// Attempts already begun.
    pub attempts: u32,
}

impl ParcelEntry {
    /// Returns the entry of a parcel of which so many attempts have begun.
    pub fn new(id: &ParcelId, attempts: u32) -> Self {
        Self {
            id: id.clone(),
            attempts,
        }
    }

    /// Reads an entry's name; `None` for anything else a directory may hold.
    pub fn parse(name: &OsStr) -> Option<Self> {
        let (id, attempts) = name.to_str()?.rsplit_once('~')?;
        let entry = Self {
            id: ParcelId::new(id).ok()?,
            attempts: attempts.parse().ok()?,
        };
        // `X~007` and `X~+7` would be looked for under a name that is not there.
        (name == entry.file_name().as_str()).then_some(entry)
    }

    /// Returns the file name of the entry.
    pub fn file_name(&self) -> String {
        format!("{}~{}", self.id, self.attempts)
    }
}

/// A parcel in `deferred/`: `<due>~<parcel>~<attempts begun>`, due in Unix seconds.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Deferred {
    /// When it may be tried again, in Unix seconds.
    pub due: u64,
    /// The parcel and its attempts.
    pub entry: ParcelEntry,
}

impl Deferred {
    /// Reads a deferred entry's name.
    pub fn parse(name: &OsStr) -> Option<Self> {
        let (due, entry) = name.to_str()?.split_once('~')?;
        let deferred = Self {
            due: due.parse().ok()?,
            entry: ParcelEntry::parse(OsStr::new(entry))?,
        };
        (name == deferred.file_name().as_str()).then_some(deferred)
    }

    /// Returns the file name of the entry.
    pub fn file_name(&self) -> String {
        format!("{}~{}", self.due, self.entry.file_name())
    }
}

/// One life of one worker: host, boot, process and a random part. Never used twice.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkerId(String);

impl WorkerId {
    /// Makes the id of a worker born now.
    pub fn new(host: &str, boot: &str, pid: u32, random: u64) -> Self {
        let host: String = host
            .bytes()
            .map(|b| if is_id_byte(b) { b as char } else { '_' })
            .take(80)
            .collect();
        let boot: String = boot
            .chars()
            .filter(char::is_ascii_hexdigit)
            .take(8)
            .collect();
        Self(format!("{host}-{boot}-{pid}-{:08x}", random as u32))
    }

    /// Reads the name of a worker's directory.
    pub fn parse(name: &OsStr) -> Option<Self> {
        let text = name.to_str()?;
        if text.contains('@') || text.rsplitn(4, '-').count() != 4 {
            return None;
        }
        Some(Self(text.to_owned()))
    }

    /// Returns the host part.
    pub fn host(&self) -> &str {
        self.0.rsplitn(4, '-').nth(3).unwrap_or("")
    }

    /// Returns the boot part.
    pub fn boot(&self) -> &str {
        self.0.rsplit('-').nth(2).unwrap_or("")
    }

    /// Returns the process part.
    pub fn pid(&self) -> &str {
        self.0.rsplit('-').nth(1).unwrap_or("")
    }

    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the seed of the order in which this worker takes parcels.
    pub fn seed(&self) -> u64 {
        fnv1a(self.0.as_bytes())
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns `name` with every byte a parcel id cannot hold replaced, and at most 150 bytes long.
pub fn safe_file_name(name: &OsStr) -> String {
    let mut safe: String = name
        .as_bytes()
        .iter()
        .map(|&b| if is_id_byte(b) { b as char } else { '_' })
        .collect();
    if safe.len() > 150 {
        // The end of a name holds its suffix, the start its job: keep both.
        safe = format!("{}_{}", &safe[..100], &safe[safe.len() - 49..]);
    }
    // A dash at the start would be taken for an option wherever a person types the name.
    if !is_payload_name(&safe) || safe.starts_with('-') {
        safe.insert(0, '_');
    }
    safe
}

/// Tells whether `name` may name a file inside a parcel.
pub(crate) fn is_payload_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 255
        && !name.starts_with('.')
        && name != crate::parcel::MANIFEST
        && name != crate::parcel::HISTORY
        && name != crate::parcel::TROUBLE
        && name.bytes().all(is_payload_byte)
}

/// Returns bytes as lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] = [
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f',
    ];
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| DIGITS[usize::from(digit)]).collect()
}

fn is_id_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'+' | b'-')
}

/// A file keeps the name it came with, and archives have names that no parcel could have: Heritrix puts `~` between pid,
/// host and port. What a shell, an index line or a settings word would take for something else stays out.
fn is_payload_byte(b: u8) -> bool {
    is_id_byte(b) || matches!(b, b'~' | b'@' | b'=' | b',' | b'%' | b':')
}

pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &b| {
        (hash ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// The finaliser of splitmix64: neighbouring inputs give unrelated outputs.
pub(crate) fn spread(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_id_cannot_leave_its_directory() {
        for bad in ["", ".", "..", ".x", "a/b", "a~1", "a@b", "a\nb", "é", "a b"] {
            assert!(ParcelId::new(bad).is_err(), "{bad:?}");
        }
        assert!(ParcelId::new(&"x".repeat(181)).is_err());
        assert!(ParcelId::new("BnF-145-412-20260312101500123-00017-h.warc.gz").is_ok());
    }

    #[test]
    fn an_entry_has_one_name() {
        for bad in ["a~007", "a~+7", "a~", "a", "~1", "a~-1", "a~4294967296"] {
            assert_eq!(ParcelEntry::parse(OsStr::new(bad)), None, "{bad:?}");
            let bad = format!("5~{bad}");
            assert_eq!(Deferred::parse(OsStr::new(&bad)), None, "{bad:?}");
        }
        assert_eq!(Deferred::parse(OsStr::new("+5~a~1")), None);
        assert!(Deferred::parse(OsStr::new("5~a~1")).is_some());
    }

    #[test]
    fn work_done_again_counts_up() {
        let id = ParcelId::new("a.warc").unwrap();
        assert_eq!(id.again().as_str(), "a.warc+2");
        assert_eq!(id.again().again().as_str(), "a.warc+3");
        let c = ParcelId::new("a+c").unwrap();
        assert_eq!(c.again().as_str(), "a+c+2");
    }

    #[test]
    fn a_batch_is_named_by_its_members() {
        let (a, b) = (ParcelId::new("a").unwrap(), ParcelId::new("b").unwrap());
        let one = ParcelId::of_batch("merge", &[a.clone(), b.clone()]);
        assert_eq!(one, ParcelId::of_batch("merge", &[b, a.clone()]));
        assert_ne!(one, ParcelId::of_batch("merge", std::slice::from_ref(&a)));
        let machine = ParcelId::of_batch("merge@alpha", &[a]);
        assert!(machine.as_str().starts_with("merge_alpha-"), "{machine}");
    }

    #[test]
    fn a_worker_on_a_host_with_dashes_is_read_back() {
        let w = WorkerId::new("idx-01.example.org", "0123abcd-4567", 42, 7);
        assert_eq!(w.as_str(), "idx-01.example.org-0123abcd-42-00000007");
        let w = WorkerId::parse(OsStr::new(w.as_str())).unwrap();
        assert_eq!(
            (w.host(), w.boot(), w.pid()),
            ("idx-01.example.org", "0123abcd", "42")
        );
    }

    #[test]
    fn files_in_parcels_keep_the_names_of_other_crawlers() {
        for name in [
            "WEB-20260102030405123-00001-1234~crawler01.example.org~8443.warc.gz",
            "example.org@2026,a=1%20:0.warc",
        ] {
            assert!(is_payload_name(name), "{name}");
        }
        for name in [
            "a b", "a/b", "a\\b", "a\"b", "a'b", "{path}", "$a", "a;b", "a&b", "\u{e9}",
        ] {
            assert!(!is_payload_name(name), "{name}");
        }
    }

    proptest! {
        #[test]
        fn any_file_name_gives_a_legal_id(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let id = ParcelId::for_file(OsStr::from_bytes(&bytes), &"ab".repeat(32));
            prop_assert!(ParcelId::new(id.as_str()).is_ok(), "{id}");
            prop_assert!(is_payload_name(&safe_file_name(OsStr::from_bytes(&bytes))));
        }

        #[test]
        fn a_batch_of_any_stage_has_a_legal_id(stage in ".{0,300}") {
            let id = ParcelId::of_batch(&stage, &[ParcelId::new("a").unwrap()]);
            prop_assert!(ParcelId::new(id.as_str()).is_ok(), "{id}");
        }

        #[test]
        fn entries_read_back(id in "[A-Za-z0-9_][A-Za-z0-9._+-]{0,150}", attempts: u32, due: u64) {
            let entry = ParcelEntry { id: ParcelId::new(&id).unwrap(), attempts };
            prop_assert_eq!(ParcelEntry::parse(OsStr::new(&entry.file_name())), Some(entry.clone()));
            let deferred = Deferred { due, entry };
            prop_assert_eq!(Deferred::parse(OsStr::new(&deferred.file_name())), Some(deferred));
        }
    }
}
