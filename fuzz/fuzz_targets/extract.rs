//! libFuzzer's way to the target `extract`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ecluse_fuzz::extract::run(bytes));
