//! libFuzzer's way to the target `config`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ecluse_fuzz::config::run(bytes));
