//! `ecluse serve` over archives made by hand, asked over real connections.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops where it fails, and makes its own mess"
)]

mod access_rules;
mod browser;
mod cdx_api;
mod crowd;
mod delta;
mod health;
mod history;
mod hostile;
mod made;
mod proxy_mode;
mod pywb;
mod replay;
mod time_map;
mod wabac;
