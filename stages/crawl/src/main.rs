//! `ecluse-crawl`; the work is in the library.

use std::process::ExitCode;

use ecluse_crawl::Crawl;

fn main() -> ExitCode {
    ecluse_stage::main::<Crawl>()
}
