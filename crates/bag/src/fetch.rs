//! `fetch.txt`: what of the payload is still elsewhere. Nothing is fetched here: what is not there is missing.

use crate::declaration::{BagVersion, lines_of};
use crate::fault::BagFault;
use crate::path::{PAYLOAD, decode, problem_of};

/// The name of the file.
pub(crate) const FETCH: &str = "fetch.txt";

/// Returns the paths it lists; a line that cannot be read is a fault.
pub(crate) fn parse(text: &str, version: BagVersion, faults: &mut Vec<BagFault>) -> Vec<String> {
    let mut paths = Vec::new();
    for (number, line) in lines_of(text).enumerate() {
        match path_of(line, version) {
            Ok(path) => paths.push(path),
            Err(what) => faults.push(BagFault::Line {
                file: FETCH.to_owned(),
                line: number + 1,
                what,
            }),
        }
    }
    paths
}

fn path_of(line: &str, version: BagVersion) -> Result<String, String> {
    let words = || "it is not `URL LENGTH PATH`".to_owned();
    let (url, rest) = line.split_once([' ', '\t']).ok_or_else(words)?;
    let rest = rest.trim_start_matches([' ', '\t']);
    let (length, path) = rest.split_once([' ', '\t']).ok_or_else(words)?;
    if !url.contains(':') {
        return Err("there is no URL".into());
    }
    if length != "-" && (length.is_empty() || !length.bytes().all(|byte| byte.is_ascii_digit())) {
        return Err("the length is neither a number nor -".into());
    }
    let path = path.trim_start_matches([' ', '\t']);
    let path = decode(path.strip_prefix("./").unwrap_or(path), version);
    match problem_of(&path) {
        Some(problem) => Err(problem),
        None if !path.starts_with(PAYLOAD) => Err(format!("{path:?} is not in data/")),
        None => Ok(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_in_the_payload() {
        let read = |line: &str| path_of(line, BagVersion::V1_0);
        assert_eq!(read("http://a/ - data/x y").unwrap(), "data/x y");
        assert_eq!(read("http://a/\t12  data/x").unwrap(), "data/x");
        for bad in [
            "",
            "http://a/ -",
            "http://a/ x data/x",
            "a - data/x",
            "http://a/ - ../x",
            "http://a/ - /tmp/x",
            "http://a/ - ~root/x",
            "http://a/ - bagit.txt",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
