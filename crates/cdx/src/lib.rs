//! CDXJ, CDX and PATH lines: parsing, merging, ZipNum, lookup.
