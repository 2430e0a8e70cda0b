//! Which journal the database keeps.
//!
//! A write-ahead log costs one fsync a transaction, but its shared memory works on one machine only.
//! On a network file system the rollback journal is kept, which locks files and nothing else.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, OpenFlags};

/// File systems that several machines mount: NFS, SMB (three kinds), Ceph, FUSE, GPFS, Lustre, OCFS2, GFS2.
const SHARED: [u64; 10] = [
    0x6969,
    0x517b,
    0xff53_4d42,
    0xfe53_4d42,
    0x00c3_6400,
    0x6573_5546,
    0x4750_4653,
    0x0bd0_0bd0,
    0x7461_636f,
    0x0116_1970,
];

pub(crate) fn choose(
    connection: &Connection,
    path: &Path,
    patience: Duration,
) -> rusqlite::Result<()> {
    let mode = if is_shared(path) { "delete" } else { "wal" };
    let deadline = Instant::now() + patience;
    // Changing the journal needs the database for itself, and does not wait for it.
    loop {
        let changed = journal(connection).and_then(|now| {
            if now == mode {
                return Ok(());
            }
            connection.pragma_update(None, "journal_mode", mode)
        });
        match changed {
            Err(error) if is_busy(&error) && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(5));
            }
            changed => {
                changed?;
                break;
            }
        }
    }
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", true)
}

/// Opens a database that is not to be changed, perhaps by somebody who may not.
pub(crate) fn open_to_read(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    match connection.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0)) {
        Err(error) if is_denied(&error) && !beside(path, "-wal").exists() => {}
        _ => return Ok(connection),
    }
    // The shared memory of the log goes with the last who had it open, and making it anew takes leave to write here.
    // Without a log nobody is writing, and all there is stands in the file itself.
    let uri = format!("file:{}?immutable=1", escaped(path));
    Connection::open_with_flags(uri, flags | OpenFlags::SQLITE_OPEN_URI)
}

fn is_denied(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied)
    )
}

pub(crate) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// Returns a path as a URI has it.
fn escaped(path: &Path) -> String {
    let mut text = String::new();
    for &byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' => text.push(char::from(byte)),
            _ if byte.is_ascii_alphanumeric() => text.push(char::from(byte)),
            _ => text.push_str(&format!("%{byte:02x}")),
        }
    }
    text
}

fn journal(connection: &Connection) -> rusqlite::Result<String> {
    connection.pragma_query_value(None, "journal_mode", |row| row.get(0))
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
    )
}

/// Tells whether several machines may have this database. Unknown counts as shared: slower and always right.
pub(crate) fn is_shared(path: &Path) -> bool {
    let directory = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    match rustix::fs::statfs(directory.unwrap_or(Path::new("."))) {
        Ok(stat) => SHARED.contains(&((stat.f_type as u64) & 0xffff_ffff)),
        Err(_) => true,
    }
}
