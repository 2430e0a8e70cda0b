//! The words of JavaScript that say something of what follows them.

use crate::chunks;

/// What a word says of the string or slash after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    Other,
    /// An expression follows, so a slash begins a regular expression.
    Operator,
    /// A function that searches, splits or names: its arguments are patterns and names.
    Pattern,
    /// A link is assigned to it, or it takes one: `href`, `open`.
    Link,
    /// `location`: a link is assigned to it, and its `replace` takes one.
    Location,
    /// `URL`: a link, relative to what follows it.
    Url,
    /// `import`, of a module, relative to the script and not to the page.
    Import,
    /// `from`, before the name of a module.
    From,
    /// `importScripts`, relative to the script too.
    Scripts,
    /// `.p`, where webpack keeps the directory of its files.
    PublicPath,
    /// The list of files that Vite loads beside a module.
    ViteFiles,
    /// The table of pages of VitePress.
    VitepressPages,
}

pub(super) fn is_word(byte: u8) -> bool {
    WORDS[usize::from(byte)]
}

/// The bytes that words are made of.
pub(super) static WORDS: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        let value = byte as u8;
        table[byte] =
            value.is_ascii_alphanumeric() || matches!(value, b'_' | b'$') || value >= 0x80;
        byte += 1;
    }
    table
};

pub(super) fn word(bytes: &[u8]) -> Word {
    match bytes {
        b"return" | b"typeof" | b"case" | b"in" | b"of" | b"delete" | b"void" | b"do" | b"else"
        | b"instanceof" | b"new" | b"throw" | b"yield" | b"await" => Word::Operator,
        b"split"
        | b"replace"
        | b"replaceAll"
        | b"indexOf"
        | b"lastIndexOf"
        | b"includes"
        | b"startsWith"
        | b"endsWith"
        | b"match"
        | b"search"
        | b"test"
        | b"join"
        | b"RegExp"
        | b"querySelector"
        | b"querySelectorAll"
        | b"getElementById"
        | b"getElementsByClassName"
        | b"getAttribute"
        | b"hasAttribute"
        | b"createElement"
        | b"createElementNS"
        | b"setAttributeNS"
        | b"addEventListener"
        | b"closest"
        | b"matches"
        | b"log"
        | b"warn"
        | b"error"
        | b"Error"
        | b"require"
        | b"define" => Word::Pattern,
        b"import" => Word::Import,
        b"from" => Word::From,
        b"importScripts" => Word::Scripts,
        b"location" => Word::Location,
        b"URL" => Word::Url,
        b"__vite__mapDeps" | b"__vite__fileDeps" => Word::ViteFiles,
        chunks::VITEPRESS_PAGES => Word::VitepressPages,
        b"href" | b"src" | b"open" | b"assign" | b"fetch" | b"getJSON" | b"getScript" | b"ajax"
        | b"url" | b"Url" | b"iconUrl" | b"imageUrl" | b"Worker" => Word::Link,
        _ => Word::Other,
    }
}
