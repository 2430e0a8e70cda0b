//! What was handed over, as PREMIS 3: an event of the hand-over and one of the identifiers given, for all files of a package.

use std::fmt::Write;

use ecluse_manifest::{DepositFile, PackageRow};

/// Returns the document for a package whose files all have receipts.
pub(crate) fn document(row: &PackageRow, files: &[DepositFile], version: &str) -> String {
    let mut xml = String::from(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <premis:premis xmlns:premis=\"http://www.loc.gov/premis/v3\" xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" version=\"3.0\">\n",
    );
    for file in files {
        object(&mut xml, file);
    }
    let last = files
        .iter()
        .filter_map(|file| file.receipted.as_deref())
        .max();
    let last = last.unwrap_or_default();
    let all: Vec<&DepositFile> = files.iter().collect();
    let note = format!(
        "package {} ({}): {} files, each with a receipt",
        row.package,
        row.ark,
        files.len()
    );
    event(&mut xml, "transfer", "tra", last, &note, &all);
    let named: Vec<&DepositFile> = files.iter().filter(|f| f.identifier.is_some()).collect();
    if !named.is_empty() {
        let note = "identifiers given by the repository";
        event(&mut xml, "identifier assignment", "ida", last, note, &named);
    }
    let _ = write!(
        xml,
        "<premis:agent><premis:agentIdentifier><premis:agentIdentifierType>local</premis:agentIdentifierType>\
         <premis:agentIdentifierValue>{AGENT}</premis:agentIdentifierValue></premis:agentIdentifier>\
         <premis:agentName>{AGENT}</premis:agentName><premis:agentType>software</premis:agentType>\
         <premis:agentVersion>{}</premis:agentVersion></premis:agent>\n</premis:premis>\n",
        escaped(version)
    );
    xml
}

const AGENT: &str = "ecluse-deposit";

fn object(xml: &mut String, file: &DepositFile) {
    let mut identifiers = identifier("local", &file.key.file);
    if let Some(given) = &file.identifier {
        identifiers.push_str(&identifier("repository", given));
    }
    let _ = writeln!(
        xml,
        "<premis:object xsi:type=\"premis:file\">{identifiers}<premis:objectCharacteristics>\
         <premis:fixity><premis:messageDigestAlgorithm>SHA-256</premis:messageDigestAlgorithm>\
         <premis:messageDigest>{}</premis:messageDigest></premis:fixity><premis:size>{}</premis:size>\
         <premis:format><premis:formatDesignation><premis:formatName>{}</premis:formatName></premis:formatDesignation></premis:format>\
         </premis:objectCharacteristics></premis:object>",
        escaped(&file.key.sha256),
        file.bytes,
        escaped(&file.role)
    );
}

fn identifier(kind: &str, value: &str) -> String {
    format!(
        "<premis:objectIdentifier><premis:objectIdentifierType>{kind}</premis:objectIdentifierType>\
         <premis:objectIdentifierValue>{}</premis:objectIdentifierValue></premis:objectIdentifier>",
        escaped(value)
    )
}

fn event(xml: &mut String, name: &str, code: &str, at: &str, note: &str, files: &[&DepositFile]) {
    let _ = write!(
        xml,
        "<premis:event><premis:eventIdentifier><premis:eventIdentifierType>local</premis:eventIdentifierType>\
         <premis:eventIdentifierValue>{code}-{}</premis:eventIdentifierValue></premis:eventIdentifier>\
         <premis:eventType authority=\"eventType\" authorityURI=\"http://id.loc.gov/vocabulary/preservation/eventType\" \
         valueURI=\"http://id.loc.gov/vocabulary/preservation/eventType/{code}\">{name}</premis:eventType>\
         <premis:eventDateTime>{}</premis:eventDateTime>\
         <premis:eventDetailInformation><premis:eventDetail>{}</premis:eventDetail></premis:eventDetailInformation>\
         <premis:eventOutcomeInformation><premis:eventOutcome>success</premis:eventOutcome></premis:eventOutcomeInformation>\
         <premis:linkingAgentIdentifier><premis:linkingAgentIdentifierType>local</premis:linkingAgentIdentifierType>\
         <premis:linkingAgentIdentifierValue>{AGENT}</premis:linkingAgentIdentifierValue></premis:linkingAgentIdentifier>",
        escaped(at),
        escaped(at),
        escaped(note)
    );
    for file in files {
        let _ = write!(
            xml,
            "<premis:linkingObjectIdentifier><premis:linkingObjectIdentifierType>local</premis:linkingObjectIdentifierType>\
             <premis:linkingObjectIdentifierValue>{}</premis:linkingObjectIdentifierValue></premis:linkingObjectIdentifier>",
            escaped(&file.key.file)
        );
    }
    xml.push_str("</premis:event>\n");
}

/// Returns a text for XML; what XML cannot have at all becomes a replacement character.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\t' | '\n' | '\r' => escaped.push(' '),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            _ if character.is_control() => escaped.push('\u{fffd}'),
            _ => escaped.push(character),
        }
    }
    escaped
}
