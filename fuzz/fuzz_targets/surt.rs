//! libFuzzer's way to the target `surt`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ecluse_fuzz::surt::run(bytes));
