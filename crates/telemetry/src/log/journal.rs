//! The journal's native protocol: a datagram of fields.
//!
//! See systemd's "Native Journal Protocol". Values are written with their length, so that nothing
//! in a value can end a field or begin another. `tracing-journald` speaks the protocol too, but
//! `journalctl` shows the message only, and its message has no fields: "parcel held", and not which.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use tracing::Level;

use super::entry::{Entry, shown};

/// Where journald listens.
pub(super) const SOCKET: &str = "/run/systemd/journal/socket";

/// A datagram has a limit of the system's, about 200 KiB; a longer entry would need a memory file.
const LONGEST_ENTRY: usize = 64 * 1_024;
const LONGEST_MESSAGE: usize = 16 * 1_024;

/// A way to the journal.
pub(super) struct Journal {
    socket: UnixDatagram,
    path: PathBuf,
    identifier: String,
}

impl Journal {
    /// Opens a way to the journal, and sees whether anybody listens.
    pub(super) fn open(path: &Path, identifier: &str) -> io::Result<Journal> {
        let socket = UnixDatagram::unbound()?;
        // Journald ignores an empty datagram.
        socket.send_to(&[], path)?;
        // Work does not wait for a journal that is stuck.
        socket.set_write_timeout(Some(std::time::Duration::from_secs(2)))?;
        Ok(Journal {
            socket,
            path: path.to_owned(),
            identifier: identifier.to_owned(),
        })
    }

    /// Sends an entry. By path each time: a journald that was restarted has another socket there.
    pub(super) fn send(&self, entry: &Entry<'_>) -> io::Result<()> {
        let datagram = to_datagram(entry, &self.identifier);
        self.socket.send_to(&datagram, &self.path).map(drop)
    }
}

fn to_datagram(entry: &Entry<'_>, identifier: &str) -> Vec<u8> {
    let mut datagram = Vec::with_capacity(512);
    let metadata = entry.metadata;
    let message = entry.sentence();
    let message = &message[..message.floor_char_boundary(LONGEST_MESSAGE)];
    put(&mut datagram, "MESSAGE", message);
    put(&mut datagram, "PRIORITY", priority(*metadata.level()));
    put(&mut datagram, "SYSLOG_IDENTIFIER", identifier);
    if let Some(file) = metadata.file() {
        put(&mut datagram, "CODE_FILE", file);
    }
    if let Some(line) = metadata.line() {
        put(&mut datagram, "CODE_LINE", &line.to_string());
    }
    put(&mut datagram, "ECLUSE_TARGET", metadata.target());
    for (name, value) in entry.fields() {
        let value = shown(value);
        if datagram.len() + value.len() <= LONGEST_ENTRY {
            put(&mut datagram, &field_name(name), &value);
        }
    }
    datagram
}

/// Syslog's numbers; nothing a stage says is an emergency.
fn priority(level: Level) -> &'static str {
    match level {
        Level::ERROR => "3",
        Level::WARN => "4",
        Level::INFO => "6",
        Level::DEBUG | Level::TRACE => "7",
    }
}

/// The journal's name of a field: `parcel` is `ECLUSE_PARCEL`.
fn field_name(name: &str) -> String {
    let letters = name.chars().map(|c| match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' => c.to_ascii_uppercase(),
        _ => '_',
    });
    // Names of more than 64 letters are dropped by journald.
    "ECLUSE_".chars().chain(letters).take(64).collect()
}

fn put(datagram: &mut Vec<u8>, name: &str, value: &str) {
    datagram.extend_from_slice(name.as_bytes());
    datagram.push(b'\n');
    datagram.extend_from_slice(&(value.len() as u64).to_le_bytes());
    datagram.extend_from_slice(value.as_bytes());
    datagram.push(b'\n');
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Reads a datagram as journald does.
    pub(in crate::log) fn parse(mut datagram: &[u8]) -> Vec<(String, String)> {
        let mut fields = Vec::new();
        while !datagram.is_empty() {
            let end = datagram.iter().position(|byte| *byte == b'\n').unwrap();
            let name = String::from_utf8(datagram[..end].to_vec()).unwrap();
            let (length, rest) = datagram[end + 1..].split_first_chunk::<8>().unwrap();
            let length = usize::try_from(u64::from_le_bytes(*length)).unwrap();
            let value = String::from_utf8(rest[..length].to_vec()).unwrap();
            assert_eq!(rest[length], b'\n');
            datagram = &rest[length + 1..];
            fields.push((name, value));
        }
        fields
    }

    #[test]
    fn names_are_as_the_journal_wants_them() {
        assert_eq!(field_name("parcel"), "ECLUSE_PARCEL");
        assert_eq!(
            field_name("http.status-Code é"),
            "ECLUSE_HTTP_STATUS_CODE__"
        );
        assert_eq!(field_name(&"x".repeat(100)).len(), 64);
    }

    #[test]
    fn a_value_cannot_begin_another_field() {
        let mut datagram = Vec::new();
        put(&mut datagram, "MESSAGE", "a\nPRIORITY=0\n");
        put(&mut datagram, "PRIORITY", "6");
        let fields = parse(&datagram);
        assert_eq!(fields.len(), 2);
        assert_eq!(fields[0].1, "a\nPRIORITY=0\n");
    }

    #[test]
    fn nobody_listening_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        assert!(Journal::open(&directory.path().join("none"), "x").is_err());
    }
}
