//! `ecluse find`: where files are, in every state, and those that went through.
//!
//! What is found is printed at once: memory holds the parcels under way, never what the archive has.

use std::collections::BTreeSet;
use std::io::{self, BufWriter, StdoutLock, Write};
use std::process::ExitCode;

use ecluse_manifest::Term;
use ecluse_spool::ParcelManifest;
use ecluse_stage::Exit;
use ecluse_telemetry::printable;
use serde_json::{Value, json};

use crate::context::{DriverContext, Trouble};

pub(crate) fn find(context: &DriverContext, terms: &[String]) -> Result<ExitCode, Trouble> {
    context.must_be_archive()?;
    let mut list = List::begin(context.json)?;
    let mut names = under_way(context, terms, &mut list)?;
    archived(context, terms, &mut list)?;
    jobs(context, terms, &mut names, &mut list)?;
    finished(context, terms, &names, &mut list)?;
    if list.end()? == 0 {
        return Err(Trouble::usage(format!(
            "nothing found for {}",
            terms.join(" ")
        )));
    }
    Ok(Exit::Done.into())
}

/// Lists the parcels in the stages and returns their names.
fn under_way(
    context: &DriverContext,
    terms: &[String],
    list: &mut List,
) -> Result<BTreeSet<String>, Trouble> {
    let mut names = BTreeSet::new();
    let mut told = Ok(());
    for stage in context.stages()? {
        context.engine.each_place(&stage, &mut |place| {
            let manifest = context.engine.manifest(&place).ok();
            let fits = |term: &String| fits(term, place.parcel.as_str(), manifest.as_ref());
            if told.is_ok() && terms.iter().all(fits) {
                names.insert(place.parcel.to_string());
                told = list.add(&json!({
                    "parcel": place.parcel, "stage": place.stage,
                    "state": place.state.word(), "path": place.path,
                }));
            }
        })?;
    }
    told?;
    Ok(names)
}

/// Lists the files of the manifest that fit all terms, with their copies.
fn archived(context: &DriverContext, terms: &[String], list: &mut List) -> Result<(), Trouble> {
    let path = crate::verify::manifest_path(context);
    if !path.exists() {
        return Ok(());
    }
    let manifest = ecluse_manifest::Manifest::open_to_read(&path, &context.root)?;
    let terms: Vec<Term<'_>> = terms.iter().map(|term| term_of(term)).collect();
    manifest.find(&terms, |row| {
        let copies = manifest.copies(&row.name)?;
        let copies: Vec<String> = copies.into_iter().map(|copy| copy.place).collect();
        Ok(list.add(&json!({
            "parcel": row.name, "stage": "manifest", "state": row.state.word(),
            "damages": row.damages.unwrap_or(0), "path": copies.first(), "copies": copies,
        }))?)
    })
}

fn jobs(
    context: &DriverContext,
    terms: &[String],
    names: &mut BTreeSet<String>,
    list: &mut List,
) -> Result<(), Trouble> {
    for job in context.jobs()? {
        let status = &job.status;
        let fits = |term: &String| match term_of(term) {
            Term::Job(wanted) => status.job == wanted,
            Term::Harvest(wanted) => status.harvest == wanted,
            Term::Digest(_) | Term::Damaged => false,
            Term::Name(part) => job.name.contains(part),
        };
        if terms.iter().all(fits) && names.insert(job.name.clone()) {
            list.add(&json!({
                "parcel": job.name, "stage": "crawl",
                "state": crate::jobs::word(status.state), "path": job.dir,
            }))?;
        }
    }
    Ok(())
}

/// Lists those that are in no stage. They are known by the names of their receipts: not by job or digest.
fn finished(
    context: &DriverContext,
    terms: &[String],
    names: &BTreeSet<String>,
    list: &mut List,
) -> Result<(), Trouble> {
    let mut told = Ok(());
    context
        .engine
        .each_finished(&context.stages()?, &mut |stage, name| {
            let fits = terms.iter().all(|term| fits(term, name, None));
            if told.is_ok() && fits && !names.contains(name) {
                told = list.add(&json!({
                    "parcel": name, "stage": stage, "state": "finished", "path": null,
                }));
            }
        })?;
    Ok(told?)
}

/// What is printed, entry by entry.
struct List {
    out: BufWriter<StdoutLock<'static>>,
    json: bool,
    count: u64,
}

impl List {
    fn begin(json: bool) -> io::Result<Self> {
        let mut out = BufWriter::new(io::stdout().lock());
        if json {
            out.write_all(b"{\n  \"found\": [")?;
        }
        Ok(Self {
            out,
            json,
            count: 0,
        })
    }

    fn add(&mut self, one: &Value) -> io::Result<()> {
        self.count += 1;
        if self.json {
            let comma = if self.count > 1 { "," } else { "" };
            return write!(self.out, "{comma}\n    {one}");
        }
        let text = |key: &str| printable(one[key].as_str().unwrap_or("-").as_bytes());
        let damage = match one["damages"].as_u64() {
            None | Some(0) => String::new(),
            Some(1) => "  (damaged in 1 place)".to_owned(),
            Some(places) => format!("  (damaged in {places} places)"),
        };
        let (stage, state, parcel) = (text("stage"), text("state"), text("parcel"));
        writeln!(self.out, "{stage:<10} {state:<10} {parcel}{damage}")?;
        for copy in one["copies"].as_array().into_iter().flatten() {
            let place = printable(copy.as_str().unwrap_or_default().as_bytes());
            writeln!(self.out, "{:21} at {place}", "")?;
        }
        Ok(())
    }

    /// Ends the list and returns how many it has.
    fn end(mut self) -> io::Result<u64> {
        if self.json {
            let lf = if self.count > 0 { "\n  " } else { "" };
            writeln!(self.out, "{lf}],\n  \"schema\": 1\n}}")?;
        }
        self.out.flush()?;
        Ok(self.count)
    }
}

fn term_of(term: &str) -> Term<'_> {
    if let Some(job) = term.strip_prefix("job=") {
        Term::Job(job)
    } else if let Some(harvest) = term.strip_prefix("harvest=") {
        Term::Harvest(harvest)
    } else if let Some(sha256) = term.strip_prefix("sha256:") {
        Term::Digest(sha256)
    } else if term == "damaged" {
        Term::Damaged
    } else {
        Term::Name(term)
    }
}

/// Tells whether a parcel fits a term.
fn fits(term: &str, name: &str, manifest: Option<&ParcelManifest>) -> bool {
    let is = |value: Option<&String>, wanted: &str| value.is_some_and(|value| value == wanted);
    match term_of(term) {
        Term::Job(job) => manifest.is_some_and(|m| is(m.job.as_ref(), job)),
        Term::Harvest(harvest) => manifest.is_some_and(|m| is(m.harvest.as_ref(), harvest)),
        Term::Digest(sha256) => {
            let sha256 = sha256.to_ascii_lowercase();
            manifest.is_some_and(|m| m.files.iter().any(|f| f.sha256.starts_with(&sha256)))
        }
        // The manifest knows them.
        Term::Damaged => false,
        Term::Name(part) => {
            name.contains(part)
                || manifest.is_some_and(|m| {
                    m.files.iter().any(|f| f.name.contains(part))
                        || m.original.as_ref().is_some_and(|name| name.contains(part))
                })
        }
    }
}
