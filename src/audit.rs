//! The audit log: who changed what, when and why. One line of JSON for each, only ever appended.

use std::fs::OpenOptions;
use std::io::Write;

use ecluse_stage::Exit;

use crate::context::{DriverContext, Trouble};

/// Where it lies, under the root.
pub(crate) const FILE: &str = "audit.jsonl";

/// One line of the log.
pub(crate) struct Line<'a> {
    pub(crate) verb: &'a str,
    pub(crate) stage: &'a str,
    pub(crate) parcel: Option<&'a str>,
    pub(crate) why: Option<&'a str>,
    pub(crate) outcome: &'a str,
}

/// Returns who gives the orders: the person behind sudo, else the user.
pub(crate) fn who() -> String {
    ["SUDO_USER", "USER", "LOGNAME"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
        .unwrap_or_else(|| format!("uid {}", rustix::process::getuid().as_raw()))
}

/// Writes one line, in one write, so that two operators never mix theirs.
pub(crate) fn write(context: &DriverContext, line: &Line<'_>) -> Result<(), Trouble> {
    let value = serde_json::json!({
        "time": jiff::Timestamp::now().to_string(),
        "who": who(),
        "host": context.engine.host().name,
        "verb": line.verb,
        "stage": line.stage,
        "parcel": line.parcel,
        "why": line.why,
        "outcome": line.outcome,
    });
    let path = context.root.join(FILE);
    let written = OpenOptions::new()
        .append(true)
        .create(true)
        .open(&path)
        .and_then(|mut file| file.write_all(format!("{value}\n").as_bytes()));
    written.map_err(|e| {
        Trouble::new(
            Exit::Machine,
            format!("cannot write {}: {e}", path.display()),
        )
    })
}
