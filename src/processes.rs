//! `ecluse run --processes`: one process a stage, started again when it dies.

use std::collections::HashMap;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};

use ecluse_stage::{Exit, Intake, RunEnd, StageEntry, deferred_for, say_blocked};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::cli::RunOptions;
use crate::context::{DriverContext, Trouble};

/// The longest wait before a stage that keeps dying is started again.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

struct Keeper {
    entry: StageEntry,
    child: Option<Child>,
    started: Instant,
    start_at: Instant,
    wait: Duration,
}

pub(crate) fn run(
    context: &DriverContext,
    options: &RunOptions,
    entries: &[StageEntry],
) -> Result<ExitCode, Trouble> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    let before = ended(context, entries)?;
    let now = Instant::now();
    let mut keepers: Vec<Keeper> = entries
        .iter()
        .map(|&entry| Keeper {
            entry,
            child: None,
            started: now,
            start_at: now,
            wait: Duration::from_millis(200),
        })
        .collect();
    let mut stopping = false;
    let mut idle = 0;
    let mut worst = None;
    loop {
        for signal in signals.pending().collect::<Vec<i32>>() {
            let passed = if signal == SIGHUP {
                Signal::HUP
            } else {
                Signal::TERM
            };
            stopping |= signal != SIGHUP;
            send(&mut keepers, passed);
        }
        for keeper in &mut keepers {
            if let Some(exit) = keeper.look()? {
                if exit == Exit::Config as i32 {
                    send_all_and_wait(&mut keepers);
                    return Err(Trouble::new(Exit::Config, "a stage refused its settings"));
                }
                if !stopping {
                    eprintln_quietly(&format!("{} ended with code {exit}", keeper.entry.name));
                }
                worst = worst.max((exit == Exit::Machine as i32).then_some(exit));
            }
            if keeper.child.is_none() && !stopping && Instant::now() >= keeper.start_at {
                keeper.start(context, options)?;
            }
        }
        if stopping && keepers.iter().all(|keeper| keeper.child.is_none()) {
            break;
        }
        if options.once && !stopping {
            idle = if all_idle(context, &mut keepers)? {
                idle + 1
            } else {
                0
            };
            if idle >= 3 {
                stopping = true;
                send(&mut keepers, Signal::TERM);
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let after = ended(context, entries)?;
    let ended = since(&before, after, options.once);
    crate::run::tell(context, &ended)?;
    Ok(if worst.is_some() {
        Exit::Machine
    } else {
        ended.exit()
    }
    .into())
}

impl Keeper {
    fn start(&mut self, context: &DriverContext, options: &RunOptions) -> Result<(), Trouble> {
        let mut command = program(&self.entry)?;
        // A Ctrl-C goes to everybody in the group: with the signal passed on from here it would be the second, which ends at once.
        command.process_group(0);
        command.arg("--root").arg(&context.root);
        if let Some(config) = &context.config {
            command.arg("--config").arg(config);
        }
        if let Some(level) = &context.log {
            command.arg("--log").arg(level);
        }
        if let Some(workers) = options.workers {
            command.arg("--workers").arg(workers.to_string());
        }
        self.child = Some(command.spawn().map_err(|e| {
            Trouble::new(
                Exit::Machine,
                format!("cannot start {}: {e}", self.entry.name),
            )
        })?);
        self.started = Instant::now();
        Ok(())
    }

    /// Returns how the process ended, if it has; a process that dies at once is waited for longer.
    fn look(&mut self) -> Result<Option<i32>, Trouble> {
        let Some(child) = &mut self.child else {
            return Ok(None);
        };
        let Some(status) = child.try_wait()? else {
            return Ok(None);
        };
        self.child = None;
        self.wait = if self.started.elapsed() > Duration::from_secs(30) {
            Duration::from_millis(200)
        } else {
            (self.wait * 2).min(LONGEST_WAIT)
        };
        self.start_at = Instant::now() + self.wait;
        Ok(Some(status.code().unwrap_or(-1)))
    }
}

/// The binary beside this one, else this one with the stage as its verb.
fn program(entry: &StageEntry) -> Result<Command, Trouble> {
    let own = std::env::current_exe()?;
    let (stage, machine) = match entry.name.split_once('@') {
        Some((stage, machine)) => (stage, Some(machine)),
        None => (entry.name, None),
    };
    let beside: PathBuf = own.with_file_name(format!("ecluse-{stage}"));
    let mut command = if beside.is_file() {
        Command::new(beside)
    } else {
        let mut command = Command::new(own);
        command.args(["stage", stage]);
        command
    };
    if let Some(machine) = machine {
        command.args(["--instance", machine]);
    }
    Ok(command)
}

fn send(keepers: &mut [Keeper], signal: Signal) {
    for keeper in keepers {
        let pid = keeper
            .child
            .as_ref()
            .and_then(|child| Pid::from_raw(child.id() as i32));
        if let Some(pid) = pid {
            let _ = kill_process(pid, signal);
        }
    }
}

fn send_all_and_wait(keepers: &mut [Keeper]) {
    send(keepers, Signal::TERM);
    for keeper in keepers {
        if let Some(child) = &mut keeper.child {
            let _ = child.wait();
        }
    }
}

/// Tells whether nothing moves; a gathering stage with all still before it is told to take what
/// there is.
fn all_idle(context: &DriverContext, keepers: &mut [Keeper]) -> Result<bool, Trouble> {
    let mut still = true;
    for keeper in keepers {
        let name = keeper.entry.name;
        let depths = context.engine.depths(name)?;
        let next = context.pipeline.next_of(name);
        let next: Vec<String> = next.into_iter().map(str::to_owned).collect();
        let waits = depths.ready + depths.dropped > 0 && context.blocked(name, &next)?.is_none();
        if still && waits && keeper.entry.intake == Intake::Batch {
            send(std::slice::from_mut(keeper), Signal::USR1);
        }
        still &= !waits && depths.working == 0;
    }
    Ok(still)
}

/// Returns what happened between two looks. What a run that was to go on until told to stop has held is no failure of its end.
fn since(before: &RunEnd, after: RunEnd, once: bool) -> RunEnd {
    RunEnd {
        done: after.done.saturating_sub(before.done),
        held: if once {
            after.held.saturating_sub(before.held)
        } else {
            0
        },
        deferred: if once { after.deferred } else { 0 },
        blocked: after.blocked.filter(|_| once),
        ..after
    }
}

/// Counts what the stages hold and have done so far.
fn ended(context: &DriverContext, entries: &[StageEntry]) -> Result<RunEnd, Trouble> {
    let mut sums: HashMap<&str, u64> = HashMap::new();
    let (mut blocked, mut waits_for) = (None, None);
    for entry in entries {
        let next = context.pipeline.next_of(entry.name);
        let next: Vec<String> = next.into_iter().map(str::to_owned).collect();
        if let Some(why) = context.blocked(entry.name, &next)? {
            blocked.get_or_insert(format!("{}: {}", entry.name, say_blocked(&why)));
        }
        let depths = context.engine.depths(entry.name)?;
        *sums.entry("held").or_default() += depths.held as u64;
        *sums.entry("deferred").or_default() += depths.deferred as u64;
        waits_for = waits_for.or_else(|| deferred_for(&*context.engine, entry.name));
        let done = context
            .engine
            .throughput(entry.name, Duration::from_secs(u32::MAX.into()))?;
        *sums.entry("done").or_default() += done.count;
    }
    let sum = |key: &str| sums.get(key).copied().unwrap_or(0);
    Ok(RunEnd {
        done: sum("done"),
        held: sum("held"),
        deferred: sum("deferred"),
        deferred_for: waits_for,
        blocked,
        ..RunEnd::default()
    })
}

fn eprintln_quietly(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "ecluse: {line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_before_is_not_of_this_run() {
        let before = RunEnd {
            done: 100,
            held: 3,
            ..RunEnd::default()
        };
        let after = RunEnd {
            done: 104,
            held: 3,
            ..RunEnd::default()
        };
        let run = since(&before, after.clone(), true);
        assert_eq!((run.done, run.held), (4, 0));
        assert_eq!(run.exit(), Exit::Done);
        let more = RunEnd { held: 5, ..after };
        assert_eq!(since(&before, more.clone(), true).exit(), Exit::Held);
        assert_eq!(since(&before, more, false).exit(), Exit::Done);
    }
}
