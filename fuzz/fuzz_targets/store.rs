//! libFuzzer's way to the target `store`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ecluse_fuzz::store::run(bytes));
