//! libFuzzer's way to the target `http`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ecluse_fuzz::http::run(bytes));
