//! Chores of the workspace that are not tests of one crate.

fn main() {}
