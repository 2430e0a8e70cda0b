//! WACZ 1.1.1 (<https://specs.webrecorder.net/wacz/1.1.1/>): a ZIP file with WARC files, their index and a list of pages.
//!
//! It is derived and can be made again; what is kept is the package. The WARC files go in as they are where all of a job or collection
//! is meant, else as one of the selection.

mod check;
mod index;

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};

use ecluse_stage::Exit;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use crate::context::Trouble;
use crate::export::{SelectedFile, Selection, each_document, write_one};

pub(crate) use check::validate;

/// The version that is written.
const VERSION: &str = "1.1.1";

/// Writes a selection.
pub(crate) fn write(selection: &Selection, file: &mut File) -> Result<(), Trouble> {
    let mut wacz = Wacz {
        zip: ZipWriter::new(file),
        resources: Vec::new(),
    };
    let is_whole = selection.range.is_none();
    let is_warc =
        |file: &SelectedFile| file.name.ends_with(".warc.gz") || file.name.ends_with(".warc");
    let mut own = None;
    if !is_whole || !selection.files.iter().all(is_warc) {
        let mut one = tempfile::NamedTempFile::new()?;
        write_one(selection, &mut one)?;
        one.flush()?;
        own = Some(one);
    }
    let one;
    let files: &[SelectedFile] = match &own {
        Some(own) => {
            one = [SelectedFile {
                name: format!("{}.warc.gz", selection.name),
                path: own.path().to_owned(),
                sha256: None,
            }];
            &one
        }
        None => &selection.files,
    };
    let mut lines = selection.sorter();
    let mut pages = Pages::begin(selection)?;
    for file in files {
        wacz.add_file(file)?;
        selection.index(&file.path, &file.name, &mut lines)?;
        each_document(selection, file, &mut |document| pages.take(&document))?;
    }
    let (blocks, summary) = index::write(lines)?;
    wacz.add("indexes/index.cdx.gz", &mut BufReader::new(blocks))?;
    wacz.add("indexes/index.idx", &mut summary.as_slice())?;
    let created = pages.last.clone();
    wacz.add("pages/pages.jsonl", &mut BufReader::new(pages.end()?))?;
    wacz.finish(selection, &created)
}

/// A WACZ file under construction.
struct Wacz<'f> {
    zip: ZipWriter<&'f mut File>,
    resources: Vec<Value>,
}

impl Wacz<'_> {
    /// Copies an archive file, and holds it against the digest taken at ingest.
    fn add_file(&mut self, file: &SelectedFile) -> Result<(), Trouble> {
        let sha256 = self.add(
            &format!("archive/{}", file.name),
            &mut File::open(&file.path)?,
        )?;
        match &file.sha256 {
            Some(taken) if *taken != sha256 => Err(Trouble::new(
                Exit::Held,
                format!(
                    "the copy {} has sha256 {sha256}, ingest took {taken}",
                    file.path.display()
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Adds a file as it stands: WARC files and indexes are compressed already, and readers seek in them.
    fn add(&mut self, path: &str, source: &mut dyn Read) -> Result<String, Trouble> {
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Stored)
            .large_file(true);
        self.zip.start_file(path, options).map_err(unwritten)?;
        let mut hash = Sha256::new();
        let mut bytes = 0_u64;
        let mut buffer = vec![0; 64 << 10];
        loop {
            let read = match source.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            hash.update(&buffer[..read]);
            self.zip.write_all(&buffer[..read])?;
            bytes += read as u64;
        }
        let hex: String = hash
            .finalize()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let name = path.rsplit('/').next().unwrap_or(path).to_ascii_lowercase();
        let plain = |c: char| {
            if c.is_ascii_alphanumeric() || "-._".contains(c) {
                c
            } else {
                '_'
            }
        };
        let name: String = name.chars().map(plain).collect();
        self.resources.push(json!({
            "name": name, "path": path, "hash": format!("sha256:{hex}"), "bytes": bytes,
        }));
        Ok(hex)
    }

    fn finish(mut self, selection: &Selection, created: &str) -> Result<(), Trouble> {
        let package = json!({
            "profile": "data-package",
            "wacz_version": VERSION,
            "title": selection.title,
            "software": format!("ecluse {}", env!("CARGO_PKG_VERSION")),
            "created": created,
            "resources": self.resources,
        });
        let package = serde_json::to_vec_pretty(&package).map_err(io::Error::from)?;
        let sha256 = self.add("datapackage.json", &mut package.as_slice())?;
        let digest = json!({ "path": "datapackage.json", "hash": format!("sha256:{sha256}") });
        let digest = serde_json::to_vec_pretty(&digest).map_err(io::Error::from)?;
        self.add("datapackage-digest.json", &mut digest.as_slice())?;
        self.zip.finish().map(drop).map_err(unwritten)
    }
}

fn unwritten(error: zip::result::ZipError) -> Trouble {
    Trouble::new(Exit::Machine, error)
}

/// The list of pages, on disk until it is added.
struct Pages {
    file: io::BufWriter<File>,
    /// When the last capture was made.
    last: String,
}

impl Pages {
    fn begin(selection: &Selection) -> Result<Self, Trouble> {
        let mut file = io::BufWriter::new(tempfile::tempfile()?);
        let heading =
            json!({ "format": "json-pages-1.0", "id": "pages", "title": selection.title });
        writeln!(file, "{heading}")?;
        Ok(Self {
            file,
            last: "1970-01-01T00:00:00Z".to_owned(),
        })
    }

    fn take(&mut self, document: &crate::export::Document) -> Result<(), Trouble> {
        if document.date > self.last {
            self.last.clone_from(&document.date);
        }
        if !document.is_page() || document.is_revisit {
            return Ok(());
        }
        let id = ecluse_spool::digest(format!("{} {}", document.date, document.url).as_bytes());
        let title = document.words.as_ref().map(|words| words.title.as_str());
        let title = title
            .filter(|title| !title.is_empty())
            .unwrap_or(&document.url);
        let page = json!({
            "id": &id[..22], "url": document.url, "ts": document.date, "title": title,
        });
        Ok(writeln!(self.file, "{page}")?)
    }

    fn end(self) -> Result<File, Trouble> {
        let mut file = self.file.into_inner().map_err(|error| error.into_error())?;
        file.seek(SeekFrom::Start(0))?;
        Ok(file)
    }
}
