//! `ecluse register`: what is known of a domain, the figures of the register, or all of it as CSV.
//!
//! Ends with 0 when there was something to show, and with 1 when the register has no such domain or there is no register.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use ecluse_names::{ForcedDomain, ForcedRules, Normaliser, Registered, key_of};
use ecluse_plan::{Perimeter, PerimeterScore, RecordView};
use ecluse_register::{DomainState, Register, RegisterError, RegisterReader, RegisterRecord};
use ecluse_stage::{Exit, Stage};
use ecluse_telemetry::printable;
use serde_json::{Value, json};

use crate::cli::RegisterOptions;
use crate::context::{DriverContext, Trouble};
use crate::lookup::NONE_FOUND;

pub(crate) fn register(
    context: &DriverContext,
    options: &RegisterOptions,
) -> Result<ExitCode, Trouble> {
    let directory = context.root.join(&context.pipeline.archive.register);
    let register = Register::at(&directory).map_err(unreadable)?;
    let Some(number) = register.current().map_err(unreadable)? else {
        eprintln!("there is no register yet in {}", directory.display());
        return Ok(NONE_FOUND.into());
    };
    match &options.domain {
        Some(domain) => one(context, &register, domain),
        None => {
            let reader = register.read(number).map_err(unreadable)?;
            match options.export {
                Some(_) => export(reader),
                None => statistics(context, number, reader),
            }
        }
    }
}

/// Shows what is known of the site that a name belongs to.
fn one(context: &DriverContext, register: &Register, asked: &str) -> Result<ExitCode, Trouble> {
    let mut normaliser = Normaliser::new();
    let found = normaliser.read(asked.as_bytes()).map_err(|rejection| {
        Trouble::usage(format!("{asked} names no domain: {}", rejection.reason))
    })?;
    let site = Registered::of(found.name).site;
    let Some(record) = register.lookup(site).map_err(unreadable)? else {
        eprintln!("{site} is not in the register");
        return Ok(NONE_FOUND.into());
    };
    let settings = plan_settings(context)?;
    let rules = ForcedRules::read(&context.root.join(&settings.forced)).map_err(bad_setting)?;
    let below = rules.below(&key_of(site));
    let score = score(context, &settings, &record)?;
    if context.json {
        let mut told = as_json(&record);
        told["perimeter"] = json!(score);
        let below = below.iter().map(|(what, rule)| {
            json!({"what": what, "verdict": rule.verdict.word(), "who": rule.who, "when": rule.when, "why": rule.why})
        });
        told["forced-below"] = below.collect();
        println!("{told}");
    } else {
        print!(
            "{}{}{}",
            as_text(&record),
            below_text(&below),
            score.map_or(String::new(), |score| score_text(&score))
        );
    }
    Ok(Exit::Done.into())
}

fn bad_setting(fault: String) -> Trouble {
    Trouble::new(Exit::Config, fault)
}

fn plan_settings(context: &DriverContext) -> Result<ecluse_plan::Settings, Trouble> {
    let settings = context.pipeline.stage_settings(ecluse_plan::Plan::NAME);
    settings.map_err(|error| bad_setting(error.to_string()))
}

/// What librarians say of names and prefixes below a domain. It stands in the file of rules, and not in the record.
fn below_text(below: &[(String, &ForcedDomain)]) -> String {
    let lines = below.iter().map(|(what, rule)| {
        let (verdict, who, when, why) = (rule.verdict.word(), &rule.who, &rule.when, &rule.why);
        let told = format!("{verdict} {what}: {who} on {when}, {why}");
        format!("{:<12} {}\n", "forced below", printable(told.as_bytes()))
    });
    lines.collect()
}

/// Returns what the criteria of the perimeter come to, where there is one.
fn score(
    context: &DriverContext,
    settings: &ecluse_plan::Settings,
    record: &RegisterRecord,
) -> Result<Option<PerimeterScore>, Trouble> {
    if settings.perimeter.threshold == 0 {
        return Ok(None);
    }
    let perimeter = Perimeter::open(&settings.perimeter, &context.root).map_err(bad_setting)?;
    let mut line = Vec::new();
    record
        .write(&mut line)
        .map_err(|fault| Trouble::new(Exit::Machine, fault))?;
    let line = String::from_utf8_lossy(&line);
    Ok(RecordView::read(line.trim_end()).map(|record| perimeter.score(&record)))
}

fn score_text(score: &PerimeterScore) -> String {
    let verdict = if score.is_inside() {
        "inside"
    } else {
        "outside"
    };
    let mut text = format!(
        "perimeter    {verdict}: {} points, {} needed\n",
        score.points, score.threshold
    );
    for criterion in &score.criteria {
        let evidence = printable(criterion.evidence.as_bytes());
        let (name, points, of) = (criterion.criterion, criterion.points, criterion.of);
        text += &format!("  {name:<10} {points:>3} of {of:>3}  {evidence}\n");
    }
    text
}

fn as_json(record: &RegisterRecord) -> Value {
    let sources = record.sources.iter();
    let sources: BTreeMap<&str, String> = sources
        .map(|(name, day)| (name.as_str(), day.to_string()))
        .collect();
    json!({
        "domain": record.domain, "state": record.state.word(), "first": record.first.to_string(),
        "last": record.last.to_string(), "sources": sources,
        "dns": record.dns.as_ref().map(|dns| json!({"class": dns.class, "day": dns.day.to_string()})),
        "forms": record.forms, "more": record.more,
    })
}

fn as_text(record: &RegisterRecord) -> String {
    let sources = record.sources.iter();
    let sources: Vec<String> = sources
        .map(|(name, day)| format!("{name} (last on {day})"))
        .collect();
    let dns = record.dns.as_ref();
    let mut rows = vec![
        ("domain".to_owned(), record.domain.clone()),
        ("state".to_owned(), record.state.word().to_owned()),
        ("first seen".to_owned(), record.first.to_string()),
        ("last seen".to_owned(), record.last.to_string()),
        ("sources".to_owned(), sources.join(", ")),
        (
            "DNS".to_owned(),
            dns.map_or("not asked yet".to_owned(), |dns| {
                format!("{} on {}", dns.class, dns.day)
            }),
        ),
        ("answering".to_owned(), record.forms.join(", ")),
    ];
    for result in record.harvests() {
        let (objects, bytes, stop) = (result.objects, result.bytes, result.stop.word());
        let told = format!(
            "{} on {}: {objects} objects, {bytes} bytes, {stop}, job {}",
            result.harvest, result.day, result.job
        );
        rows.push(("harvested".to_owned(), told));
    }
    let more = record.more.iter().filter(|(key, _)| *key != "harvests");
    rows.extend(more.map(|(key, value)| (key.clone(), value.to_string())));
    let mut text = String::new();
    for (key, value) in rows.iter().filter(|(_, value)| !value.is_empty()) {
        let (key, value) = (printable(key.as_bytes()), printable(value.as_bytes()));
        text += &format!("{key:<12} {value}\n");
    }
    text
}

/// Counts the records by state, source, DNS class and last label.
fn statistics(
    context: &DriverContext,
    number: u64,
    mut reader: RegisterReader,
) -> Result<ExitCode, Trouble> {
    let mut records = 0u64;
    let mut counts: BTreeMap<(&'static str, String), u64> = BTreeMap::new();
    while let Some(record) = next_record(&mut reader)? {
        records += 1;
        let mut count =
            |what, which: &str| *counts.entry((what, which.to_owned())).or_default() += 1;
        count("state", record.state.word());
        record
            .sources
            .keys()
            .for_each(|source| count("source", source));
        count(
            "dns",
            record
                .dns
                .as_ref()
                .map_or("not asked yet", |dns| dns.class.as_str()),
        );
        count(
            "last label",
            record.domain.rsplit('.').next().unwrap_or_default(),
        );
    }
    if context.json {
        let mut told = json!({"generation": number, "domains": records});
        for ((what, which), count) in &counts {
            told[*what][which] = (*count).into();
        }
        println!("{told}");
    } else {
        let mut out = BufWriter::new(io::stdout().lock());
        writeln!(
            out,
            "generation {number}: {records} domains\n{:<12} {:<24} {:>12}",
            "", "", "domains"
        )?;
        for ((what, which), count) in &counts {
            writeln!(
                out,
                "{what:<12} {:<24} {count:>12}",
                printable(which.as_bytes())
            )?;
        }
        out.flush()?;
    }
    Ok(Exit::Done.into())
}

/// Writes every record as CSV, with the keys of `more` as JSON in the last column.
fn export(mut reader: RegisterReader) -> Result<ExitCode, Trouble> {
    let mut out = BufWriter::with_capacity(256 << 10, io::stdout().lock());
    writeln!(
        out,
        "domain,active,first,last,sources,dns,dns-day,forms,more"
    )?;
    while let Some(record) = next_record(&mut reader)? {
        let sources: Vec<String> = record
            .sources
            .iter()
            .map(|(name, day)| format!("{name}={day}"))
            .collect();
        let (class, day) = match &record.dns {
            Some(dns) => (dns.class.clone(), dns.day.to_string()),
            None => Default::default(),
        };
        let columns = [
            record.domain.clone(),
            u8::from(record.state == DomainState::Active).to_string(),
            record.first.to_string(),
            record.last.to_string(),
            sources.join(" "),
            class,
            day,
            record.forms.join(" "),
            Value::Object(record.more).to_string(),
        ];
        let columns: Vec<String> = columns.iter().map(|column| quoted(column)).collect();
        writeln!(out, "{}", columns.join(","))?;
    }
    out.flush()?;
    Ok(Exit::Done.into())
}

fn next_record(reader: &mut RegisterReader) -> Result<Option<RegisterRecord>, Trouble> {
    let line = reader.next_line().map_err(unreadable)?;
    let record = line.map(|line| line.record());
    record
        .transpose()
        .map_err(|fault| Trouble::new(Exit::Machine, format!("a record of the register: {fault}")))
}

/// Quotes a column as RFC 4180 has it, where it must be.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        return format!("\"{}\"", text.replace('"', "\"\""));
    }
    text.to_owned()
}

fn unreadable(error: RegisterError) -> Trouble {
    Trouble::new(Exit::Machine, error)
}
