//! `ecluse`, the one command an operator types; the work is in the library.

fn main() {}
