//! libFuzzer's way to the target `order`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ecluse_fuzz::order::run(bytes));
