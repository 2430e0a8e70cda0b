//! Lists the records of a file: offset, length, kind, format, target URI, time, status, payload digest; then the damage.
//!
//! `cargo run -p ecluse-warc --example records -- FILE…`

use std::env;
use std::fs::File;
use std::process::ExitCode;

use ecluse_warc::{Extent, ReaderLimits, RecordKind, WarcReadError, WarcReader};

fn main() -> ExitCode {
    let mut outcome = ExitCode::SUCCESS;
    for path in env::args_os().skip(1) {
        let listed = File::open(&path)
            .map_err(|source| WarcReadError::Io { record: 0, source })
            .and_then(|file| list(&mut WarcReader::new(file, ReaderLimits::default())));
        if let Err(error) = listed {
            eprintln!("cannot list {}: {error:?}", path.display());
            outcome = ExitCode::FAILURE;
        }
    }
    outcome
}

fn list(reader: &mut WarcReader<File>) -> Result<(), WarcReadError> {
    while let Some(mut record) = reader.next()? {
        let kind = record.kind();
        let name = kind
            .name()
            .map_or_else(|| format!("{kind:?}"), ToOwned::to_owned);
        let uri = record
            .target_uri()
            .unwrap_or_default()
            .escape_debug()
            .to_string();
        let time = record
            .capture_time()
            .map_or_else(|_| "-".to_owned(), |time| time.to_string());
        let status = record
            .http()
            .and_then(|head| head.status().map(|code| code.into_owned()))
            .unwrap_or_default();
        let digest = match record.text("WARC-Payload-Digest") {
            Some(digest) => digest.into_owned(),
            None if matches!(kind, RecordKind::Warcinfo | RecordKind::Revisit) => "-".to_owned(),
            None => record.digest_payload()?.to_string(),
        };
        let place = match record.finish()? {
            Extent::Own { offset, length } => format!("{offset}\t{length}"),
            Extent::Shared { member, inside } => format!("{member}+{inside}\t-"),
        };
        println!("{place}\t{name}\t{uri}\t{time}\t{status}\t{digest}");
    }
    for damage in reader.damages() {
        println!("! {damage}");
    }
    Ok(())
}
