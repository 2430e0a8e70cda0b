//! International labels that UTS 46 refuses for what stands around their characters only: the rule for text from right to left
//! (RFC 5893), and joiners where no script needs one (RFC 5892, appendix A).
//!
//! DNS carries such names and some registries gave them, so they are kept and flagged. The `idna` crate cannot leave these two checks
//! out; here are the others of UTS 46, on the same tables.

use idna::punycode;
use idna_adapter::Adapter;

use crate::host::is_label_byte;

/// A longer host is not looked at: Punycode takes time with the square of the length.
const HOST_CHARS: usize = 1_000;
/// What an international label begins with.
const ASCII_FORM: &str = "xn--";

/// Returns a host with A-labels, when nothing but its context is wrong.
pub(crate) fn ascii_form(host: &str) -> Option<String> {
    if host.chars().nth(HOST_CHARS).is_some() {
        return None;
    }
    let adapter = Adapter::new();
    let mapped: String = adapter.map_normalize(host.chars()).collect();
    let labels = mapped.split('.').map(|label| {
        if label.starts_with(ASCII_FORM) {
            return unicode_label(label).map(|_| label.to_owned());
        }
        if label.is_ascii() {
            return is_ascii_label(label).then(|| label.to_owned());
        }
        must_be_valid(&adapter, label)?;
        Some(format!("{ASCII_FORM}{}", punycode::encode_str(label)?))
    });
    Some(labels.collect::<Option<Vec<String>>>()?.join("."))
}

/// Returns an A-label as people see it, when it comes back the same and nothing but its context can be wrong.
pub(crate) fn unicode_label(label: &str) -> Option<String> {
    let code = label.strip_prefix(ASCII_FORM)?;
    if code.len() > HOST_CHARS {
        return None;
    }
    let shown = punycode::decode_to_string(code)?;
    let adapter = Adapter::new();
    let is_same = adapter.normalize_validate(shown.chars()).eq(shown.chars());
    if shown.is_ascii() || !is_same || punycode::encode_str(&shown)? != code {
        return None;
    }
    must_be_valid(&adapter, &shown)?;
    Some(shown)
}

/// Gives none for a label with a character that no label has, or that begins with a mark or as an A-label.
fn must_be_valid(adapter: &Adapter, label: &str) -> Option<()> {
    let is_fit = |c: char| match u8::try_from(c) {
        Ok(byte) if byte.is_ascii() => is_label_byte(byte),
        _ => c != '\u{fffd}',
    };
    let first = label.chars().next()?;
    let is_begun_well = !adapter.is_mark(first) && !label.starts_with(ASCII_FORM);
    (is_begun_well && label.chars().all(is_fit)).then_some(())
}

fn is_ascii_label(label: &str) -> bool {
    label.bytes().all(is_label_byte)
}
