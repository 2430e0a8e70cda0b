//! The client over loopback, against servers that say exactly what a test tells them to.

#![allow(clippy::unwrap_used, reason = "a test that cannot unwrap has failed")]

mod names;
mod plain;
mod records;
mod script;
mod secure;
