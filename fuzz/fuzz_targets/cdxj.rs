//! libFuzzer's way to the target `cdxj`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ecluse_fuzz::cdxj::run(bytes));
