//! The shell every stage runs in.
