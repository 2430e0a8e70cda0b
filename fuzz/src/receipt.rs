//! Any bytes are a sheet of receipts; one that can be read is written and read as the same.

use ecluse_spool::{ParcelManifest, parse_sheet};

/// Holds what the head of this file says of these bytes.
pub fn run(bytes: &[u8]) {
    for filed in parse_sheet(bytes) {
        let line = filed.receipt.to_line();
        let again = parse_sheet(&line);
        assert_eq!(again.len(), 1);
        assert_eq!(again[0].receipt.to_line(), line);
    }
    if let Ok(manifest) = serde_json::from_slice::<ParcelManifest>(bytes) {
        let written = manifest.to_bytes();
        let again: ParcelManifest =
            serde_json::from_slice(&written).expect("what was written can be read");
        assert_eq!(again, manifest);
    }
}

/// A parcel and lines that are none.
pub fn seeds() -> Vec<Vec<u8>> {
    [
        "{\"id\":\"a\",\"kind\":\"warc\",\"files\":[{\"name\":\"a\",\"bytes\":1,\"sha256\":\"00\"}]}",
        "{}\n{}\n",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into()
}
