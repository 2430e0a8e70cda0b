//! libFuzzer's way to the target `receipt`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ecluse_fuzz::receipt::run(bytes));
