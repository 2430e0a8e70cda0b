//! What is wrong with a bag.
//!
//! Names in messages are escaped: they come from strangers and go to terminals.

use std::io;
use std::path::PathBuf;

use crate::algorithm::DigestAlgorithm;

/// Why a bag could not be checked: nothing is known of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ValidateError {
    /// The disk failed, or something may not be read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// What was read.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The work was asked to stop.
    #[error("asked to stop")]
    Stopped,
}

/// Why a directory is no valid bag.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BagFault {
    /// It is not there, or no directory.
    #[error("there is no directory")]
    NoDirectory,
    /// A file that every bag has is missing.
    #[error("there is no {0}")]
    Absent(&'static str),
    /// `bagit.txt` is not as section 2.1.1 has it.
    #[error("bagit.txt: {0}")]
    Declaration(String),
    /// There is no manifest of the payload.
    #[error("there is no manifest-ALGORITHM.txt")]
    NoManifest,
    /// A manifest is of an algorithm nobody here knows.
    #[error("{0} is of a digest that is not known here")]
    UnknownAlgorithm(String),
    /// A line of a tag file cannot be read.
    #[error("line {line} of {file}: {what}")]
    Line {
        /// The tag file.
        file: String,
        /// The number of the line, from 1.
        line: usize,
        /// What is wrong.
        what: String,
    },
    /// A tag file is not in the encoding that `bagit.txt` states.
    #[error("{file} is not in {encoding}")]
    Encoding {
        /// The tag file.
        file: String,
        /// The encoding.
        encoding: String,
    },
    /// A listed file is not there.
    #[error("{path} is missing, {manifest} lists it")]
    Missing {
        /// The file.
        path: String,
        /// Who lists it.
        manifest: String,
    },
    /// A file of the payload is not listed.
    #[error("{path} is not in {manifest}")]
    Unlisted {
        /// The file.
        path: String,
        /// Who should list it.
        manifest: String,
    },
    /// A file has other bytes than its digest says.
    #[error("{path}: {} is {found}, {manifest} says {listed}", algorithm.name())]
    Differs {
        /// The file.
        path: String,
        /// Who lists it.
        manifest: String,
        /// The digest.
        algorithm: DigestAlgorithm,
        /// As listed.
        listed: String,
        /// As it is.
        found: String,
    },
    /// A path is listed twice.
    #[error("{path} is twice in {manifest}")]
    Twice {
        /// The path.
        path: String,
        /// Who lists it.
        manifest: String,
    },
    /// Something in the bag is neither file nor directory.
    #[error("{path} is {what}: a bag holds files")]
    NotPlain {
        /// The path.
        path: String,
        /// What it is.
        what: &'static str,
    },
    /// The payload is not of the size that `bag-info.txt` states.
    #[error("Payload-Oxum is {stated}, the payload has {found} (bytes.files)")]
    Oxum {
        /// As stated.
        stated: String,
        /// As found.
        found: String,
    },
    /// The file to be fetched is not listed in a manifest.
    #[error("fetch.txt lists {path}, {manifest} does not")]
    FetchUnlisted {
        /// The path.
        path: String,
        /// The manifest.
        manifest: String,
    },
    /// A warning, where warnings count.
    #[error("{0}")]
    Advised(BagWarning),
}

/// What the RFC advises against.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BagWarning {
    /// A path begins with `./`.
    #[error("{path} in {manifest} begins with ./")]
    DotSlash {
        /// The path.
        path: String,
        /// Where it stands.
        manifest: String,
    },
    /// A path begins with an asterisk, as `md5sum -b` writes it.
    #[error("{path} in {manifest} has an asterisk before it, as md5sum writes it")]
    Asterisk {
        /// The path.
        path: String,
        /// Where it stands.
        manifest: String,
    },
    /// A path is listed twice with the same digest, in a version that allows it.
    #[error("{path} is twice in {manifest}")]
    TwiceTheSame {
        /// The path.
        path: String,
        /// Where it stands.
        manifest: String,
    },
    /// Two paths are one on some file systems.
    #[error("{path} and {other} differ only in {how}: some file systems hold one of them")]
    Alike {
        /// One.
        path: String,
        /// The other.
        other: String,
        /// In what.
        how: &'static str,
    },
    /// A file that a desktop leaves behind.
    #[error("{0} is a leftover of somebody's desktop")]
    Leftover(String),
    /// A tag file that no tag manifest lists.
    #[error("{path} is not in {manifest}")]
    UnlistedTag {
        /// The file.
        path: String,
        /// The tag manifest.
        manifest: String,
    },
    /// There is no tag manifest: nobody would notice a change in the manifests.
    #[error("there is no tagmanifest-ALGORITHM.txt")]
    NoTagManifest,
    /// A digest has letters of both cases, as no program writes it.
    #[error("the digest of {path} in {manifest} mixes upper and lower case")]
    MixedCase {
        /// The path.
        path: String,
        /// Where it stands.
        manifest: String,
    },
}
