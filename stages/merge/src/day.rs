//! The day of one collection: which parcels it has, and what is written of them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};

use ecluse_cdx::LineShape;
use ecluse_holding::pieces_of;
use ecluse_manifest::Manifest;
use ecluse_stage::{Failure, Home, Outbox, Parcel, ParcelId};
use serde::Deserialize;

use crate::Merge;
use crate::pieces::{merge, merge_packed};

/// The parcels of a batch that belong to one index.
pub(crate) struct Day<'a> {
    collection: Option<&'a str>,
    members: Vec<&'a Parcel>,
}

/// Sorts a batch by collection.
pub(crate) fn days_of(batch: &[Parcel]) -> Vec<Day<'_>> {
    let mut days: BTreeMap<Option<&str>, Vec<&Parcel>> = BTreeMap::new();
    for parcel in batch {
        let collection = parcel.manifest().collection.as_deref();
        days.entry(collection).or_default().push(parcel);
    }
    let day = |(collection, members)| Day {
        collection,
        members,
    };
    days.into_iter().map(day).collect()
}

impl Day<'_> {
    /// Writes the day's parcel.
    pub(crate) fn write(&self, stage: &Merge, outbox: &mut Outbox) -> Result<(), Failure> {
        let (settings, temporary) = (&stage.settings, stage.temporary.as_path());
        let lists = pieces_of(&self.members, ".cdxj");
        self.refuse_strangers()?;
        let members: Vec<ParcelId> = self.members.iter().map(|p| p.id().clone()).collect();
        let mut output = outbox.parcel(ParcelId::of_batch("day", &members), "day")?;
        output.manifest().collection = self.collection.map(str::to_owned);

        let mut file = output.create("day.cdxj")?;
        let capture = LineShape::Capture;
        let stats = merge(&lists, capture, settings, temporary, outbox, &mut file)?;
        output.add(file)?;

        let mut file = output.create("day.path")?;
        let paths = pieces_of(&self.members, ".path");
        let shape = LineShape::Path;
        let copies = merge(&paths, shape, settings, temporary, outbox, &mut file)?;
        output.add(file)?;

        let files = self.files(&stage.home)?;
        let mut file = output.create("day.files")?;
        for line in &files {
            file.write_all(line.as_bytes())?;
        }
        output.add(file)?;
        outbox.emit(output)?;
        let pages = self.send_links(stage, &members, outbox)?;

        let collection = self.collection.unwrap_or("-");
        outbox.fact(
            &format!("day {collection}"),
            serde_json::json!({
                "parcels": self.members.len(), "files": files.len(),
                "lines": stats.lines_written, "duplicates": stats.duplicates,
                "paths": copies.lines_written, "pages": pages,
            }),
        );
        Ok(())
    }

    /// Sends what the captures of the day link to, to whoever asked for it; returns how many captures that are. Named after the members: the
    /// same work gives the same parcel.
    fn send_links(
        &self,
        stage: &Merge,
        members: &[ParcelId],
        outbox: &mut Outbox,
    ) -> Result<u64, Failure> {
        let pieces = pieces_of(&self.members, ".links.zst");
        if pieces.is_empty() {
            return Ok(0);
        }
        let mut pages = 0;
        for (at, to) in stage.back.iter().enumerate() {
            // The name of a parcel is one alone, wherever it goes.
            let kind = match at {
                0 => "links".to_owned(),
                more => format!("links{}", more + 1),
            };
            let mut told = outbox.parcel(ParcelId::of_batch(&kind, members), "links")?;
            told.manifest().collection = self.collection.map(str::to_owned);
            let mut file = told.create("day.links.zst")?;
            let (settings, temporary) = (&stage.settings, stage.temporary.as_path());
            let stats = merge_packed(&pieces, settings, temporary, outbox, &mut file)?;
            // The header is one of the lines.
            pages = stats.lines_written.saturating_sub(1);
            told.add(file)?;
            outbox.emit_to(told, to);
        }
        Ok(pages)
    }

    fn refuse_strangers(&self) -> Result<(), Failure> {
        for parcel in &self.members {
            let mut files = parcel.manifest().files.iter();
            if !files.any(|file| file.name.ends_with(".cdxj")) {
                let id = parcel.id();
                let failure = Failure::hold(format!("{id} has no .cdxj file: not indexed"));
                return Err(failure.of_member(id));
            }
        }
        Ok(())
    }

    /// Returns a line for each (W)ARC file of the day whose digest is known, sorted.
    ///
    /// One whose digest is not known came by hand: it is in the index, and nothing can be removed for it.
    fn files(&self, home: &Home) -> Result<BTreeSet<String>, Failure> {
        let mut lines = BTreeSet::new();
        let mut database = None;
        for parcel in &self.members {
            for file in &parcel.manifest().files {
                let Some(name) = file.name.strip_suffix(".cdxj") else {
                    continue;
                };
                let digest = digest_of(parcel, name).map_err(|e| e.of_member(parcel.id()));
                let sha256 = match digest? {
                    Some(sha256) => Some(sha256),
                    None => recorded(&mut database, home, name)?,
                };
                if let Some(sha256) = sha256 {
                    lines.insert(format!("{name}\t{sha256}\n"));
                }
            }
        }
        Ok(lines)
    }
}

/// Returns the digest of a (W)ARC file: of the file itself where it still is, else of its backups.
fn digest_of(parcel: &Parcel, name: &str) -> Result<Option<String>, Failure> {
    /// What is read of a proof; docs/formats/warc-parcel.md has the rest.
    #[derive(Deserialize)]
    struct Proof {
        sha256: String,
    }
    /// More than any number of backup targets needs.
    const PROOF_BYTES: u64 = 1 << 20;

    if let Some(file) = parcel.manifest().file(name) {
        return Ok(Some(file.sha256.clone()));
    }
    let proofs = format!("{name}.backup.json");
    if parcel.manifest().file(&proofs).is_none() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    let mut reader = parcel.open(&proofs)?.take(PROOF_BYTES);
    reader.read_to_end(&mut bytes)?;
    let bad = |why: String| Failure::hold(format!("{proofs} of {}: {why}", parcel.id()));
    let proofs: Vec<Proof> = serde_json::from_slice(&bytes).map_err(|e| bad(e.to_string()))?;
    let digests: BTreeSet<String> = proofs.into_iter().map(|proof| proof.sha256).collect();
    let mut digests = digests.into_iter();
    match (digests.next(), digests.next()) {
        (Some(one), Some(other)) => Err(bad(format!("{one} in one proof, {other} in another"))),
        (Some(one), None) if is_sha256(&one) => Ok(Some(one)),
        (Some(one), None) => Err(bad(format!("{one:?} is no SHA-256"))),
        (None, _) => Ok(None),
    }
}

/// Asks the manifest for the digest taken at ingest; a manifest that is not there is not made.
fn recorded(
    database: &mut Option<Manifest>,
    home: &Home,
    name: &str,
) -> Result<Option<String>, Failure> {
    let path = home.manifest();
    if database.is_none() && path.exists() {
        *database = Some(Manifest::open(&path, &home.root).map_err(Failure::halt)?);
    }
    let Some(manifest) = database else {
        return Ok(None);
    };
    let row = manifest.file(name).map_err(Failure::halt)?;
    Ok(row.and_then(|row| row.sha256))
}

fn is_sha256(text: &str) -> bool {
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.len() == 64 && text.bytes().all(is_hex)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_64_hex_digits() {
        assert!(is_sha256(&"0a".repeat(32)));
        assert!(!is_sha256(&"0A".repeat(32)));
        assert!(!is_sha256("0a"));
    }
}
