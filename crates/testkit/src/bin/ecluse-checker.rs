//! `ecluse-checker ROOT GIVEN [WORDS…]`: judges from the disk what a torture left behind.
//!
//! Prints up to forty findings and a last line, `WORDS…, N parcels, N lost, N twice, N bad`; exits
//! with 0 when nothing is lost, twice or bad, with 1 when something is, with 64 or 74 when it cannot tell.

use std::path::Path;
use std::process::ExitCode;

use ecluse_testkit::checker::check;

/// More findings than this tell nothing new.
const SHOWN: usize = 40;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [root, given, words @ ..] = arguments.as_slice() else {
        eprintln!("usage: ecluse-checker ROOT GIVEN [WORDS…]");
        return ExitCode::from(64);
    };
    let verdict = match check(Path::new(root), Path::new(given)) {
        Ok(verdict) => verdict,
        Err(error) => {
            eprintln!("cannot check {root}: {error}");
            return ExitCode::from(74);
        }
    };
    for finding in verdict.findings.iter().take(SHOWN) {
        println!("{finding}");
    }
    if verdict.findings.len() > SHOWN {
        println!("and {} more", verdict.findings.len() - SHOWN);
    }
    println!("held with a reason: {}", verdict.held);
    let words: String = words.iter().map(|word| format!("{word}, ")).collect();
    println!("{words}{verdict}");
    ExitCode::from(u8::from(!verdict.is_clean()))
}
