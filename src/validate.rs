//! `ecluse validate`: checks packages, whoever made them, on all cores.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use ecluse_bag::ValidateError;
use ecluse_config::Bytes;
use ecluse_ocfl::{OcflReport, RootReport};
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
        let verdict = Verdict::of(package, how, &|bytes| progress.tell(bytes));
        progress.end();
        let verdict = verdict?;
        is_good &= verdict.faults.is_empty();
        match context.json {
            true => shown.push(as_json(package, &verdict)),
            false => tell(context, package, &verdict)?,
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

/// What is said of a package, whatever it is.
struct Verdict {
    /// `bag`, `wacz`, `ocfl object` or `ocfl root`.
    kind: &'static str,
    version: String,
    files: u64,
    bytes: u64,
    faults: Vec<String>,
    warnings: Vec<String>,
}

impl Verdict {
    fn of(
        package: &Path,
        how: ecluse_bag::ValidateOptions,
        going: &(dyn Fn(u64) -> bool + Sync),
    ) -> Result<Self, Trouble> {
        if package.is_file() {
            let report = crate::wacz::validate(package, &going)?;
            return Ok(Self {
                kind: "wacz",
                version: report.version,
                files: report.files,
                bytes: report.bytes,
                faults: report.faults,
                warnings: Vec::new(),
            });
        }
        let stopped = |error: ValidateError| match error {
            ValidateError::Stopped => Trouble::new(Exit::Deferred, error),
            error => Trouble::new(Exit::Machine, error),
        };
        let has = |name: &str| package.join(name).is_file();
        // One that lost its declaration is still meant to be an object.
        if ecluse_ocfl::is_object(package) || (has("inventory.json") && !has("bagit.txt")) {
            let report = ecluse_ocfl::validate_object(package, how, going).map_err(stopped)?;
            return Ok(Self::of_object(report));
        }
        if ecluse_ocfl::is_root(package) {
            let report = ecluse_ocfl::validate_root(package, how, going).map_err(stopped)?;
            return Ok(Self::of_root(report));
        }
        let report = ecluse_bag::validate(package, how, going).map_err(stopped)?;
        Ok(Self {
            kind: "bag",
            version: report.version,
            files: report.payload_files,
            bytes: report.payload_bytes,
            faults: report.faults.iter().map(ToString::to_string).collect(),
            warnings: report.warnings.iter().map(ToString::to_string).collect(),
        })
    }

    fn of_object(report: OcflReport) -> Self {
        Self {
            kind: "ocfl object",
            version: report.spec,
            files: report.files,
            bytes: report.bytes,
            faults: report.faults.iter().map(ToString::to_string).collect(),
            warnings: report.warnings.iter().map(ToString::to_string).collect(),
        }
    }

    fn of_root(report: RootReport) -> Self {
        let mut verdict = Self {
            kind: "ocfl root",
            version: report.spec,
            files: 0,
            bytes: 0,
            faults: report.faults.iter().map(ToString::to_string).collect(),
            warnings: Vec::new(),
        };
        for (path, object) in report.objects {
            let object = Self::of_object(object);
            let named = |text: String| format!("{}: {text}", path.display());
            verdict.files += object.files;
            verdict.bytes += object.bytes;
            verdict.faults.extend(object.faults.into_iter().map(named));
            verdict
                .warnings
                .extend(object.warnings.into_iter().map(named));
        }
        verdict
    }
}

/// The first line says whether it is valid, and if not, why.
fn tell(context: &DriverContext, package: &Path, verdict: &Verdict) -> Result<(), Trouble> {
    let name = ecluse_telemetry::printable(package.as_os_str().as_encoded_bytes());
    let Some(first) = verdict.faults.first() else {
        let what = match verdict.kind {
            "bag" => "a bag",
            "wacz" => "a WACZ file",
            "ocfl object" => "an OCFL object",
            _ => "an OCFL storage root",
        };
        context.say(&format!(
            "{name}: valid, {} files of {} in {what} of version {}",
            verdict.files,
            Bytes(verdict.bytes),
            verdict.version
        ))?;
        for warning in verdict.warnings.iter().take(TOLD) {
            context.say(&format!("  warning: {warning}"))?;
        }
        return Ok(());
    };
    context.say_to_all(&format!("{name}: not valid: {first}"))?;
    for fault in verdict.faults.iter().skip(1).take(TOLD) {
        context.say_to_all(&format!("  {fault}"))?;
    }
    if let Some(more) = verdict.faults.len().checked_sub(TOLD + 1)
        && more > 0
    {
        context.say_to_all(&format!("  and {more} more"))?;
    }
    Ok(())
}

fn as_json(package: &Path, verdict: &Verdict) -> serde_json::Value {
    serde_json::json!({
        "package": package.display().to_string(),
        "kind": verdict.kind,
        "valid": verdict.faults.is_empty(),
        "version": verdict.version,
        "files": verdict.files,
        "bytes": verdict.bytes,
        "faults": verdict.faults,
        "warnings": verdict.warnings,
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
