//! The days of one generation as one parcel: what is built in ranges takes long, and must not become another batch meanwhile.
//!
//! It is a day of days: it has the lists that they had, and what the generation notes of each.

use ecluse_cdx::LineShape;
use ecluse_generation::IndexMember;
use ecluse_holding::pieces_of;
use ecluse_stage::{Failure, Outbox, Parcel, ParcelId};
use serde::{Deserialize, Serialize};

use crate::Bigmerge;
use crate::building::join;

/// What such a parcel is.
const KIND: &str = "days";
/// The file that says what it was made of.
const FILE: &str = "days.json";

/// What a parcel of days was made of.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct GatheredDays {
    members: Vec<IndexMember>,
    /// Lines that several of them had.
    duplicates: u64,
}

/// Tells whether several days were gathered in a parcel.
pub(crate) fn is_gathered(parcel: &Parcel) -> bool {
    parcel.manifest().kind == KIND
}

/// Returns what was gathered in a parcel; none of a day.
fn gathered(parcel: &Parcel) -> Result<Option<GatheredDays>, Failure> {
    if !is_gathered(parcel) {
        return Ok(None);
    }
    let blame = |failure: Failure| failure.of_member(parcel.id());
    let file = parcel.open(FILE).map_err(|error| blame(error.into()))?;
    let read = serde_json::from_reader(std::io::BufReader::new(file));
    read.map(Some).map_err(|error| {
        let id = parcel.id();
        blame(Failure::hold(format!("{FILE} of {id} is damaged: {error}")))
    })
}

/// Returns what a generation notes of a parcel: of itself, or of the days in it.
pub(crate) fn members_of(parcel: &Parcel) -> Result<Vec<IndexMember>, Failure> {
    Ok(gathered(parcel)?.map_or_else(
        || {
            vec![IndexMember {
                parcel: parcel.id().clone(),
                content: parcel.manifest().content(),
            }]
        },
        |days| days.members,
    ))
}

/// Returns how many lines were left out before these parcels came here.
pub(crate) fn duplicates_of(parcels: &[&Parcel]) -> Result<u64, Failure> {
    let mut duplicates = 0;
    for parcel in parcels {
        duplicates += gathered(parcel)?.map_or(0, |days| days.duplicates);
    }
    Ok(duplicates)
}

/// Returns the names of the days.
pub(crate) fn names_of(parcels: &[&Parcel]) -> Result<Vec<ParcelId>, Failure> {
    let mut names = Vec::new();
    for parcel in parcels {
        names.extend(members_of(parcel)?.into_iter().map(|member| member.parcel));
    }
    Ok(names)
}

impl Bigmerge {
    /// Makes one parcel of the days of a collection, for this stage itself.
    pub(crate) fn gather(
        &self,
        collection: Option<&str>,
        days: &[&Parcel],
        outbox: &mut Outbox,
    ) -> Result<(), Failure> {
        let id = ParcelId::of_batch(KIND, &names_of(days)?);
        outbox.fact("days", id.as_str());
        let mut output = outbox.parcel(id, KIND)?;
        output.manifest().collection = collection.map(str::to_owned);
        let mut gathered = GatheredDays {
            members: Vec::new(),
            duplicates: 0,
        };
        for day in days {
            gathered.members.extend(members_of(day)?);
        }
        for (suffix, shape) in [
            (".cdxj", LineShape::Capture),
            (".path", LineShape::Path),
            (".files", LineShape::Path),
        ] {
            let mut file = output.create(&format!("days{suffix}"))?;
            let options = self.settings.options(shape);
            let pieces = pieces_of(days, suffix);
            let joined = join(&pieces, &mut file, &self.temporary, &options, outbox)?;
            output.add(file)?;
            if shape == LineShape::Capture {
                gathered.duplicates = joined.duplicates;
            }
        }
        let bytes = serde_json::to_vec_pretty(&gathered).map_err(Failure::halt)?;
        output.write(FILE, &bytes)?;
        outbox.emit_to(output, &self.home.stage);
        Ok(())
    }
}
