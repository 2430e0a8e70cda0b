//! Places where a process under torture may die.
//!
//! [`after`] stands behind every step of the protocol. In a shipped build it is nothing. With the
//! feature `failpoints` it notes the passage and, as the plan in the environment says, kills the
//! process with SIGKILL or stops it with SIGSTOP, which a signal handler cannot soften.

/// Every failpoint, in the order of the protocol. The torture wants each of them hit.
pub const ALL: &[&str] = &[
    "born-locked",
    "born",
    "claimed",
    "output-created",
    "outputs-sealed",
    "sheet-written",
    "data-durable",
    "committed",
    "receipts-durable",
    "output-handed-over",
    "file-attached",
    "manifest-replaced",
    "history-linked",
    "passed-on",
    "member-filed",
    "consumed",
    "consumed-removed",
    "outbox-removed",
    "sheet-removed",
    "why-written",
    "held",
    "trouble-written",
    "deferred",
    "undeferred",
    "given-back",
    "adopt-taken",
    "adopt-described",
    "adopted",
    "reap-taken",
    "reap-stolen",
    "settle-receipt",
    "settle-requeued",
    "settle-poisoned",
    "settle-adoption-returned",
    "settle-emptied",
    "settle-removed",
];

/// Marks that the step `name` has just happened.
#[inline]
pub fn after(name: &'static str) {
    #[cfg(feature = "failpoints")]
    plan::pass(name);
    #[cfg(not(feature = "failpoints"))]
    let _ = name;
}

/// Tells whether this build runs the known-bad variant `name`.
#[inline]
pub fn mutant(name: &str) -> bool {
    #[cfg(feature = "mutants")]
    return plan::mutant(name);
    #[cfg(not(feature = "mutants"))]
    {
        let _ = name;
        false
    }
}

#[cfg(any(feature = "failpoints", feature = "mutants"))]
mod plan {
    use std::sync::OnceLock;

    #[cfg(feature = "mutants")]
    pub(super) fn mutant(name: &str) -> bool {
        static MUTANT: OnceLock<String> = OnceLock::new();
        MUTANT.get_or_init(|| std::env::var("ECLUSE_MUTANT").unwrap_or_default()) == name
    }

    /// What the environment asks for: `ECLUSE_FAILPOINTS="everywhere=0.01 focus=name:0.5 log=FILE"`.
    #[cfg(feature = "failpoints")]
    struct Plan {
        everywhere: f64,
        focus: Vec<(String, f64)>,
        stop: f64,
        log: Option<std::fs::File>,
    }

    #[cfg(feature = "failpoints")]
    pub(super) fn pass(name: &'static str) {
        use std::io::Write;
        static PLAN: OnceLock<Option<Plan>> = OnceLock::new();
        let Some(plan) = PLAN.get_or_init(Plan::from_environment) else {
            return;
        };
        debug_assert!(super::ALL.contains(&name), "failpoint {name} is not listed");
        let odds = plan
            .focus
            .iter()
            .find(|(focus, _)| focus == name)
            .map_or(plan.everywhere, |(_, odds)| *odds);
        if dice() >= odds {
            return;
        }
        let stop = plan.stop > 0.0 && dice() < plan.stop;
        if let Some(mut log) = plan.log.as_ref() {
            let line = format!("{} {name}\n", if stop { "stop" } else { "kill" });
            let _ = log.write_all(line.as_bytes());
        }
        let signal = if stop {
            rustix::process::Signal::STOP
        } else {
            rustix::process::Signal::KILL
        };
        let _ = rustix::process::kill_process(rustix::process::getpid(), signal);
    }

    #[cfg(feature = "failpoints")]
    impl Plan {
        fn from_environment() -> Option<Self> {
            let text = std::env::var("ECLUSE_FAILPOINTS").ok()?;
            let mut plan = Plan {
                everywhere: 0.0,
                focus: Vec::new(),
                stop: 0.0,
                log: None,
            };
            for word in text.split_whitespace() {
                let (key, value) = word.split_once('=')?;
                match key {
                    "everywhere" => plan.everywhere = value.parse().ok()?,
                    "stop" => plan.stop = value.parse().ok()?,
                    "focus" => {
                        let (name, odds) = value.split_once(':')?;
                        plan.focus.push((name.to_owned(), odds.parse().ok()?));
                    }
                    "log" => {
                        let mut options = std::fs::File::options();
                        plan.log = options.append(true).create(true).open(value).ok();
                    }
                    _ => return None,
                }
            }
            Some(plan)
        }
    }

    #[cfg(feature = "failpoints")]
    fn dice() -> f64 {
        let random = getrandom::u64().unwrap_or(u64::MAX);
        (random >> 11) as f64 / (1u64 << 53) as f64
    }
}
