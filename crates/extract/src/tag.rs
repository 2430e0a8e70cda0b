//! The text of a start tag of HTML, taken apart.

use std::borrow::Cow;

/// An attribute as it stands in the document, character references and all; its name is in lower case.
#[derive(Debug)]
pub(crate) struct Attribute<'t> {
    pub(crate) name: Cow<'t, str>,
    pub(crate) value: Cow<'t, str>,
}

impl Attribute<'_> {
    /// Returns the value with its character references resolved.
    pub(crate) fn text(&self) -> Cow<'_, str> {
        if memchr::memchr(b'&', self.value.as_bytes()).is_none() {
            return Cow::Borrowed(&self.value);
        }
        htmlize::unescape_attribute(&*self.value)
    }
}

/// Returns the name of the element and those of its attributes that are `wanted`; `tag` is all from `<` to `>`.
///
/// Of attributes with the same name the first counts, as the standard says.
pub(crate) fn parse(
    tag: &str,
    wanted: impl Fn(&str) -> bool,
) -> (Cow<'_, str>, Vec<Attribute<'_>>) {
    let tag = tag.strip_prefix('<').unwrap_or(tag);
    let tag = tag.strip_suffix('>').unwrap_or(tag);
    let bytes = tag.as_bytes();
    let mut at = position(bytes, 0, |byte| is_space(byte) || byte == b'/');
    let element = lower_case(&tag[..at]);
    let mut attributes: Vec<Attribute<'_>> = Vec::new();
    loop {
        at = position(bytes, at, |byte| !is_space(byte) && byte != b'/');
        if at >= bytes.len() {
            return (element, attributes);
        }
        // An equals sign cannot end a name that has not begun.
        let end = position(bytes, at + 1, |byte| {
            is_space(byte) || matches!(byte, b'/' | b'=')
        });
        let name = lower_case(&tag[at..end]);
        let (value, next) = value(tag, end);
        at = next;
        if wanted(&name) && attributes.iter().all(|known| known.name != name) {
            attributes.push(Attribute {
                name,
                value: Cow::Borrowed(value),
            });
        }
    }
}

/// Reads the value after a name that ends at `from`, and returns it with where it ends.
fn value(tag: &str, from: usize) -> (&str, usize) {
    let bytes = tag.as_bytes();
    let at = position(bytes, from, |byte| !is_space(byte));
    if bytes.get(at) != Some(&b'=') {
        return ("", from);
    }
    let start = position(bytes, at + 1, |byte| !is_space(byte));
    match bytes.get(start) {
        Some(&quote @ (b'"' | b'\'')) => {
            let end = memchr::memchr(quote, &bytes[start + 1..])
                .map_or(bytes.len(), |length| start + 1 + length);
            (&tag[start + 1..end], end + 1)
        }
        _ => {
            let end = position(bytes, start, is_space);
            (&tag[start..end], end)
        }
    }
}

fn position(bytes: &[u8], from: usize, found: impl Fn(u8) -> bool) -> usize {
    let from = from.min(bytes.len());
    bytes[from..]
        .iter()
        .position(|&byte| found(byte))
        .map_or(bytes.len(), |length| from + length)
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0C)
}

fn lower_case(text: &str) -> Cow<'_, str> {
    if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(text.to_ascii_lowercase())
    } else {
        Cow::Borrowed(text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(tag: &str) -> String {
        let (element, attributes) = parse(tag, |_| true);
        let mut text = element.into_owned();
        for attribute in attributes {
            text.push_str(&format!(" {}={}", attribute.name, attribute.value));
        }
        text
    }

    #[test]
    fn tags_are_taken_apart() {
        for (tag, expected) in [
            ("<a>", "a"),
            ("<A HREF=x>", "a href=x"),
            ("<a href='x y' b = \"c>d\" e>", "a href=x y b=c>d e="),
            ("<a/b/c=d/>", "a b= c=d/"),
            ("<a =b=c>", "a =b=c"),
            ("<a href=x href=y>", "a href=x"),
            ("<a\n\thref\n=\nx\n>", "a href=x"),
            ("<a b=''c=d>", "a b= c=d"),
            ("<a é=é>", "a é=é"),
            ("<a b=", "a b="),
            ("<", ""),
        ] {
            assert_eq!(parsed(tag), expected, "{tag}");
        }
    }

    proptest! {
        #[test]
        fn tags_are_taken_apart_as_the_parser_does(inner in "[a-cA /='\"\n&é]{0,24}") {
            let tag = format!("<a {inner}>");
            let mut expected = None;
            let mut rewriter = lol_html::HtmlRewriter::new(
                lol_html::Settings::new().append_element_content_handler(lol_html::element!("*", |element| {
                    let tag = &tag[element.source_location().bytes()];
                    let mut text = element.tag_name();
                    let mut names = Vec::new();
                    for attribute in element.attributes() {
                        if !names.contains(&attribute.name()) {
                            names.push(attribute.name());
                            text.push_str(&format!(" {}={}", attribute.name(), attribute.value()));
                        }
                    }
                    expected = Some((parsed(tag), text));
                    Ok(())
                })),
                |_: &[u8]| {},
            );
            rewriter.write(tag.as_bytes()).unwrap();
            rewriter.end().unwrap();
            if let Some((ours, theirs)) = expected {
                prop_assert_eq!(ours, theirs);
            }
        }
    }
}
