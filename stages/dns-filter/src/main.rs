//! `ecluse-dns-filter`; the work is in the library.

use std::process::ExitCode;

use ecluse_dns_filter::DnsFilter;

fn main() -> ExitCode {
    ecluse_stage::main::<DnsFilter>()
}
