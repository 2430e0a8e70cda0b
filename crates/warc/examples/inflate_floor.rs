//! Measures what reading costs beyond inflating: CPU-seconds of bare libdeflate on each member, and of reading all
//! records with their HTTP heads and missing payload digests.
//!
//! `cargo run --release -p ecluse-warc --example inflate_floor -- FILE.warc.gz [ROUNDS]`
//!
//! The figure that would worry us: reading below 0.85 of the bare rate, for an index stage to keep 0.75.

use std::fs::{self, File};
use std::hint::black_box;
use std::path::Path;
use std::{env, io};

use ecluse_warc::{Extent, ReaderLimits, RecordKind, WarcReadError, WarcReader};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = env::args().skip(1);
    let path = arguments
        .next()
        .ok_or("usage: inflate_floor FILE.warc.gz [ROUNDS]")?;
    let path = Path::new(&path);
    let rounds: u32 = arguments.next().map_or(Ok(5), |rounds| rounds.parse())?;
    let members = members(path)?;
    let megabytes = fs::metadata(path)?.len() as f64 / 1e6;
    println!(
        "{}: {megabytes:.1} MB, {} members; best of {rounds}",
        path.display(),
        members.len()
    );

    // The bare rate has the file in memory already; reading has it come from the page cache.
    let bytes = fs::read(path)?;
    let mut out = vec![0; 64 << 20];
    let (mut floor, mut read) = (f64::MAX, f64::MAX);
    for _ in 0..rounds {
        floor = floor.min(cpu_seconds(|| inflate_members(&bytes, &members, &mut out))?);
        read = read.min(cpu_seconds(|| {
            read_records(path).map_err(io::Error::other)
        })?);
    }
    println!("bare inflate {floor:.3} s  {:.0} MB/s", megabytes / floor);
    println!(
        "read records {read:.3} s  {:.0} MB/s  {:.2} of the bare rate",
        megabytes / read,
        floor / read
    );
    Ok(())
}

/// Returns offset and length of each member.
fn members(path: &Path) -> Result<Vec<(usize, usize)>, WarcReadError> {
    let file = File::open(path).map_err(|source| WarcReadError::Io { record: 0, source })?;
    let mut reader = WarcReader::new(file, ReaderLimits::default());
    let mut members = Vec::new();
    while let Some(record) = reader.next()? {
        if let Extent::Own { offset, length } = record.finish()? {
            members.push((
                usize::try_from(offset).unwrap_or(0),
                usize::try_from(length).unwrap_or(0),
            ));
        }
    }
    Ok(members)
}

fn inflate_members(bytes: &[u8], members: &[(usize, usize)], out: &mut [u8]) -> io::Result<u64> {
    let mut inflater = libdeflater::Decompressor::new();
    let mut total = 0;
    for &(offset, length) in members {
        let member = &bytes[offset..offset + length];
        total += inflater
            .gzip_decompress(member, out)
            .map_err(io::Error::other)? as u64;
    }
    Ok(total)
}

fn read_records(path: &Path) -> Result<u64, WarcReadError> {
    let file = File::open(path).map_err(|source| WarcReadError::Io { record: 0, source })?;
    let mut reader = WarcReader::new(file, ReaderLimits::default());
    let mut total = 0;
    while let Some(mut record) = reader.next()? {
        let kind = record.kind();
        if matches!(
            kind,
            RecordKind::Response | RecordKind::Revisit | RecordKind::Resource
        ) {
            black_box(record.target_uri());
            black_box(record.capture_time().ok());
            let head = record.http();
            black_box(head.and_then(|head| head.status()));
            black_box(head.and_then(|head| head.text("Content-Type")));
            if record.field("WARC-Payload-Digest").is_none() && kind != RecordKind::Revisit {
                black_box(record.digest_payload()?);
            }
        }
        if let Extent::Own { length, .. } = record.finish()? {
            total += length;
        }
    }
    Ok(total)
}

/// Returns the CPU-seconds, of user and system, that some work took in this thread's process.
fn cpu_seconds(work: impl FnOnce() -> io::Result<u64>) -> io::Result<f64> {
    let before = cpu_clock()?;
    black_box(work()?);
    Ok(cpu_clock()? - before)
}

/// Reads the run time of this thread in nanoseconds, finer than the clock ticks of `stat`.
fn cpu_clock() -> io::Result<f64> {
    let schedstat = fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds = schedstat
        .split(' ')
        .next()
        .and_then(|number| number.parse::<f64>().ok());
    nanoseconds
        .map(|nanoseconds| nanoseconds / 1e9)
        .ok_or_else(|| io::Error::other("no run time in schedstat"))
}
