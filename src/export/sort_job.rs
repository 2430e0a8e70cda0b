//! `ecluse export --sort-job`: a Spark job that merges an index and the days that wait for it, where one machine is too small for that.
//!
//! Two files in a new directory: the job, which is the same for everybody, and the list of what it reads. What waits in a store is brought out, into `days/`
//! beside them. Nothing of the archive is changed; what to do with the result is in `docs/sort-elsewhere.md`.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ecluse_bigmerge::Bigmerge;
use ecluse_generation::{FLAT, IndexDirectory, IndexError};
use ecluse_spool::{FileEntry, Fs, ParcelPlace, ParcelState, RealFs};
use ecluse_stage::{Exit, Stage};

use crate::context::{DriverContext, Trouble};
use crate::show;

/// The job, whole; its name in the directory is `sort.py`.
const JOB: &str = include_str!("sort_job.py");
/// The list of its inputs.
const INPUTS: &str = "inputs.txt";
/// What was brought out of a store.
const DAYS: &str = "days";

/// A list that is to be merged.
struct SortInput {
    bytes: u64,
    path: PathBuf,
}

/// Writes the job and the list of its inputs into a directory that is not there yet.
pub(crate) fn write(
    context: &DriverContext,
    collection: Option<&str>,
    directory: &Path,
) -> Result<ExitCode, Trouble> {
    let mut inputs = index_of(context, collection)?;
    let generations = inputs.len();
    let lists = days_of(context, collection)?;
    let days = lists.len();
    let of_days = lists.iter().map(|(_, file)| file.bytes).sum::<u64>();
    let bytes = inputs.iter().map(|input| input.bytes).sum::<u64>() + of_days;
    if bytes == 0 {
        return Err(Trouble::usage(
            "there is no index to merge, and no day that waits for it",
        ));
    }
    let shown = directory.display();
    fs::create_dir(directory)
        .map_err(|error| Trouble::usage(format!("cannot make {shown}: {error}")))?;
    let written = bring(context, lists, directory).and_then(|days| {
        inputs.extend(days);
        let list = list_of(&inputs)?;
        for (name, text) in [("sort.py", JOB), (INPUTS, &list)] {
            write_new(&directory.join(name), text)?;
        }
        Ok(())
    });
    if let Err(trouble) = written {
        // Half a job would be taken for a whole one, and stand in the way of the next.
        let _ = RealFs.remove_tree(directory);
        return Err(trouble);
    }
    let line = format!(
        "{shown}: sort.py and a list of {} to merge, {} of the index and {days} that wait",
        show::bytes(bytes),
        match generations {
            0 => "nothing",
            _ => "the current generation",
        }
    );
    let told = serde_json::json!({ "directory": directory, "bytes": bytes, "days": days });
    context.tell(&line, told)?;
    if !context.json && context.engine.paused(Bigmerge::NAME)?.is_none() {
        let pause = context.command("pause bigmerge --why 'sorted elsewhere'");
        context.say(&format!(
            "bigmerge is not paused: what it merges before the result is back is not in it ({pause})"
        ))?;
    }
    Ok(Exit::Done.into())
}

/// The flat index of the current generation, if there is one.
fn index_of(context: &DriverContext, collection: Option<&str>) -> Result<Vec<SortInput>, Trouble> {
    let root = absolute(&context.root.join(&context.pipeline.archive.index))?;
    let index = IndexDirectory::of(&root, collection).map_err(Trouble::usage)?;
    let failed = |error: IndexError| Trouble::new(Exit::Machine, error);
    let Some(number) = index.current_number().map_err(failed)? else {
        return Ok(Vec::new());
    };
    // Its files have the lengths they were written with.
    index.whole(number).map_err(failed)?;
    let path = index.generation(number).join(FLAT);
    let bytes = fs::metadata(&path)?.len();
    Ok(vec![SortInput { bytes, path }])
}

/// The lists of the days that wait for bigmerge, in the order of their parcels.
fn days_of(
    context: &DriverContext,
    collection: Option<&str>,
) -> Result<Vec<(ParcelPlace, FileEntry)>, Trouble> {
    let mut places = Vec::new();
    let stage = Bigmerge::NAME;
    let each = context.engine.each_place(stage, &mut |place| {
        places.push(place);
    });
    each?;
    places.sort_by(|one, other| one.parcel.cmp(&other.parcel));
    let mut days = Vec::new();
    for place in places {
        match place.state {
            ParcelState::Ready | ParcelState::Deferred => {}
            ParcelState::Working => {
                return Err(Trouble::new(
                    Exit::Deferred,
                    format!(
                        "bigmerge is at work on {}: pause it, and try again when it is done",
                        place.parcel
                    ),
                ));
            }
            ParcelState::Held | ParcelState::Discarded => continue,
        }
        let manifest = context.engine.manifest(&place)?;
        if manifest.collection.as_deref() != collection {
            continue;
        }
        let lists = manifest.files.into_iter();
        let lists = lists.filter(|file| file.name.ends_with(".cdxj"));
        days.extend(lists.map(|file| (place.clone(), file)));
    }
    Ok(days)
}

/// Names the lists where they lie; those in a store are brought into the directory.
fn bring(
    context: &DriverContext,
    lists: Vec<(ParcelPlace, FileEntry)>,
    directory: &Path,
) -> Result<Vec<SortInput>, Trouble> {
    let is_here = context.engine.directories().is_some();
    let mut inputs = Vec::new();
    for (number, (place, file)) in lists.into_iter().enumerate() {
        // Two of a name may wait, as copies do.
        let name = format!("{:04}-{}", number + 1, place.parcel);
        let into = directory.join(DAYS).join(name);
        if !is_here {
            fs::create_dir_all(&into)?;
        }
        let path = context.engine.bring(&place, &file, &into)?;
        inputs.push(SortInput {
            bytes: file.bytes,
            path: absolute(&path)?,
        });
    }
    Ok(inputs)
}

/// Bytes and path of each input, a line each.
fn list_of(inputs: &[SortInput]) -> Result<String, Trouble> {
    let mut list = String::new();
    for SortInput { bytes, path } in inputs {
        let text = path.to_str().filter(|text| !text.contains(['\n', '\r']));
        let text = text.ok_or_else(|| {
            let shown = path.display();
            Trouble::usage(format!(
                "{shown} cannot stand in a list: its name is no plain text"
            ))
        })?;
        list.push_str(&format!("{bytes}\t{text}\n"));
    }
    Ok(list)
}

fn absolute(path: &Path) -> io::Result<PathBuf> {
    std::path::absolute(path)
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_would_be_two_lines_is_refused() {
        let input = |path: &str| SortInput {
            bytes: 7,
            path: path.into(),
        };
        let list = list_of(&[input("/a b/x.cdxj"), input("/é.cdxj")]);
        assert_eq!(list.ok().unwrap(), "7\t/a b/x.cdxj\n7\t/é.cdxj\n");
        let refused = list_of(&[input("/a\nb.cdxj")]);
        assert!(refused.err().unwrap().line.contains("no plain text"));
    }
}
