//! Who dies where: what the environment asks of this process.

use std::io::Write;
use std::sync::OnceLock;

/// What the environment asks for: `ECLUSE_FAILPOINTS="everywhere=0.01 focus=name:0.5 log=FILE"`.
struct Plan {
    everywhere: f64,
    focus: Vec<(String, f64)>,
    stop: f64,
    log: Option<std::fs::File>,
}

/// Passes a failpoint; its name is asked for where there is a plan.
pub(crate) fn pass(name: impl FnOnce() -> Option<&'static str>) {
    static PLAN: OnceLock<Option<Plan>> = OnceLock::new();
    let Some(plan) = PLAN.get_or_init(Plan::from_environment) else {
        return;
    };
    let Some(name) = name() else {
        return;
    };
    let focus = plan.focus.iter().find(|(focus, _)| focus == name);
    if dice() >= focus.map_or(plan.everywhere, |(_, odds)| *odds) {
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

fn dice() -> f64 {
    let random = getrandom::u64().unwrap_or(u64::MAX);
    (random >> 11) as f64 / (1u64 << 53) as f64
}
