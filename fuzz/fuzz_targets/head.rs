//! libFuzzer's way to the target `head`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ecluse_fuzz::head::run(bytes));
