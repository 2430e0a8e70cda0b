//! Any bytes are a sheet of receipts; one that can be read is written and read as the same.

#![no_main]

use ecluse_spool::{Manifest, parse_sheet};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for filed in parse_sheet(bytes) {
        let line = filed.receipt.to_line();
        let again = parse_sheet(&line);
        assert_eq!(again.len(), 1);
        assert_eq!(again[0].receipt.to_line(), line);
    }
    if let Ok(manifest) = serde_json::from_slice::<Manifest>(bytes) {
        let written = manifest.to_bytes();
        let again: Manifest =
            serde_json::from_slice(&written).expect("what was written can be read");
        assert_eq!(again, manifest);
    }
});
