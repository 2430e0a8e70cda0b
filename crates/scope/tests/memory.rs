//! Memory does not grow with the number of seeds. Alone in its file, because it measures the whole process.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use ecluse_scope::{CandidateUrl, Reach, Scope, ScopeOrder, ScopeVerdict, Seed};
use url::Url;

const SEEDS: u32 = 400_000;

fn seed(number: u32) -> Seed {
    let name = number.wrapping_mul(0x9e37_79b9);
    Seed {
        url: Url::parse(&format!("http://a-lock-{name:08x}.example/")).unwrap(),
        tag: String::new(),
        reach: Some(Reach::Host),
    }
}

/// Returns the most memory this process has had, in bytes, where the system tells.
fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024)
}

#[test]
fn seeds_take_no_more_memory_than_the_limit() {
    let mut scope = Scope::compile(&ScopeOrder::default(), &[], 2026).unwrap();
    scope.keep_seeds_in(&std::env::temp_dir());
    let before = peak().expect("this system tells how much memory a process had");
    for number in 0..SEEDS {
        scope.add_seed(&seed(number)).unwrap();
    }
    scope.gather_seeds().unwrap();
    let verdict = |number: u32| {
        let url = seed(number).url;
        let surt = ecluse_surt::Surt::of(url.as_str().as_bytes()).unwrap();
        let candidate = CandidateUrl {
            hops: "L",
            ..CandidateUrl::seed(url.as_str(), surt.as_bytes())
        };
        scope.decide(&candidate).unwrap().verdict
    };
    for number in (0..SEEDS).step_by(1009) {
        assert_eq!(verdict(number), ScopeVerdict::Accept, "{number}");
        assert_eq!(verdict(number + SEEDS), ScopeVerdict::Reject, "{number}");
    }
    let grown = peak().unwrap() - before;
    // In memory they would take 30 MB.
    assert!(grown < 16 << 20, "{grown} bytes for {SEEDS} seeds");
}
