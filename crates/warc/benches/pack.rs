//! Which back end packs the records of a crawl? Compression is most of what a crawl computes, so the answer decides how
//! many URLs a core can take in.
//!
//! `cargo bench -p ecluse-warc` prints MB a CPU-second and the packed size of web pages for each back end and level, best
//! of several rounds. It should worry us when zlib-rs packs as small as libdeflate in less time.
#![allow(missing_docs)]

use std::hint::black_box;
use std::io::Write;

use rustix::time::{ClockId, clock_gettime};

fn main() {
    let pages: Vec<Vec<u8>> = (0..200).map(page).collect();
    let bytes: usize = pages.iter().map(Vec::len).sum();
    println!("{} pages, {} kB", pages.len(), bytes / 1000);
    println!("| back end | level | MB/CPU-s | packed to |");
    println!("|---|---|---|---|");
    for level in [1, 4, 6, 9] {
        let lvl = libdeflater::CompressionLvl::new(level).expect("a level");
        let mut compressor = libdeflater::Compressor::new(lvl);
        let mut out = Vec::new();
        let row = measure(&pages, |page| {
            out.resize(compressor.gzip_compress_bound(page.len()), 0);
            compressor
                .gzip_compress(page, &mut out)
                .expect("room enough")
        });
        print("libdeflate", level, bytes, row);
    }
    for level in [1, 4, 6, 9] {
        let row = measure(&pages, |page| {
            let compression = flate2::Compression::new(level as u32);
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), compression);
            encoder.write_all(page).expect("memory takes it");
            encoder.finish().expect("memory takes it").len()
        });
        print("flate2 with zlib-rs", level, bytes, row);
    }
}

fn print(name: &str, level: i32, bytes: usize, (seconds, packed): (f64, usize)) {
    let speed = bytes as f64 / 1e6 / seconds;
    let share = 100.0 * packed as f64 / bytes as f64;
    println!("| {name} | {level} | {speed:.0} | {share:.1} % |");
}

/// CPU-seconds for all pages, best of several rounds, and their packed size.
fn measure(pages: &[Vec<u8>], mut pack: impl FnMut(&[u8]) -> usize) -> (f64, usize) {
    let mut best = (f64::INFINITY, 0);
    for _ in 0..7 {
        let start = cpu_seconds();
        let packed = pages.iter().map(|page| pack(black_box(page))).sum();
        let seconds = cpu_seconds() - start;
        if seconds < best.0 {
            best = (seconds, packed);
        }
    }
    best
}

fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// A page of words and markup, 4 to 60 kB, the same for the same number.
fn page(number: u64) -> Vec<u8> {
    let mut dice = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut roll = |below: u64| {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        dice % below
    };
    let size = 4_000 + roll(56_000) as usize;
    let mut text =
        String::from("<!DOCTYPE html><html lang=\"fr\"><head><title>Lock</title></head><body>\n");
    while text.len() < size {
        let class = roll(9);
        text.push_str(&format!("<div class=\"block block-{class}\"><p>"));
        for _ in 0..20 + roll(80) {
            // Few words are frequent and many are rare, as in any language.
            let rank = (roll(4000) * roll(4000)) / 4000;
            let mut word = rank + 27;
            while word > 0 {
                text.push(char::from(b'a' + (word % 26) as u8));
                word /= 26;
            }
            text.push(' ');
        }
        text.push_str(&format!(
            "</p><a href=\"/page/{}.html\">more</a></div>\n",
            roll(10_000)
        ));
    }
    text.into_bytes()
}
