//! What the manifest says of a package and its files, in the package itself: `archive-rows.jsonl`, one JSON object a line.
//!
//! The first line is of the package, each other one of a file. So an archive of which nothing is left but its packages comes
//! back as it was.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use ecluse_bag::TagFile;
use ecluse_manifest::{FileRecord, Manifest, PackageRow};
use ecluse_stage::Failure;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::facts::PackageFacts;
use crate::finished_job::JobClosing;
use crate::history::FileHistory;

/// Its name, beside `bagit.txt`.
pub const ROWS: &str = "archive-rows.jsonl";

/// The only layout so far.
const FORMAT: u32 = 1;

/// The first line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PackageHeading {
    /// The layout of this file.
    pub format: u32,
    /// When the last file was ready.
    pub made: String,
    /// Who closed the job by hand, if somebody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed: Option<JobClosing>,
    /// The package, without the digest of its tag manifest: that lists this file.
    #[serde(flatten)]
    pub row: PackageRow,
}

/// The line of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PackedRow {
    /// Where it is in the package.
    pub path: String,
    /// What the manifest says of it.
    pub row: FileRecord,
    /// What its receipts told; packages of earlier versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<Value>,
}

/// Why these lines cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RowsError {
    /// It is not there, or cannot be read.
    #[error("cannot read {ROWS}: {0}")]
    Io(#[from] io::Error),
    /// It says something else than it should.
    #[error("line {line} of {ROWS}: {why}")]
    Line {
        /// The line, from 1.
        line: u64,
        /// What is wrong.
        why: String,
    },
}

/// Returns the file for a part of a package.
pub(crate) fn write(
    manifest: &Manifest,
    row: &PackageRow,
    facts: &PackageFacts,
    histories: &[FileHistory],
) -> Result<TagFile, Failure> {
    let heading = PackageHeading {
        format: FORMAT,
        made: facts.package.created.clone(),
        closed: facts.job.closed.clone(),
        row: row.clone(),
    };
    let mut text = serde_json::to_string(&heading).map_err(Failure::halt)?;
    for (file, history) in facts.files.iter().zip(histories) {
        let known = manifest.record(&file.name).map_err(Failure::halt)?;
        let Some(mut record) = known else {
            let name = &file.name;
            return Err(Failure::halt(format!("{name} left the manifest")));
        };
        record.sha512 = Some(file.sha512.clone());
        let packed = PackedRow {
            path: format!("data/{}", file.path),
            row: record,
            history: Some(serde_json::to_value(history).map_err(Failure::halt)?),
        };
        text.push('\n');
        text.push_str(&serde_json::to_string(&packed).map_err(Failure::halt)?);
    }
    text.push('\n');
    Ok(TagFile {
        name: ROWS.to_owned(),
        text,
    })
}

/// The lines of a package, one at a time.
pub struct PackageRows {
    lines: io::Lines<BufReader<File>>,
    line: u64,
}

impl PackageRows {
    /// Opens those of a package.
    ///
    /// # Errors
    /// When there are none, or of a layout that this version does not know.
    pub fn open(package: &Path) -> Result<(PackageHeading, Self), RowsError> {
        let file = ecluse_holding::open_plain(&package.join(ROWS))?;
        let mut rows = Self {
            lines: BufReader::new(file).lines(),
            line: 0,
        };
        let heading: Option<PackageHeading> = rows.read()?;
        let wrong = |why: &str| RowsError::Line {
            line: 1,
            why: why.to_owned(),
        };
        let heading = heading.ok_or_else(|| wrong("there is nothing in it"))?;
        match heading.format {
            FORMAT => Ok((heading, rows)),
            other => Err(wrong(&format!("layout {other} is not known"))),
        }
    }

    /// Returns the next file; none at the end.
    ///
    /// # Errors
    /// When a line makes no sense, or names a file outside of the payload.
    pub fn next_file(&mut self) -> Result<Option<PackedRow>, RowsError> {
        let Some(packed) = self.read::<PackedRow>()? else {
            return Ok(None);
        };
        let mut steps = packed.path.split('/');
        let is_inside = packed.path.starts_with("data/")
            && steps.all(|step| !step.is_empty() && step != "." && step != "..");
        let is_its = packed.path.rsplit('/').next() == Some(&packed.row.name);
        match is_inside && is_its {
            true => Ok(Some(packed)),
            false => Err(RowsError::Line {
                line: self.line,
                why: format!("{:?} is no place of {:?}", packed.path, packed.row.name),
            }),
        }
    }

    fn read<Row: for<'de> Deserialize<'de>>(&mut self) -> Result<Option<Row>, RowsError> {
        let Some(line) = self.lines.next() else {
            return Ok(None);
        };
        self.line += 1;
        let row = serde_json::from_str(&line?);
        row.map(Some).map_err(|error| RowsError::Line {
            line: self.line,
            why: error.to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_leads_out_of_the_package_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let heading = r#"{"format":1,"made":"","job":"1","harvest":"","part":1,"parts":1,"ark":"","package":"1","files":1,"bytes":1}"#;
        let row = r#""row":{"name":"a","times":{},"copies":[]}"#;
        for (path, is_good) in [
            ("data/x/a", true),
            ("data/../a", false),
            ("/data/a", false),
            ("data//a", false),
            ("data/b", false),
            ("a", false),
        ] {
            let text = format!("{heading}\n{{\"path\":\"{path}\",{row}}}\n");
            std::fs::write(dir.path().join(ROWS), text).unwrap();
            let (_, mut rows) = PackageRows::open(dir.path()).unwrap();
            assert_eq!(rows.next_file().is_ok(), is_good, "{path}");
        }
        std::fs::write(
            dir.path().join(ROWS),
            heading.replace(":1,\"made", ":2,\"made"),
        )
        .unwrap();
        assert!(PackageRows::open(dir.path()).is_err());
    }
}
