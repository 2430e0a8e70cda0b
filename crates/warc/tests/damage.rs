//! Damage costs the record it is in, is named, and reading goes on.

#![allow(clippy::unwrap_used, reason = "a test that cannot unwrap has failed")]

mod common;

use common::{
    arc, arc_head, gzip, http, read, read_within, response, three_members, uri, uris, warc,
    warc_claiming,
};
use ecluse_warc::{DamageReason, Extent, ReaderLimits, RecordDamage, WarcReader};

fn reasons(damages: &[RecordDamage]) -> Vec<&DamageReason> {
    damages.iter().map(|damage| &damage.reason).collect()
}

#[test]
fn a_flipped_bit_costs_one_member() {
    let members = three_members();
    let clean = members.concat();
    let second = members[0].len()..members[0].len() + members[1].len();
    for at in second.clone() {
        for bit in [0x01, 0x80] {
            let mut file = clean.clone();
            file[at] ^= bit;
            let (seen, damages) = read(&file[..]);
            let found = uris(&seen);
            assert_eq!(found.first(), Some(&&*uri(1)), "bit {bit:#x} of byte {at}");
            assert_eq!(found.last(), Some(&&*uri(3)), "bit {bit:#x} of byte {at}");
            assert!(seen.len() <= 3);
            let third = seen.last().unwrap();
            assert_eq!(third.block, http(3));
            assert_eq!(
                third.extent,
                Extent::Own {
                    offset: second.end as u64,
                    length: members[2].len() as u64
                }
            );
            // The time, the level and the system in the member's header may be anything, and so may its text flag and
            // what fills the last byte of the deflate data.
            let harmless = (second.start + 4..second.start + 10).contains(&at)
                || (at, bit) == (second.start + 3, 0x01)
                || (at, bit) == (second.end - 9, 0x80);
            if !harmless {
                assert!(!damages.is_empty(), "bit {bit:#x} of byte {at}");
                assert_eq!(
                    (damages[0].record, damages[0].offset),
                    (2, second.start as u64)
                );
            }
        }
    }
}

#[test]
fn a_member_cut_short_in_the_middle_of_a_file() {
    let members = three_members();
    for kept in 0..members[1].len() {
        let file = [&members[0][..], &members[1][..kept], &members[2]].concat();
        let (seen, damages) = read(&file[..]);
        assert_eq!(uris(&seen).last(), Some(&&*uri(3)), "{kept} bytes kept");
        assert_eq!(seen.last().unwrap().block, http(3));
        assert_eq!(damages.is_empty(), kept == 0);
        if seen.len() == 3 {
            assert!(seen[1].damaged && http(2).starts_with(&seen[1].block));
            let extent = Extent::Own {
                offset: members[0].len() as u64,
                length: kept as u64,
            };
            assert_eq!(seen[1].extent, extent);
        }
    }
}

#[test]
fn a_truncated_last_record_is_given_as_far_as_it_goes() {
    let members = three_members();
    let whole = members.concat();
    let file = &whole[..whole.len() - 20];
    let (seen, damages) = read(file);
    assert_eq!(uris(&seen), [uri(1), uri(2), uri(3)]);
    assert!(seen[2].damaged);
    assert!(http(3).starts_with(&seen[2].block));
    let offset = (members[0].len() + members[1].len()) as u64;
    assert_eq!(
        seen[2].extent,
        Extent::Own {
            offset,
            length: file.len() as u64 - offset
        }
    );
    assert!(
        matches!(
            reasons(&damages)[..],
            [DamageReason::TruncatedMember { .. }]
        ),
        "{damages:?}"
    );

    let plain = [response(1), response(2)].concat();
    let (seen, damages) = read(&plain[..plain.len() - 50]);
    assert_eq!(seen.len(), 2);
    let (declared, found) = (http(2).len() as u64, http(2).len() as u64 - 46);
    assert_eq!(
        reasons(&damages),
        [&DamageReason::ShortBlock { declared, found }]
    );
}

#[test]
fn a_file_cut_anywhere_gives_the_records_before_the_cut() {
    let clean: Vec<u8> = [response(1), response(2)].concat();
    let second = response(1).len();
    for packed in [false, true] {
        let file = if packed {
            [gzip(&response(1)), gzip(&response(2))].concat()
        } else {
            clean.clone()
        };
        let second = if packed {
            gzip(&response(1)).len()
        } else {
            second
        };
        for end in 0..file.len() {
            let (seen, _) = read(&file[..end]);
            if end >= second {
                assert_eq!(seen[0].block, http(1), "cut at {end}");
            }
            assert!(seen.len() <= 2);
        }
    }
}

#[test]
fn garbage_between_members() {
    let members = three_members();
    for garbage in [
        &b"garbage"[..],
        &[0; 5000],
        &[0x1F, 0x8B, 0x08, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9],
        &common::noise(700_000, 3),
    ] {
        let file = [&members[0][..], garbage, &members[1], &members[2], garbage].concat();
        let (seen, damages) = read(&file[..]);
        assert_eq!(uris(&seen), [uri(1), uri(2), uri(3)]);
        let offset = (members[0].len() + garbage.len()) as u64;
        assert_eq!(
            seen[1].extent,
            Extent::Own {
                offset,
                length: members[1].len() as u64
            }
        );
        assert_eq!(damages.len(), 2, "{damages:?}");
        assert_eq!(
            (damages[0].record, damages[0].offset),
            (2, members[0].len() as u64)
        );
        assert_eq!(damages[1].record, 4);
    }
}

#[test]
fn garbage_before_the_first_member() {
    let file = [&b"some mail header\n\n"[..], &three_members().concat()].concat();
    let (seen, damages) = read(&file[..]);
    assert_eq!(uris(&seen), [uri(1), uri(2), uri(3)]);
    assert!(matches!(
        reasons(&damages)[..],
        [DamageReason::Garbage { bytes: 18, .. }]
    ));
}

#[test]
fn garbage_between_plain_records() {
    for garbage in [
        "garbage",
        "WARC",
        "WARC/x\r\n",
        "many\r\nlines\r\n\r\nof it\r\n",
    ] {
        let file = [&response(1)[..], garbage.as_bytes(), b"\r\n", &response(2)].concat();
        let (seen, damages) = read(&file[..]);
        assert_eq!(uris(&seen), [uri(1), uri(2)], "{garbage:?}");
        assert_eq!(damages.len(), 1);
        assert_eq!(
            (damages[0].record, damages[0].offset),
            (2, response(1).len() as u64)
        );
    }
    let file = [&arc_head()[..], b"garbage\nand more\n", &arc(1), &arc(2)].concat();
    assert_eq!(uris(&read(&file[..]).0), ["", &uri(1), &uri(2)]);
}

#[test]
fn files_that_hold_no_record() {
    for file in [
        &[0u8; 600_000][..],
        b"This is not an archive.\n",
        &common::noise(600_000, 1),
        &gzip(b"no record"),
        &gzip(&[0; 100_000]),
    ] {
        let (seen, damages) = read(file);
        assert_eq!(seen, []);
        assert!(
            matches!(reasons(&damages)[..], [DamageReason::Garbage { .. }]),
            "{damages:?}"
        );
    }
}

#[test]
fn a_length_that_is_too_small_or_too_large() {
    let block = http(1);
    let small = warc_claiming(
        "response",
        &uri(1),
        &block,
        &(block.len() - 100).to_string(),
    );
    let large = warc_claiming(
        "response",
        &uri(1),
        &block,
        &(block.len() + 100).to_string(),
    );

    // One record a member: the member bounds the record.
    let file = [gzip(&response(0)), gzip(&small), gzip(&response(2))].concat();
    let (seen, damages) = read(&file[..]);
    assert_eq!(uris(&seen), [uri(0), uri(1), uri(2)]);
    assert_eq!(seen[1].block, block[..block.len() - 100]);
    assert!(
        matches!(
            reasons(&damages)[..],
            [DamageReason::TrailingBytes { bytes: 104, .. }]
        ),
        "{damages:?}"
    );
    let offset = gzip(&response(0)).len() as u64;
    assert_eq!(
        seen[1].extent,
        Extent::Own {
            offset,
            length: gzip(&small).len() as u64
        }
    );

    let file = [gzip(&response(0)), gzip(&large), gzip(&response(2))].concat();
    let (seen, damages) = read(&file[..]);
    assert_eq!(uris(&seen), [uri(0), uri(1), uri(2)]);
    // What stands behind the block counts to it, as it does for warcio.
    assert_eq!(seen[1].block.len(), block.len() + 4);
    assert!(matches!(
        reasons(&damages)[..],
        [DamageReason::ShortBlock { .. }]
    ));

    // Uncompressed, the next record bounds it.
    for wrong in [&small, &large] {
        let file = [&response(0)[..], wrong, &response(2), &response(3)].concat();
        let (seen, damages) = read(&file[..]);
        assert_eq!(uris(&seen), [uri(0), uri(1), uri(2), uri(3)]);
        assert_eq!(damages.len(), 1, "{damages:?}");
        assert_eq!(seen[2].block, http(2));
    }
    let (seen, _) = read(&[&response(0)[..], &large, &response(2)].concat()[..]);
    assert_eq!(seen[1].block, block, "the true length is found");
}

#[test]
fn lengths_that_are_none() {
    for (length, reason) in [
        ("-5", "-5"),
        ("12x", "12x"),
        ("", ""),
        ("99999999999999999999", "99999999999999999999"),
    ] {
        let bad = warc_claiming("response", &uri(1), b"", length);
        let file = [gzip(&response(0)), gzip(&bad), gzip(&response(2))].concat();
        let (seen, damages) = read(&file[..]);
        assert_eq!(uris(&seen), [uri(0), uri(1), uri(2)]);
        assert!(seen[1].damaged);
        assert!(
            matches!(reasons(&damages)[..], [DamageReason::BadContentLength { found }] if found.as_bytes() == reason.as_bytes()),
            "{damages:?}"
        );
    }
    let bad = String::from_utf8(response(1))
        .unwrap()
        .replace("Content-Length", "X-Length")
        .into_bytes();
    let (seen, damages) = read(&[gzip(&bad), gzip(&response(2))].concat()[..]);
    assert_eq!(uris(&seen), [uri(1), uri(2)]);
    assert_eq!(
        seen[0].block,
        [&http(1)[..], b"\r\n\r\n"].concat(),
        "the member is the block"
    );
    assert_eq!(reasons(&damages), [&DamageReason::NoContentLength]);
    let (seen, _) = read(&[bad, response(2)].concat()[..]);
    assert_eq!(
        uris(&seen),
        [uri(1), uri(2)],
        "uncompressed, the next record is looked for"
    );
}

#[test]
fn headers_beyond_the_limits() {
    let many = format!("WARC/1.0\r\n{}\r\n", "X: y\r\n".repeat(10_000));
    let long = format!("WARC/1.0\r\nX: {}\r\n\r\n", "y".repeat(3 << 20));
    for (header, reason) in [
        (&many, DamageReason::HeaderLines { limit: 1_000 }),
        (&long, DamageReason::HeaderBytes { limit: 256 << 10 }),
    ] {
        let bad = header.as_bytes();
        let file = [gzip(&response(1)), gzip(bad), gzip(&response(2))].concat();
        let (seen, damages) = read(&file[..]);
        assert_eq!(uris(&seen), [uri(1), uri(2)]);
        assert_eq!(reasons(&damages), [&reason]);
        let file = [&response(1)[..], bad, &response(2)].concat();
        let (seen, damages) = read(&file[..]);
        assert_eq!(uris(&seen), [uri(1), uri(2)]);
        assert_eq!(reasons(&damages), [&reason]);
        assert_eq!(
            (damages[0].record, damages[0].offset),
            (2, response(1).len() as u64)
        );
    }
}

#[test]
fn a_header_cut_short() {
    let bad = b"WARC/1.0\r\nWARC-Type: response\r\nContent-Le";
    let (seen, damages) = read(&[gzip(&response(1)), gzip(bad), gzip(&response(2))].concat()[..]);
    assert_eq!(uris(&seen), [uri(1), uri(2)]);
    assert_eq!(reasons(&damages), [&DamageReason::TruncatedHeader]);
    let (seen, damages) = read(&[&response(1)[..], bad].concat()[..]);
    assert_eq!(uris(&seen), [uri(1)]);
    assert_eq!(reasons(&damages), [&DamageReason::TruncatedHeader]);
}

#[test]
fn a_header_broken_off_by_another_record() {
    let bad = b"WARC/1.0\r\nWARC-Type: response\r\n";
    for pack in [<[u8]>::to_vec, gzip] {
        let file = [pack(&response(1)), pack(&[&bad[..], &response(2)].concat())].concat();
        let (seen, damages) = read(&[&file[..], &pack(&response(3))].concat()[..]);
        assert_eq!(uris(&seen), [uri(1), uri(2), uri(3)]);
        assert_eq!(reasons(&damages), [&DamageReason::BrokenHeader]);
    }
}

#[test]
fn first_lines_without_end_are_read_once_each() {
    // Were each the start of a header of a thousand lines, this would take a thousand times as long.
    let (seen, damages) = read(&b"WARC/1.0\r\n".repeat(100_000)[..]);
    assert!(seen.is_empty());
    let broken = |damage: &RecordDamage| damage.reason == DamageReason::BrokenHeader;
    assert!(damages.len() == 1_000 && damages.iter().all(broken));
}

#[test]
fn a_bomb_is_given_up_and_its_neighbours_are_read() {
    let limits = ReaderLimits {
        member_bytes: 1 << 20,
        bomb_bytes: 4 << 20,
        ..ReaderLimits::default()
    };
    let bomb = warc("resource", "urn:bomb", &vec![0; 12 << 20]);
    let frames = |bytes: &[u8]| zstd::stream::encode_all(bytes, 3).unwrap();
    for pack in [gzip, frames] {
        let parts = [response(1), bomb.clone(), response(2)].map(|part| pack(&part));
        let at = parts[0].len() as u64;
        let (seen, damages) = read_within(&parts.concat()[..], limits);
        assert_eq!(uris(&seen), [&uri(1), "urn:bomb", &uri(2)]);
        let found: Vec<_> = damages
            .iter()
            .filter(|damage| matches!(damage.reason, DamageReason::Bomb { limit: 4194304, .. }))
            .map(|damage| (damage.record, damage.offset))
            .collect();
        assert_eq!(found, [(2, at)]);
    }
    // What does not deflate so well may be as large as it is.
    let large = warc("resource", "urn:large", &common::noise(6 << 20, 5));
    let (seen, damages) = read_within(&gzip(&large)[..], limits);
    assert_eq!((uris(&seen), damages), (vec!["urn:large"], vec![]));
}

#[test]
fn damaged_members_larger_than_memory() {
    let limits = ReaderLimits {
        member_bytes: 1 << 20,
        ..ReaderLimits::default()
    };
    let large = gzip(&warc("resource", "urn:large", &common::noise(4 << 20, 5)));
    let clean = [gzip(&response(1)), large.clone(), gzip(&response(2))].concat();
    let first = gzip(&response(1)).len();
    for at in [
        first + 20_000,
        first + large.len() / 2,
        first + large.len() - 6,
    ] {
        let mut file = clean.clone();
        for byte in &mut file[at..at + 4] {
            *byte ^= 0xFF;
        }
        let (seen, damages) = read_within(&file[..], limits);
        assert_eq!(uris(&seen), [uri(1), "urn:large".to_owned(), uri(2)]);
        assert!(!damages.is_empty());
        assert_eq!(
            seen[2].extent,
            Extent::Own {
                offset: (first + large.len()) as u64,
                length: gzip(&response(2)).len() as u64
            }
        );
    }
}

#[test]
fn a_large_good_member_that_holds_members_is_not_cut() {
    // Stored data: the members inside stand in the file as they are.
    let limits = ReaderLimits {
        member_bytes: 1 << 20,
        ..ReaderLimits::default()
    };
    let inner = [
        common::noise(1 << 20, 11),
        three_members().concat(),
        common::noise(2 << 20, 12),
    ]
    .concat();
    let outer = gzip(&warc("resource", "urn:outer", &inner));
    let (seen, damages) = read_within(&[outer, gzip(&response(9))].concat()[..], limits);
    assert_eq!(uris(&seen), ["urn:outer".to_owned(), uri(9)]);
    assert!(seen[0].block == inner);
    assert_eq!(damages, []);
}

#[test]
fn zstd_frames_damaged_and_cut() {
    let frames: Vec<_> = (1..=3)
        .map(|number| common::zstd(&response(number)))
        .collect();
    let start = frames[0].len();
    for at in start..start + frames[1].len() {
        let mut file = frames.concat();
        file[at] ^= 0x55;
        let (seen, _) = read(&file[..]);
        assert_eq!(uris(&seen).first(), Some(&&*uri(1)), "byte {at}");
        assert_eq!(uris(&seen).last(), Some(&&*uri(3)), "byte {at}");
        assert_eq!(seen.last().unwrap().block, http(3));
    }
    for kept in 1..frames[1].len() {
        let file = [&frames[0][..], &frames[1][..kept], &frames[2]].concat();
        let (seen, damages) = read(&file[..]);
        assert_eq!(seen.last().unwrap().block, http(3), "{kept} bytes kept");
        assert!(!damages.is_empty());
    }
    let whole = frames.concat();
    let (seen, damages) = read(&whole[..whole.len() - 3]);
    assert!(seen.len() >= 2);
    assert!(!damages.is_empty());
}

#[test]
fn more_damage_than_is_kept_is_counted() {
    let limits = ReaderLimits {
        damages: 3,
        ..ReaderLimits::default()
    };
    let file: Vec<u8> = (0..10)
        .flat_map(|number| [&gzip(&response(number))[..], b"garbage"].concat())
        .collect();
    let mut reader = WarcReader::new(&file[..], limits);
    let mut records = 0;
    while reader.next().unwrap().is_some() {
        records += 1;
    }
    assert_eq!(
        (records, reader.damages().len(), reader.damage_count()),
        (10, 3, 10)
    );
}

#[test]
fn a_failing_source_is_an_error_and_no_damage() {
    struct Failing(bool);
    impl std::io::Read for Failing {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            if std::mem::replace(&mut self.0, true) {
                return Err(std::io::Error::other("disk on fire"));
            }
            let record = response(1);
            out[..record.len() / 2].copy_from_slice(&record[..record.len() / 2]);
            Ok(record.len() / 2)
        }
    }
    let mut reader = WarcReader::new(Failing(false), ReaderLimits::default());
    assert!(reader.next().is_err());
    assert_eq!(reader.damages(), []);
}

#[test]
fn a_damaged_trailer_whose_record_stands_again_later_costs_one_record() {
    let members: Vec<Vec<u8>> = (1..=40).map(|number| gzip(&response(number))).collect();
    let once = members.concat();
    let second = members[0].len() + members[1].len();
    let mut file = [&once[..], &once].concat();
    file[second - 6] ^= 1;
    let (seen, damages) = read(&file[..]);
    assert_eq!(seen.len(), 80);
    assert!(seen[1].damaged);
    assert!(
        matches!(reasons(&damages)[..], [DamageReason::Checksum { .. }]),
        "{damages:?}"
    );
}

#[test]
fn a_length_a_few_bytes_too_long_costs_no_record() {
    // What turning CRLF into LF does to a record whose length stays.
    for over in 0..40 {
        let length = (http(1).len() + over).to_string();
        let long = warc_claiming("response", &uri(1), &http(1), &length);
        let file = [long, response(2), response(3)].concat();
        let (seen, damages) = read(&file[..]);
        assert_eq!(uris(&seen), [uri(1), uri(2), uri(3)], "{over} too long");
        assert_eq!(seen[1].block, http(2), "{over} too long");
        assert_eq!(damages.is_empty(), over <= 4, "{over} too long");
    }
}

#[test]
fn a_length_beyond_memory_is_believed_only_if_a_record_follows() {
    let limits = ReaderLimits {
        member_bytes: 600_000,
        ..ReaderLimits::default()
    };
    let big = vec![b'x'; 700_000];
    let inner: Vec<u8> = (2..=3000).flat_map(response).collect();
    for (claimed, records) in [
        (big.len(), 3001),
        // Into the next record, over many, and beyond the end of the file.
        (big.len() + 7, 3001),
        (big.len() + 1_000_000, 3001),
        (90_000_000, 3001),
    ] {
        let first = warc_claiming("resource", &uri(1), &big, &claimed.to_string());
        let file = [&first[..], &inner, &response(3001)].concat();
        let mut reader = WarcReader::seekable(std::io::Cursor::new(&file), limits);
        let (mut count, mut bytes) = (0, 0);
        while let Some(mut record) = reader.next().unwrap() {
            count += 1;
            let mut block = Vec::new();
            std::io::Read::read_to_end(&mut record, &mut block).unwrap();
            if count == 1 {
                bytes = block.len();
            }
        }
        assert_eq!((count, bytes), (records, big.len()), "{claimed} claimed");
    }
    // A record that really holds others stays whole.
    let file = [warc("resource", &uri(1), &inner), response(2)].concat();
    let mut reader = WarcReader::seekable(std::io::Cursor::new(&file), limits);
    let mut count = 0;
    while reader.next().unwrap().is_some() {
        count += 1;
    }
    assert_eq!((count, reader.damage_count()), (2, 0));
}

#[test]
fn formats_and_packings_may_change_within_a_file() {
    let (plain, packed) = (response(1), gzip(&response(2)));
    for (file, expected) in [
        ([&plain[..], &packed, &response(3)].concat(), [1, 2, 3]),
        (
            [&packed[..], &plain, &gzip(&response(3))].concat(),
            [2, 1, 3],
        ),
        (
            [&plain[..], &arc_head(), &arc(4), &response(3)].concat(),
            [1, 4, 3],
        ),
        (
            [&arc_head(), &arc(4), &plain[..], &arc(5)].concat(),
            [4, 1, 5],
        ),
    ] {
        let (seen, damages) = read(&file[..]);
        let found: Vec<&str> = uris(&seen)
            .into_iter()
            .filter(|uri| uri.starts_with("http"))
            .collect();
        assert_eq!(found, expected.map(uri), "{damages:?}");
        assert_eq!(damages, []);
    }
}

#[test]
fn an_arc_head_that_is_too_long_takes_no_letter_of_the_next_url() {
    let version = "1 0 InternetArchive\nURL IP-address Archive-date Content-type Archive-length\n";
    for over in 1..5 {
        let length = version.len() + over;
        let head =
            format!("filedesc://a.arc 0.0.0.0 20010203040506 text/plain {length}\n{version}");
        let file = [head.as_bytes(), &arc(1), &arc(2)].concat();
        let (seen, damages) = read(&file[..]);
        assert_eq!(uris(&seen)[1..], [uri(1), uri(2)], "{over} too long");
        assert!(!damages.is_empty(), "{over} too long");
    }
}
