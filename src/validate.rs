//! `ecluse validate`: checks packages, whoever made them, on all cores.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use ecluse_bag::{BagReport, ValidateError};
use ecluse_config::Bytes;
use ecluse_stage::Exit;

use crate::cli::ValidateOptions;
use crate::context::{DriverContext, Trouble};

/// So many faults of a package are told; all are counted.
const TOLD: usize = 20;

pub(crate) fn validate(
    context: &DriverContext,
    options: &ValidateOptions,
) -> Result<ExitCode, Trouble> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let how = ecluse_bag::ValidateOptions {
        is_strict: options.strict,
        threads,
    };
    let mut is_good = true;
    let mut shown = Vec::new();
    for package in &options.packages {
        let progress = Progress::begin(context, package);
        let report = ecluse_bag::validate(package, how, &|bytes| progress.tell(bytes));
        progress.end();
        let report = report.map_err(|error| match error {
            ValidateError::Stopped => Trouble::new(Exit::Deferred, error),
            error => Trouble::new(Exit::Machine, error),
        })?;
        is_good &= report.is_valid();
        match context.json {
            true => shown.push(as_json(package, &report)),
            false => tell(context, package, &report)?,
        }
    }
    if context.json {
        context.print_json(serde_json::json!({ "packages": shown }))?;
    }
    Ok(match is_good {
        true => Exit::Done.into(),
        false => Exit::Held.into(),
    })
}

/// The first line says whether it is valid, and if not, why.
fn tell(context: &DriverContext, package: &Path, report: &BagReport) -> Result<(), Trouble> {
    let name = package.display();
    let Some(first) = report.faults.first() else {
        context.say(&format!(
            "{name}: valid, {} files of {} in a bag of version {}",
            report.payload_files,
            Bytes(report.payload_bytes),
            report.version
        ))?;
        for warning in report.warnings.iter().take(TOLD) {
            context.say(&format!("  warning: {warning}"))?;
        }
        return Ok(());
    };
    // What is wrong is said to the quiet too.
    let line = |text: String| {
        let text = ecluse_telemetry::printable(text.as_bytes());
        context.print(&format!("{text}\n"))
    };
    line(format!("{name}: not valid: {first}"))?;
    for fault in report.faults.iter().skip(1).take(TOLD) {
        line(format!("  {fault}"))?;
    }
    if let Some(more) = report.faults.len().checked_sub(TOLD + 1)
        && more > 0
    {
        line(format!("  and {more} more"))?;
    }
    Ok(())
}

fn as_json(package: &Path, report: &BagReport) -> serde_json::Value {
    let texts = |lines: &mut dyn Iterator<Item = String>| -> Vec<String> { lines.collect() };
    serde_json::json!({
        "package": package.display().to_string(),
        "valid": report.is_valid(),
        "version": report.version,
        "files": report.payload_files,
        "bytes": report.payload_bytes,
        "faults": texts(&mut report.faults.iter().map(ToString::to_string)),
        "warnings": texts(&mut report.warnings.iter().map(ToString::to_string)),
    })
}

/// One line that is drawn again, for whoever sits before it.
struct Progress<'a> {
    package: &'a Path,
    /// When it was last drawn; none when nobody watches.
    drawn: Option<Mutex<Instant>>,
}

const DRAW_EVERY: Duration = Duration::from_millis(500);

impl<'a> Progress<'a> {
    fn begin(context: &DriverContext, package: &'a Path) -> Self {
        let is_watched = !context.quiet && !context.json && std::io::stderr().is_terminal();
        Self {
            package,
            drawn: is_watched.then(|| Mutex::new(Instant::now())),
        }
    }

    fn tell(&self, bytes: u64) -> bool {
        if let Some(drawn) = &self.drawn
            && let Ok(mut last) = drawn.try_lock()
            && last.elapsed() >= DRAW_EVERY
        {
            *last = Instant::now();
            let name = self.package.display().to_string();
            let name = ecluse_telemetry::printable(name.as_bytes());
            let _ = write!(std::io::stderr(), "\r\x1b[K{name}: {} read", Bytes(bytes));
        }
        true
    }

    fn end(self) {
        if self.drawn.is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
