//! Runs the fuzz targets with any compiler: inputs are made from the seeds by chance that a number repeats.
//!
//! It does not see what an input reaches, as libFuzzer does; it needs nothing installed. The input at hand lies in
//! `target/fuzz/TARGET.last`, so that one that ends the whole process is not lost.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ecluse_fuzz::{FuzzTarget, TARGETS};
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::dice::{Dice, any_seed};
use crate::flags::Flags;

/// No input grows beyond this.
const MOST_BYTES: usize = 64 << 10;
/// Mutated inputs that are kept to go on from.
const POOL: usize = 300;
/// An input that takes longer is a finding.
const SLOW: Duration = Duration::from_secs(20);
/// All of it, however many targets: an input that wants more is a finding.
const MEMORY_BYTES: u64 = 8 << 30;
/// What parsers look for.
const WORDS: [&[u8]; 24] = [
    b"\r\n",
    b"\n",
    b"\r\n\r\n",
    b"\0",
    b"\xff\xff\xff\xff",
    b" ",
    b":",
    b"\"",
    b"'",
    b"\\",
    b"\\u0000",
    b"<",
    b">",
    b"&#x;",
    b"-->",
    b"]]>",
    b"{",
    b"}",
    b"[",
    b"/*",
    b"*/",
    b"-1",
    b"18446744073709551616",
    b"%00",
];

/// How long a target is run.
#[derive(Clone, Copy)]
enum Effort {
    Time(Duration),
    #[cfg(test)]
    Inputs(u64),
}

pub(crate) fn main(mut flags: Flags) -> Result<bool> {
    let seconds: u64 = flags.value("--seconds")?.unwrap_or(10);
    let seed = flags.value("--seed")?.unwrap_or_else(any_seed);
    let input: Option<PathBuf> = flags.value("--input")?;
    let targets = chosen(&flags.rest())?;
    if let Some(path) = input {
        let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
        for target in targets {
            (target.run)(&bytes);
        }
        return Ok(true);
    }
    setrlimit(
        Resource::As,
        Rlimit {
            current: Some(MEMORY_BYTES),
            maximum: Some(MEMORY_BYTES),
        },
    )?;
    println!("{seconds} s each, --seed {seed}");
    let home = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/fuzz");
    fs::create_dir_all(&home)?;
    let waiting = Mutex::new(targets.into_iter());
    let all_held = AtomicBool::new(true);
    let workers = std::thread::available_parallelism()?.get();
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().ok().and_then(|mut targets| targets.next());
                    let Some(target) = next else { return };
                    let effort = Effort::Time(Duration::from_secs(seconds));
                    let outcome = hunt(target, seed, effort, &home);
                    match &outcome {
                        Ok(inputs) => println!("{:8} {inputs} inputs", target.name),
                        Err(fault) => println!("{:8} {fault:#}", target.name),
                    }
                    if outcome.is_err() {
                        all_held.store(false, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    Ok(all_held.into_inner())
}

fn chosen(names: &[String]) -> Result<Vec<&'static FuzzTarget>> {
    if names.is_empty() {
        return Ok(TARGETS.iter().collect());
    }
    let find = |name: &String| {
        let target = TARGETS.iter().find(|target| target.name == name);
        target.with_context(|| format!("there is no target {name}"))
    };
    names.iter().map(find).collect()
}

/// Runs a target on its seeds and on what becomes of them; returns how many inputs it bore.
fn hunt(target: &FuzzTarget, seed: u64, effort: Effort, home: &Path) -> Result<u64> {
    let mut dice = Dice::new(seed);
    let mut pool = (target.seeds)();
    let seeds = pool.len();
    let last = home.join(format!("{}.last", target.name));
    let began = Instant::now();
    let mut inputs = 0;
    loop {
        let is_over = match effort {
            Effort::Time(time) => began.elapsed() >= time,
            #[cfg(test)]
            Effort::Inputs(most) => inputs >= most,
        };
        if is_over && inputs >= seeds as u64 {
            return Ok(inputs);
        }
        let input = match pool.get(inputs as usize) {
            Some(seed) if inputs < seeds as u64 => seed.clone(),
            _ => mutated(&pool, &mut dice),
        };
        fs::write(&last, &input)?;
        let started = Instant::now();
        let held = catch_unwind(AssertUnwindSafe(|| (target.run)(&input))).is_ok();
        let took = started.elapsed();
        inputs += 1;
        if !held || took > SLOW {
            let kept = home.join(format!("{}-{seed}-{inputs}", target.name));
            fs::write(&kept, &input)?;
            let what = if held { "takes long" } else { "does not hold" };
            bail!(
                "{what} after {took:?}: cargo xtask fuzz {} --input {}",
                target.name,
                kept.display()
            );
        }
        if dice.below(50) == 0 {
            if pool.len() < seeds + POOL {
                pool.push(input);
            } else {
                let place = seeds + dice.below(POOL);
                pool[place] = input;
            }
        }
    }
}

/// Makes an input out of one or two others.
fn mutated(pool: &[Vec<u8>], dice: &mut Dice) -> Vec<u8> {
    let mut input = dice.pick(pool).clone();
    for _ in 0..=dice.below(6) {
        let at = dice.below(input.len() + 1);
        let end = at + dice.below((input.len() - at).min(64) + 1);
        match dice.below(8) {
            0 if at < input.len() => input[at] ^= 1 << dice.below(8),
            1 if at < input.len() => {
                input[at] = *dice.pick(&[0, 1, 9, 10, 13, 32, 127, 128, 254, 255]);
            }
            2 => drop(input.drain(at..end)),
            3 => drop(input.splice(at..at, dice.pick(&WORDS).iter().copied())),
            4 => drop(input.splice(at..end, dice.pick(&WORDS).iter().copied())),
            5 => {
                let piece = input[at..end].repeat(1 + dice.below(40));
                drop(input.splice(at..at, piece));
            }
            6 => {
                let other = dice.pick(pool);
                let from = dice.below(other.len() + 1);
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            _ => {
                let noise: Vec<u8> = (0..=dice.below(8)).map(|_| dice.next() as u8).collect();
                drop(input.splice(at..end, noise));
            }
        }
    }
    input.truncate(MOST_BYTES);
    input
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_bears_its_seeds_and_some_of_what_becomes_of_them() {
        let home = tempfile::tempdir().unwrap();
        for target in &TARGETS {
            let inputs = hunt(target, 1, Effort::Inputs(300), home.path()).unwrap();
            assert!(inputs >= 300, "{}", target.name);
        }
    }

    #[test]
    fn what_does_not_hold_is_found_and_kept() {
        fn run(bytes: &[u8]) {
            assert!(!bytes.windows(3).any(|three| three == b"\n\n\n"), "three");
        }
        let target = FuzzTarget {
            name: "planted",
            run,
            seeds: || vec![b"a\nb".to_vec(), b"\n".to_vec()],
        };
        let home = tempfile::tempdir().unwrap();
        let fault = hunt(&target, 7, Effort::Inputs(100_000), home.path()).unwrap_err();
        assert!(fault.to_string().contains("does not hold"), "{fault}");
        let entries = fs::read_dir(home.path()).unwrap().flatten();
        let mut paths = entries.map(|entry| entry.path());
        let kept = paths.find(|path| path.to_string_lossy().contains("planted-7-"));
        let bytes = fs::read(kept.expect("the input is kept")).unwrap();
        assert!(catch_unwind(|| run(&bytes)).is_err());
    }
}
