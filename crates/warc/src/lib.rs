//! Reads WARC and ARC files as the web archives hold them, and writes WARC 1.1.
