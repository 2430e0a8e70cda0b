//! libFuzzer's way to the target `robots`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ecluse_fuzz::robots::run(bytes));
