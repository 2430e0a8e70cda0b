//! Any bytes are read to their end: no panic, records in order and inside the file, damage within its limit.
//!
//! The first byte chooses the window: the usual one, or the smallest, in which all records are streamed.

#![no_main]

use std::io;

use ecluse_warc::{Extent, Limits, WarcReader};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&choice, file)) = data.split_first() else {
        return;
    };
    let usual = Limits {
        damages: 10,
        ..Limits::default()
    };
    let limits = if choice & 1 == 0 {
        usual
    } else {
        Limits {
            member_bytes: 0,
            header_bytes: 0,
            prefix_bytes: 0,
            ..usual
        }
    };
    let mut reader = WarcReader::new(file, limits);
    let mut behind = 0;
    while let Some(mut record) = reader.next().expect("a slice does not fail") {
        let _ = (
            record.target_uri(),
            record.capture_time(),
            record.content_type(),
        );
        if let Some(head) = record.http() {
            let _ = (head.status(), head.text("Content-Type"));
            assert!(
                head.head_bytes()
                    .is_none_or(|bytes| bytes <= record.block_start().len())
            );
        }
        if choice & 2 == 0 {
            record.digest_payload().expect("nothing was read yet");
        } else {
            io::copy(&mut record, &mut io::sink()).expect("a slice does not fail");
        }
        if let Extent::Own { offset, length } = record.finish().expect("a slice does not fail") {
            assert!(offset >= behind && length > 0);
            behind = offset + length;
            assert!(behind <= file.len() as u64);
        }
    }
    assert!(reader.damages().len() <= limits.damages);
});
