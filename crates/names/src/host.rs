//! The host of a URL as a name of DNS: what is refused, and what is noted.

use idna::uts46::{AsciiDenyList, Hyphens, Uts46};

use crate::context;
use crate::flags::NameFlags;
use crate::reason::RejectReason;

/// The longest label DNS can carry.
const LABEL_BYTES: usize = 63;
/// The longest name, as text without its trailing dot.
const NAME_BYTES: usize = 253;
/// Last labels that no DNS of the world knows.
const LOCAL: [&str; 5] = ["internal", "invalid", "local", "localhost", "onion"];

/// Tells whether names that end so are of one machine or one network only.
pub(crate) fn is_local(last_label: &[u8]) -> bool {
    LOCAL.iter().any(|local| local.as_bytes() == last_label)
}

/// Tells whether a byte may stand in a label: letters, digits, hyphen, and the underscore that STD3 forbids.
pub(crate) const fn is_label_byte(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_')
}

/// Checks a domain as the URL parser writes it, without its trailing dot; returns what is worth noting.
pub(crate) fn check(name: &str) -> Result<NameFlags, RejectReason> {
    let bytes = name.as_bytes();
    if name.is_empty() || name.split('.').any(str::is_empty) {
        return Err(RejectReason::EmptyLabel);
    }
    if !bytes
        .iter()
        .all(|byte| is_label_byte(*byte) || *byte == b'.')
    {
        return Err(RejectReason::BadName);
    }
    if name.split('.').any(|label| label.len() > LABEL_BYTES) {
        return Err(RejectReason::LabelTooLong);
    }
    if name.len() > NAME_BYTES {
        return Err(RejectReason::NameTooLong);
    }
    if is_local(
        bytes
            .rsplit(|byte| *byte == b'.')
            .next()
            .unwrap_or_default(),
    ) {
        return Err(RejectReason::Local);
    }
    if !name.contains('.') && !crate::Registered::of(name).flags.has(NameFlags::SUFFIX) {
        return Err(RejectReason::OneLabel);
    }
    let mut flags = NameFlags::WWW.when(name.starts_with("www."));
    for label in name.split('.') {
        flags = flags.with(label_flags(label)?);
    }
    Ok(flags)
}

fn label_flags(label: &str) -> Result<NameFlags, RejectReason> {
    let mut flags = NameFlags::UNDERSCORE.when(label.contains('_'));
    if label.starts_with("xn--") {
        return Ok(flags.with(international_flags(label)?));
    }
    let is_odd = label.starts_with('-')
        || label.ends_with('-')
        || label[2.min(label.len())..].starts_with("--");
    flags = flags.with(NameFlags::HYPHENS.when(is_odd));
    Ok(flags)
}

/// Looks at an A-label as people see it. It must come back the same: two spellings of one label would be two names.
fn international_flags(label: &str) -> Result<NameFlags, RejectReason> {
    if let Some(shown) = strict_form(label) {
        return Ok(shown_flags(&shown));
    }
    match context::unicode_label(label) {
        Some(shown) => Ok(shown_flags(&shown).with(NameFlags::CONTEXT)),
        None => Err(RejectReason::BadName),
    }
}

/// Returns an A-label as people see it, when all of UTS 46 agrees.
fn strict_form(label: &str) -> Option<String> {
    let uts46 = Uts46::new();
    let (shown, good) = uts46.to_unicode(label.as_bytes(), AsciiDenyList::URL, Hyphens::Allow);
    let again = uts46.to_ascii(
        shown.as_bytes(),
        AsciiDenyList::URL,
        Hyphens::Allow,
        idna::uts46::DnsLength::Ignore,
    );
    let is_good = good.is_ok() && matches!(&again, Ok(again) if again == label);
    is_good.then(|| shown.into_owned())
}

fn shown_flags(shown: &str) -> NameFlags {
    NameFlags::IDN
        .with(NameFlags::MIXED.when(is_mixed(shown)))
        .with(NameFlags::DEVIATION.when(shown.contains(['ß', 'ς', '\u{200c}', '\u{200d}'])))
        .with(NameFlags::HYPHENS.when(shown.starts_with('-') || shown.ends_with('-')))
}

/// Tells whether a label has letters of scripts that look alike and are written together by nobody honest.
fn is_mixed(label: &str) -> bool {
    let is_latin = |c: char| c.is_ascii_alphabetic() || ('\u{c0}'..='\u{24f}').contains(&c);
    let is_lookalike = |c: char| {
        // Greek and Coptic, Cyrillic with its supplements, Armenian, Cherokee.
        matches!(c, '\u{370}'..='\u{58f}' | '\u{13a0}'..='\u{13ff}' | '\u{1c80}'..='\u{1c8f}' | '\u{1f00}'..='\u{1fff}' | '\u{2de0}'..='\u{2dff}' | '\u{a640}'..='\u{a69f}' | '\u{ab70}'..='\u{abbf}')
    };
    label.contains(is_latin) && label.contains(is_lookalike)
}
