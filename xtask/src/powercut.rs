//! `cargo xtask powercut`: cuts the power of a loop-mounted file system under running stages, again
//! and again, and lets the checker judge.
//!
//! The cut is FS_IOC_SHUTDOWN without a flush of the log, by way of `xfs_io`: nothing more reaches
//! the device, and mounting again replays the log as after a power loss. What the giver was told
//! has arrived is noted on another file system, where no cut undoes it.

mod disk;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use ecluse_spool::{Engine, Fs, RealFs, WorkTree};

use crate::dice::{Dice, any_seed};
use crate::feed::{Feeder, given_log};
use crate::flags::Flags;
use crate::fleet::{Fleet, Start};
use crate::samples::{Judged, Samples};
use crate::torture::pipeline;
use disk::Disk;

/// What a run does.
struct Plan {
    cuts: u64,
    seed: u64,
    mutant: Option<String>,
    dir: PathBuf,
    keep: bool,
}

/// Reads the command line and runs.
pub(crate) fn main(mut flags: Flags) -> anyhow::Result<bool> {
    let plan = Plan {
        cuts: flags.value("--cuts")?.unwrap_or(50),
        seed: flags.value("--seed")?.unwrap_or_else(any_seed),
        mutant: flags.value("--mutant")?,
        dir: flags
            .value("--dir")?
            .unwrap_or_else(|| PathBuf::from("/dev/shm")),
        keep: flags.switch("--keep"),
    };
    let fs: String = flags.value("--fs")?.unwrap_or_else(|| "both".to_owned());
    flags.end()?;
    let kinds: &[&str] = match fs.as_str() {
        "ext4" => &["ext4"],
        "xfs" => &["xfs"],
        "both" => &["ext4", "xfs"],
        other => bail!("--fs cannot be {other:?}: ext4, xfs or both"),
    };
    disk::check_means(kinds)?;
    let mut fine = true;
    for kind in kinds {
        fine &= run(&plan, kind)?;
    }
    Ok(fine)
}

fn run(plan: &Plan, kind: &str) -> anyhow::Result<bool> {
    let samples = Samples::build()?;
    let dir = plan
        .dir
        .join(format!("ecluse-powercut-{}-{kind}", std::process::id()));
    fs::create_dir(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let judged = cut_and_judge(plan, kind, samples, &dir);
    if plan.keep {
        println!("kept: {}", dir.display());
    } else {
        RealFs.remove_tree(&dir)?;
    }
    let (judged, restless) = judged?;
    println!("{}", judged.findings);
    if let Some(what) = &restless {
        println!("did not come to rest: {what}");
    }
    println!("seed {}", plan.seed);
    let clean = judged.clean && restless.is_none();
    match &plan.mutant {
        Some(mutant) if clean => println!("{mutant}: NOT rejected: {}", judged.last),
        Some(mutant) => println!("{mutant}: rejected: {}", judged.last),
        None => println!("{}", judged.last),
    }
    Ok(clean == plan.mutant.is_none())
}

/// Cuts, lets everything come to rest, and judges. Says as well what did not come to rest.
fn cut_and_judge(
    plan: &Plan,
    kind: &str,
    samples: Samples,
    dir: &Path,
) -> anyhow::Result<(Judged, Option<String>)> {
    let disk = Disk::make(kind, dir)?;
    let (root, away) = (disk.mount_point().join("root"), dir.join("away"));
    fs::create_dir(&root)?;
    fs::create_dir(&away)?;
    fs::write(root.join("pipeline.toml"), pipeline(false))?;
    let mut dice = Dice::new(plan.seed);
    let tree: Arc<dyn Engine> = Arc::new(WorkTree::open(&root.join("work")));
    let mut feeder = Feeder::new(Arc::clone(&tree), &root, &away, Dice::new(dice.next()))?;
    RealFs.sync_all(&root)?;
    // After the disk, so that it is dropped first: nothing runs when the disk is unmounted.
    let mut fleet = Fleet::new(samples, tree, &[&root], &away.join("log"))?;
    for _ in 0..plan.cuts {
        let feeding = Feeding::start(feeder);
        let cut_at = Instant::now() + dice.millis(300, 1500);
        while Instant::now() < cut_at {
            fleet.deaths()?;
            fleet.start_all(&some_die(plan))?;
            std::thread::sleep(Duration::from_millis(5));
        }
        disk.cut()?;
        fleet.kill_all();
        feeder = feeding.end()?;
        disk.mount_again()?;
    }
    let quiet = Start {
        mutant: plan.mutant.clone(),
        ..Start::default()
    };
    let patience = Duration::from_secs(if plan.mutant.is_some() { 15 } else { 120 });
    let restless = fleet.settle(&quiet, patience)?;
    let words = format!("{kind}: {} cuts", plan.cuts);
    let judged = fleet.samples().judge(&root, &given_log(&away), &words)?;
    Ok((judged, restless))
}

/// A reaper's work must survive a cut as well: some processes die while the power is on.
fn some_die(plan: &Plan) -> Start {
    Start {
        failpoints: Some("everywhere=0.001".to_owned()),
        mutant: plan.mutant.clone(),
        host: None,
    }
}

/// Gives files from a thread of its own, so that a cut falls into the middle of a gift.
struct Feeding {
    thread: JoinHandle<Feeder>,
    stop: Arc<AtomicBool>,
}

impl Feeding {
    fn start(mut feeder: Feeder) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::SeqCst) {
                let given = match feeder.crowded() {
                    Ok(true) => {
                        std::thread::sleep(Duration::from_millis(20));
                        Ok(())
                    }
                    Ok(false) => feeder.give_any(),
                    Err(error) => Err(error),
                };
                // The power is off: what was being given was not acknowledged.
                if given.is_err() {
                    break;
                }
            }
            feeder
        });
        Self { thread, stop }
    }

    fn end(self) -> anyhow::Result<Feeder> {
        self.stop.store(true, Ordering::SeqCst);
        let feeder = self.thread.join();
        feeder.map_err(|_| anyhow!("the giver crashed"))
    }
}
