//! How fast is a bag checked, beside bagit-python with two processes?
//!
//! `cargo bench -p ecluse-bag`. Two bags with SHA-512: few large files, where both only hash, and many small ones. Both
//! programs read from memory, in turns, the best of three counts. Less than 1.8 times as fast over both bags would worry us.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a bench stops where it fails"
)]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use ecluse_bag::{InfoField, PayloadEntry, ValidateOptions, validate, write_tags};
use sha2::{Digest, Sha512};

fn main() {
    let mut sums = (Duration::ZERO, Duration::ZERO);
    for (name, files, bytes) in [("large", 8, 32 << 20), ("small", 4000, 4 << 10)] {
        let bag = bag_of(files, bytes);
        let (ours, theirs) = (0..3).fold((Duration::MAX, Duration::MAX), |best, _| {
            (best.0.min(ours(bag.path())), best.1.min(theirs(bag.path())))
        });
        let ratio = theirs.as_secs_f64() / ours.as_secs_f64();
        println!(
            "{name}: {files} files of {bytes} bytes: ours {ours:.2?}, bagit-python {theirs:.2?}: {ratio:.2} x"
        );
        sums = (sums.0 + ours, sums.1 + theirs);
    }
    let ratio = sums.1.as_secs_f64() / sums.0.as_secs_f64();
    println!("both: {ratio:.2} x; at least 1.8 is asked for");
}

fn bag_of(files: usize, bytes: usize) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("data")).unwrap();
    let mut payload = Vec::new();
    let mut text = vec![0_u8; bytes];
    for number in 0..files {
        let mut state = number as u32 + 1;
        for byte in &mut text {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *byte = (state >> 24) as u8;
        }
        let path = format!("data/{number}");
        fs::write(dir.path().join(&path), &text).unwrap();
        let sha512 = Sha512::digest(&text);
        let sha512 = sha512.iter().map(|byte| format!("{byte:02x}")).collect();
        payload.push(PayloadEntry {
            path,
            bytes: bytes as u64,
            sha512,
        });
    }
    let info = [InfoField::new("Contact-Name", "nobody")];
    write_tags(dir.path(), &info, &payload, &[]).unwrap();
    dir
}

fn ours(bag: &Path) -> Duration {
    let begun = Instant::now();
    let options = ValidateOptions {
        is_strict: false,
        threads: 2,
    };
    let report = validate(bag, options, &|_| true).unwrap();
    assert!(report.is_valid(), "{:?}", report.faults);
    begun.elapsed()
}

fn theirs(bag: &Path) -> Duration {
    let begun = Instant::now();
    let mut bagit = Command::new(ecluse_peers::python());
    bagit.args(["-m", "bagit", "--validate", "--quiet", "--processes", "2"]);
    let output = bagit.arg(bag).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    begun.elapsed()
}
