//! `ecluse export`: captures of a job or a collection, as others can use them.
//!
//! What is written follows from the archive alone: the same captures give the same bytes. Metadata files stay out, they are the
//! job's papers and no captures.

mod documents;
mod one_warc;
mod sort_job;

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ecluse_cdx::{Duplicates, KeyRange, SortOptions, Sorter, cdxj};
use ecluse_index::{Index, index};
use ecluse_manifest::{FileRow, JobName, Manifest};
use ecluse_spool::{Fs, RealFs};
use ecluse_stage::{Exit, Stage};
use ecluse_warc::WarcReader;

use crate::cli::{ExportAs, ExportOptions};
use crate::context::{DriverContext, Trouble};
use crate::{close, lookup, rebuild_index, show, wacz};

pub(crate) use documents::{Document, each_document};
pub(crate) use one_warc::write_one;

/// The captures that are meant.
pub(crate) struct Selection {
    /// What somebody calls them.
    pub(crate) name: String,
    /// `job 17-4` or `collection elections`.
    pub(crate) title: String,
    pub(crate) files: Vec<SelectedFile>,
    /// Those of some URLs only.
    pub(crate) range: Option<KeyRange>,
    pub(crate) settings: ecluse_index::Settings,
}

/// An archive file with a copy that can be read.
pub(crate) struct SelectedFile {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    /// As it was taken at ingest.
    pub(crate) sha256: Option<String>,
}

pub(crate) fn export(
    context: &DriverContext,
    options: &ExportOptions,
) -> Result<ExitCode, Trouble> {
    context.must_be_archive()?;
    if let Some(directory) = &options.sort_job {
        return sort_job::write(context, options.what.as_deref(), directory);
    }
    let (Some(what), Some(format)) = (&options.what, options.format) else {
        return Err(Trouble::usage("what is to be exported, and --as what"));
    };
    let selection = Selection::of(context, what, options)?;
    let into = |ending: &str| {
        let name = format!("{}.{ending}", selection.name);
        options.output.clone().unwrap_or_else(|| name.into())
    };
    match format {
        ExportAs::Wacz => to_file(context, &into("wacz"), |file| wacz::write(&selection, file)),
        ExportAs::Warc => to_file(context, &into("warc.gz"), |file| {
            let mut out = BufWriter::new(file);
            write_one(&selection, &mut out)?;
            Ok(out.flush()?)
        }),
        format => {
            let write = |out: &mut dyn Write| match format {
                ExportAs::Cdxj => write_lines(&selection, out),
                ExportAs::Text => documents::write_text(&selection, out),
                _ => documents::write_xml(&selection, out),
            };
            match &options.output {
                Some(path) => to_file(context, path, |file| {
                    let mut out = BufWriter::new(file);
                    write(&mut out)?;
                    Ok(out.flush()?)
                }),
                None => {
                    let mut out = BufWriter::new(io::stdout().lock());
                    write(&mut out)?;
                    out.flush()?;
                    Ok(Exit::Done.into())
                }
            }
        }
    }
}

impl Selection {
    fn of(context: &DriverContext, what: &str, options: &ExportOptions) -> Result<Self, Trouble> {
        let manifest = crate::verify::open_to_read(context)?;
        let (title, rows) = rows_of(&manifest, what)?;
        let mut files = Vec::new();
        for row in rows {
            if row.kind.as_deref() == Some("metadata") {
                continue;
            }
            files.push(SelectedFile {
                path: context.good_copy(&manifest, &row)?,
                name: row.name,
                sha256: row.sha256,
            });
        }
        let range = match &options.url {
            Some(url) => Some(lookup::range_of(
                &lookup::with_scheme(url),
                options.matches,
            )?),
            None => None,
        };
        let settings = context.pipeline.stage_settings(Index::NAME);
        Ok(Self {
            name: what.replace('/', "_"),
            title,
            files,
            range,
            settings: settings.map_err(|error| Trouble::new(Exit::Config, error))?,
        })
    }

    /// Tells whether a URL is meant.
    pub(crate) fn has(&self, url: &str) -> bool {
        let Some(range) = &self.range else {
            return true;
        };
        let mut line = Vec::new();
        ecluse_surt::surt_or_url(url.as_bytes(), &mut line);
        line.push(b' ');
        line >= range.from && range.to.as_ref().is_none_or(|to| line < *to)
    }

    pub(crate) fn sorter(&self) -> Sorter {
        Sorter::new(SortOptions {
            duplicates: Duplicates::Remove,
            memory_bytes: usize::try_from(self.settings.sort_memory.0).unwrap_or(usize::MAX),
            temporary: std::env::temp_dir(),
        })
    }

    /// Gives the sorter the lines of a file, named as it is to be called.
    pub(crate) fn index(&self, path: &Path, name: &str, lines: &mut Sorter) -> Result<(), Trouble> {
        let reader = WarcReader::seekable(File::open(path)?, self.settings.limits());
        let mut line = Vec::new();
        index(reader, name, &self.settings, &mut |capture| {
            if !self.has(capture.url.as_deref().unwrap_or_default()) {
                return Ok(Ok(()));
            }
            line.clear();
            if let Err(fault) = cdxj::write(capture, &mut line) {
                return Ok(Err(fault));
            }
            let pushed = lines.push(&line);
            pushed.map_err(ecluse_stage::Failure::halt)?;
            Ok(Ok(()))
        })?;
        Ok(())
    }
}

/// Returns the files of a job or of a collection, whichever there is.
fn rows_of(manifest: &Manifest, word: &str) -> Result<(String, Vec<FileRow>), Trouble> {
    if let Ok(job) = close::find(manifest, word) {
        let files = manifest.files_of_job(&job)?.into_iter();
        let rows = files.map(|file| file.row).collect();
        return Ok((format!("job {}", close::shown(&job)), rows));
    }
    let mut rows = Vec::new();
    rebuild_index::each_published(manifest, |row| {
        if row.collection.as_deref() == Some(word) {
            rows.push(row);
        }
        Ok(())
    })?;
    if rows.is_empty() {
        // A job that was harvested several times: all of them.
        let job = JobName {
            job: word.to_owned(),
            harvest: None,
        };
        let files = manifest.files_of_job(&job)?.into_iter();
        let rows: Vec<FileRow> = files.map(|file| file.row).collect();
        if !rows.is_empty() {
            return Ok((format!("job {word}"), rows));
        }
        let line =
            format!("the archive has no file of a job {word:?}, and no collection of that name");
        return Err(Trouble::usage(line));
    }
    rows.sort_by(|one, other| one.name.cmp(&other.name));
    Ok((format!("collection {word}"), rows))
}

fn write_lines(selection: &Selection, mut out: &mut dyn Write) -> Result<(), Trouble> {
    let mut lines = selection.sorter();
    for file in &selection.files {
        selection.index(&file.path, &file.name, &mut lines)?;
    }
    let written = lines.finish(&mut out);
    written
        .map(drop)
        .map_err(|error| Trouble::new(Exit::Machine, error))
}

/// Writes a file that takes its name when it is whole, and never that of another.
fn to_file(
    context: &DriverContext,
    path: &Path,
    write: impl FnOnce(&mut File) -> Result<(), Trouble>,
) -> Result<ExitCode, Trouble> {
    let shown = path.display();
    if path.symlink_metadata().is_ok() {
        return Err(Trouble::usage(format!("{shown} is there already")));
    }
    let mut half = path.as_os_str().to_owned();
    half.push(".part");
    let half = PathBuf::from(half);
    let opened = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&half);
    let mut file = opened
        .map_err(|error| Trouble::usage(format!("cannot write {}: {error}", half.display())))?;
    let failed = |trouble: Trouble| Trouble {
        line: format!("cannot export to {shown}: {}", trouble.line),
        ..trouble
    };
    let written = write(&mut file).and_then(|()| Ok(file.sync_all()?));
    if let Err(trouble) = written {
        RealFs.unlink(&half)?;
        return Err(failed(trouble));
    }
    let named = RealFs
        .link(&half, path)
        .and_then(|()| RealFs.unlink(&half))
        .and_then(|()| file.metadata());
    let bytes = named.map_err(|error| failed(error.into()))?.len();
    let told = serde_json::json!({ "file": path, "bytes": bytes });
    context.tell(&format!("{} in {shown}", show::bytes(bytes)), told)?;
    Ok(Exit::Done.into())
}
