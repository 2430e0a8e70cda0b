//! libFuzzer's way to the target `warc`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ecluse_fuzz::warc::run(bytes));
