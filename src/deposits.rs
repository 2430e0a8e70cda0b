//! `ecluse deposits`: what was handed over to the preservation repository, and what waits.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use ecluse_manifest::{DepositFile, DepositState};
use ecluse_stage::Exit;
use ecluse_telemetry::printable;
use jiff::Timestamp;
use serde::Serialize;

use crate::cli::{DepositsOptions, TableFormat};
use crate::context::{DriverContext, Trouble};
use crate::show;

/// What was handed over of one harvest from one channel.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
struct DepositSums {
    harvest: String,
    channel: String,
    jobs: u64,
    packages: u64,
    files: u64,
    bytes: u64,
    /// Sent, and without a receipt.
    awaited: u64,
    receipted: u64,
    receipted_bytes: u64,
    identifiers: u64,
    /// When a file was sent again.
    sent_again: u64,
    first_sent: Option<String>,
    last_receipt: Option<String>,
    /// From the sending to the receipt, in seconds: of half of the files, and of all but a twentieth.
    median_seconds: Option<u64>,
    p95_seconds: Option<u64>,
    #[serde(skip)]
    names: (BTreeSet<String>, BTreeSet<String>),
    #[serde(skip)]
    waits: Vec<u64>,
}

pub(crate) fn deposits(
    context: &DriverContext,
    options: &DepositsOptions,
) -> Result<ExitCode, Trouble> {
    let manifest = crate::verify::open_to_read(context)?;
    let (done, left) = manifest.handed_over_count()?;
    if options.files {
        let mut files = Vec::new();
        manifest.each_deposit(&mut |file| files.push(file))?;
        return tell_files(context, options, &files);
    }
    let mut sums: BTreeMap<(String, String), DepositSums> = BTreeMap::new();
    manifest.each_deposit(&mut |file| {
        let key = (file.key.harvest.clone(), file.channel.clone());
        sums.entry(key).or_default().count(&file);
    })?;
    let sums: Vec<DepositSums> = sums.into_values().map(DepositSums::finish).collect();
    if options.format == Some(TableFormat::Csv) {
        return table(context, &sums);
    }
    let awaited = manifest.awaited_receipts()?;
    if context.json {
        context.print_json(serde_json::json!({
            "handed-over": done, "not-handed-over": left, "awaited": awaited, "harvests": sums,
        }))?;
        return Ok(Exit::Done.into());
    }
    context.say(&format!(
        "{} handed over whole, {left} not yet",
        show::count(done, "package", "packages")
    ))?;
    if let Some(since) = &awaited.since {
        context.say(&awaited_line(awaited.files, since))?;
    }
    for sum in &sums {
        context.say(&sum.line())?;
    }
    Ok(Exit::Done.into())
}

/// Says what waits for a receipt, and since when.
pub(crate) fn awaited_line(files: u64, since: &str) -> String {
    let files = show::count(
        files,
        "file that was sent waits",
        "files that were sent wait",
    );
    format!(
        "{files} for a receipt, the first since {}",
        show::local(since)
    )
}

impl DepositSums {
    fn count(&mut self, file: &DepositFile) {
        self.harvest.clone_from(&file.key.harvest);
        self.channel.clone_from(&file.channel);
        self.names.0.insert(file.key.job.clone());
        self.names.1.insert(file.package.clone());
        self.files += 1;
        self.bytes += file.bytes;
        self.identifiers += u64::from(file.identifier.is_some());
        self.sent_again += u64::from(file.tries > 1);
        match file.state {
            DepositState::Built => {}
            DepositState::Sent => self.awaited += 1,
            DepositState::Receipted => {
                self.receipted += 1;
                self.receipted_bytes += file.bytes;
            }
        }
        self.first_sent = match (self.first_sent.take(), file.sent.clone()) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        self.last_receipt = self.last_receipt.clone().max(file.receipted.clone());
        let time = |text: &Option<String>| text.as_ref()?.parse::<Timestamp>().ok();
        if let (Some(sent), Some(receipted)) = (time(&file.sent), time(&file.receipted)) {
            let seconds = receipted.duration_since(sent).as_secs();
            self.waits.push(u64::try_from(seconds).unwrap_or(0));
        }
    }

    fn finish(mut self) -> Self {
        self.jobs = self.names.0.len() as u64;
        self.packages = self.names.1.len() as u64;
        self.waits.sort_unstable();
        let at = |share: usize| {
            self.waits
                .get(self.waits.len().saturating_sub(1) * share / 100)
        };
        let (median, p95) = (at(50).copied(), at(95).copied());
        (self.median_seconds, self.p95_seconds) = (median, p95);
        self
    }

    fn line(&self) -> String {
        let harvest = match self.harvest.as_str() {
            "" => "no harvest",
            harvest => harvest,
        };
        let mut line = format!(
            "  {harvest} ({}): {}, {} of {} with a receipt ({} of {}), {}",
            self.channel,
            show::count(self.packages, "package", "packages"),
            self.receipted,
            show::count(self.files, "file", "files"),
            show::bytes(self.receipted_bytes),
            show::bytes(self.bytes),
            show::count(self.identifiers, "identifier", "identifiers"),
        );
        if self.awaited > 0 {
            line.push_str(&format!("; {} awaited", self.awaited));
        }
        if let (Some(median), Some(p95)) = (self.median_seconds, self.p95_seconds) {
            let (median, p95) = (show::age(median), show::age(p95));
            line.push_str(&format!("; receipts after {median}, 95 % within {p95}"));
        }
        if let Some(last) = &self.last_receipt {
            line.push_str(&format!("; the last {}", show::local(last)));
        }
        line
    }
}

fn tell_files(
    context: &DriverContext,
    options: &DepositsOptions,
    files: &[DepositFile],
) -> Result<ExitCode, Trouble> {
    if options.format == Some(TableFormat::Csv) {
        return table(context, files);
    }
    if context.json {
        context.print_json(serde_json::json!({ "files": files }))?;
        return Ok(Exit::Done.into());
    }
    for file in files {
        let when = file.receipted.as_ref().or(file.sent.as_ref());
        let mut line = format!(
            "{}  {:<9}  {}",
            file.package,
            file.state.word(),
            file.key.file
        );
        if let Some(identifier) = &file.identifier {
            line.push_str(&format!("  {identifier}"));
        }
        if let Some(when) = when {
            line.push_str(&format!("  {}", show::local(when)));
        }
        if let (Some(said), false) = (&file.said, file.state == DepositState::Receipted) {
            line.push_str(&format!("  {said}"));
        }
        context.say(&line)?;
    }
    Ok(Exit::Done.into())
}

/// Writes rows as comma-separated values with a heading; the columns are the keys of JSON.
fn table<Line: Serialize>(context: &DriverContext, lines: &[Line]) -> Result<ExitCode, Trouble> {
    let mut heading = None;
    for line in lines {
        let value = serde_json::to_value(line).map_err(std::io::Error::from)?;
        let Some(object) = value.as_object() else {
            continue;
        };
        if heading.is_none() {
            let names: Vec<String> = object.keys().map(|key| key.replace('-', "_")).collect();
            context.print(&format!("{}\n", names.join(",")))?;
            heading = Some(names);
        }
        let cells: Vec<String> = object.values().map(cell).collect();
        context.print(&format!("{}\n", cells.join(",")))?;
    }
    Ok(Exit::Done.into())
}

fn cell(value: &serde_json::Value) -> String {
    let text = match value {
        serde_json::Value::Null => return String::new(),
        serde_json::Value::String(text) => printable(text.as_bytes()).to_string(),
        other => other.to_string(),
    };
    // A program that opens the table must not take a name for a formula.
    let text = match text.starts_with(['=', '+', '-', '@']) {
        true => format!("'{text}"),
        false => text,
    };
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_stays_in_its_place() {
        let of = |text: &str| cell(&serde_json::Value::from(text));
        assert_eq!(of("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(of("=cmd()"), "'=cmd()");
        assert!(!of("a\nb").contains('\n'));
        assert_eq!(cell(&serde_json::Value::Null), "");
    }
}
