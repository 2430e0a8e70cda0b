//! Any bytes are read to their end: no panic, records in order and inside the file, damage within its limit. A sound
//! member, cut out by its offset and length, is a file of that one record.
//!
//! The first byte chooses the window: the usual one, or the smallest, in which all records are streamed.

use std::io;

use ecluse_warc::{Compression, DamageReason, Extent, ReaderLimits, WarcReader};

/// Holds what the head of this file says of these bytes.
pub fn run(data: &[u8]) {
    let Some((&choice, file)) = data.split_first() else {
        return;
    };
    let usual = ReaderLimits {
        damages: 10,
        ..ReaderLimits::default()
    };
    let limits = if choice & 1 == 0 {
        usual
    } else {
        ReaderLimits {
            member_bytes: 0,
            header_bytes: 0,
            prefix_bytes: 0,
            bomb_bytes: 0,
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
        let number = record.number();
        if let Extent::Own { offset, length } = record.finish().expect("a slice does not fail") {
            assert!(offset >= behind && length > 0);
            behind = offset + length;
            assert!(behind <= file.len() as u64);
            let is_sound = reader.damage_count() < 10
                && reader.damages().iter().all(|damage| {
                    damage.record != number || matches!(damage.reason, DamageReason::Garbage { .. })
                });
            if is_sound && reader.compression() == Compression::Gzip {
                is_one_record(&file[offset as usize..behind as usize], limits);
            }
        }
    }
    assert!(reader.damages().len() <= limits.damages);
}

fn is_one_record(member: &[u8], limits: ReaderLimits) {
    // A trailer that stands there twice, with a member behind the second, is taken for the end where it stands last.
    let trailer = &member[member.len().saturating_sub(8)..];
    if member.windows(8).filter(|bytes| *bytes == trailer).count() > 1 {
        return;
    }
    let mut reader = WarcReader::new(member, limits);
    let record = reader.next().expect("a slice does not fail");
    let extent = record.expect("it was one before").finish();
    let whole = Extent::Own {
        offset: 0,
        length: member.len() as u64,
    };
    assert_eq!(extent.expect("a slice does not fail"), whole);
    assert!(reader.next().expect("a slice does not fail").is_none());
}

/// Plain files; the first byte chooses the window.
pub fn seeds() -> Vec<Vec<u8>> {
    [
        "\0WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: http://a/\r\nWARC-Date: 2026-01-02T03:04:05Z\r\nContent-Type: application/http\r\nContent-Length: 19\r\n\r\nHTTP/1.1 200 OK\r\n\r\n\r\n\r\nWARC/1.1\r\nWARC-Type: metadata\r\nContent-Length: 2\r\n\r\nab\r\n\r\n",
        "\u{1}filedesc://a.arc 0.0.0.0 20010203040506 text/plain 76\n1 0 InternetArchive\nURL IP-address Archive-date Content-type Archive-length\n\nhttp://a/ 192.0.2.1 20010203040506 text/html 4\nbody\n",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into()
}
