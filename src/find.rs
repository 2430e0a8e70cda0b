//! `ecluse find`: where files are, in every state, and those that went through.

use std::process::ExitCode;

use ecluse_manifest::{CopyRow, FileRow, Term};
use ecluse_spool::{Manifest, Place};
use ecluse_stage::Exit;

use crate::desk::{Desk, Trouble};

pub(crate) fn find(desk: &Desk, terms: &[String]) -> Result<ExitCode, Trouble> {
    desk.must_be_archive()?;
    let mut found = Vec::new();
    let mut names = std::collections::BTreeSet::new();
    for stage in desk.stages()? {
        let mut places: Vec<Place> = Vec::new();
        desk.yard
            .each_place(&stage, &mut |place| places.push(place))?;
        for place in places {
            let manifest = desk.yard.manifest(&place).ok();
            if terms
                .iter()
                .all(|term| fits(term, place.parcel.as_str(), manifest.as_ref()))
            {
                names.insert(place.parcel.to_string());
                found.push(serde_json::json!({
                    "parcel": place.parcel, "stage": place.stage,
                    "state": place.state.word(), "path": place.path,
                }));
            }
        }
    }
    for row in archived(desk, terms)? {
        let copies: Vec<String> = row.1.into_iter().map(|copy| copy.place).collect();
        found.push(serde_json::json!({
            "parcel": row.0.name, "stage": "manifest",
            "state": row.0.state.word(), "path": copies.first(), "copies": copies,
        }));
    }
    for job in desk.jobs()? {
        let status = &job.status;
        let fits = |term: &String| match term_of(term) {
            Term::Job(wanted) => status.job == wanted,
            Term::Harvest(wanted) => status.harvest == wanted,
            Term::Digest(_) => false,
            Term::Name(part) => job.name.contains(part),
        };
        if terms.iter().all(fits) && names.insert(job.name.clone()) {
            found.push(serde_json::json!({
                "parcel": job.name, "stage": "crawl",
                "state": crate::jobs::word(status.state), "path": job.dir,
            }));
        }
    }
    // Finished ones are known by the names of their receipts: not by job or digest.
    for stage in desk.stages()? {
        desk.yard.each_finished(&stage, &mut |name| {
            if terms.iter().all(|term| fits(term, name, None)) && names.insert(name.to_owned()) {
                found.push(serde_json::json!({
                    "parcel": name, "stage": stage, "state": "finished", "path": null,
                }));
            }
        })?;
    }
    if desk.json {
        desk.print_json(serde_json::json!({ "found": found }))?;
    } else {
        for one in &found {
            let text = |key: &str| one[key].as_str().unwrap_or("-").to_owned();
            desk.print(&format!(
                "{:<10} {:<10} {}\n",
                ecluse_telemetry::printable(text("stage").as_bytes()),
                text("state"),
                ecluse_telemetry::printable(text("parcel").as_bytes())
            ))?;
            for copy in one["copies"].as_array().into_iter().flatten() {
                let place = copy.as_str().unwrap_or_default();
                let place = ecluse_telemetry::printable(place.as_bytes());
                desk.print(&format!("{:21} at {place}\n", ""))?;
            }
        }
    }
    if found.is_empty() {
        return Err(Trouble::usage(format!(
            "nothing found for {}",
            terms.join(" ")
        )));
    }
    Ok(Exit::Done.into())
}

/// Returns the files of the manifest that fit all terms, with their copies.
fn archived(desk: &Desk, terms: &[String]) -> Result<Vec<(FileRow, Vec<CopyRow>)>, Trouble> {
    let path = crate::verify::manifest_path(desk);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let manifest = ecluse_manifest::Manifest::open_to_read(&path)?;
    let terms: Vec<Term<'_>> = terms.iter().map(|term| term_of(term)).collect();
    let mut found = Vec::new();
    for row in manifest.find(&terms)? {
        let copies = manifest.copies(&row.name)?;
        found.push((row, copies));
    }
    Ok(found)
}

fn term_of(term: &str) -> Term<'_> {
    if let Some(job) = term.strip_prefix("job=") {
        Term::Job(job)
    } else if let Some(harvest) = term.strip_prefix("harvest=") {
        Term::Harvest(harvest)
    } else if let Some(sha256) = term.strip_prefix("sha256:") {
        Term::Digest(sha256)
    } else {
        Term::Name(term)
    }
}

fn fits(term: &str, name: &str, manifest: Option<&Manifest>) -> bool {
    let is = |value: Option<&String>, wanted: &str| value.is_some_and(|value| value == wanted);
    if let Some(job) = term.strip_prefix("job=") {
        return manifest.is_some_and(|m| is(m.job.as_ref(), job));
    }
    if let Some(harvest) = term.strip_prefix("harvest=") {
        return manifest.is_some_and(|m| is(m.harvest.as_ref(), harvest));
    }
    if let Some(sha256) = term.strip_prefix("sha256:") {
        let sha256 = sha256.to_ascii_lowercase();
        return manifest.is_some_and(|m| m.files.iter().any(|f| f.sha256.starts_with(&sha256)));
    }
    name.contains(term)
        || manifest.is_some_and(|m| {
            m.files.iter().any(|f| f.name.contains(term))
                || m.original
                    .as_ref()
                    .is_some_and(|original| original.contains(term))
        })
}
