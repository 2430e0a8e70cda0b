//! What must hold of any bytes: a module for each target, with inputs to begin from.
//!
//! `cargo xtask fuzz` runs them with any compiler, on inputs made from the seeds; `cargo +nightly fuzz run TARGET` by
//! libFuzzer, which sees what an input reaches.

pub mod cdxj;
pub mod config;
pub mod extract;
pub mod head;
pub mod http;
pub mod order;
pub mod receipt;
pub mod robots;
pub mod store;
pub mod surt;
pub mod warc;

/// One of the targets.
pub struct FuzzTarget {
    /// What it is called.
    pub name: &'static str,
    /// Panics when something does not hold of these bytes.
    pub run: fn(&[u8]),
    /// Inputs to begin from.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All of them.
pub const TARGETS: [FuzzTarget; 11] = [
    FuzzTarget {
        name: "cdxj",
        run: cdxj::run,
        seeds: cdxj::seeds,
    },
    FuzzTarget {
        name: "config",
        run: config::run,
        seeds: config::seeds,
    },
    FuzzTarget {
        name: "extract",
        run: extract::run,
        seeds: extract::seeds,
    },
    FuzzTarget {
        name: "head",
        run: head::run,
        seeds: head::seeds,
    },
    FuzzTarget {
        name: "http",
        run: http::run,
        seeds: http::seeds,
    },
    FuzzTarget {
        name: "order",
        run: order::run,
        seeds: order::seeds,
    },
    FuzzTarget {
        name: "receipt",
        run: receipt::run,
        seeds: receipt::seeds,
    },
    FuzzTarget {
        name: "robots",
        run: robots::run,
        seeds: robots::seeds,
    },
    FuzzTarget {
        name: "store",
        run: store::run,
        seeds: store::seeds,
    },
    FuzzTarget {
        name: "surt",
        run: surt::run,
        seeds: surt::seeds,
    },
    FuzzTarget {
        name: "warc",
        run: warc::run,
        seeds: warc::seeds,
    },
];
