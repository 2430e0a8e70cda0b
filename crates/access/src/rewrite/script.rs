//! Scripts: the modules that they import by an absolute address.
//!
//! A relative specifier is resolved by the browser against the address of the module, which is one of ours already. A script
//! is not changed otherwise: what it asks for while it runs is led here by the script of replay.

use std::sync::LazyLock;

use regex::bytes::{Captures, Regex};

use crate::replay_address::ReplayAddress;

/// `import … from "…"`, `export … from "…"`, `import "…"` and `import("…")` of an absolute address.
static IMPORT: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r#"(?-u)(\b(?:import|export)\s*(?:[\w$*{}\s,]{0,4000}?\bfrom\s*|[{][\w$\s,]{0,4000}?[}]\s*from\s*)?\(?\s*)(["'])((?:https?:)?//[^"'\\\s]+|/[^"'\\\s]*)(["'])"#;
    Regex::new(pattern).expect("the pattern is tested")
});

pub(super) fn rewrite(script: &[u8], address: &ReplayAddress<'_>) -> Vec<u8> {
    rewrite_with(script, &|link| address.rewritten(link, "js_"))
}

pub(super) fn rewrite_with(script: &[u8], link: &dyn Fn(&str) -> String) -> Vec<u8> {
    // Most scripts import nothing, and need no search.
    if memchr::memmem::find(script, b"import").is_none()
        && memchr::memmem::find(script, b"export").is_none()
    {
        return script.to_vec();
    }
    let replace = |found: &Captures<'_>| {
        let whole = found[0].to_vec();
        let Ok(url) = str::from_utf8(&found[3]) else {
            return whole;
        };
        if found[2] != found[4] {
            return whole;
        }
        let to = link(url).replace('"', "%22").replace('\'', "%27");
        [&found[1], &found[2], to.as_bytes(), &found[4]].concat()
    };
    IMPORT.replace_all(script, replace).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absolute_imports_are_rewritten_and_nothing_else() {
        let rewritten = |script: &str| {
            let out = rewrite_with(script.as_bytes(), &|link| format!("/js_/{link}"));
            String::from_utf8(out).unwrap()
        };
        for (script, expected) in [
            ("import a from '/a.js';", "import a from '/js_//a.js';"),
            (
                "import{a,b as c}from\"/a.js\"",
                "import{a,b as c}from\"/js_//a.js\"",
            ),
            (
                "import * as x from 'https://c.example/x.js'",
                "import * as x from '/js_/https://c.example/x.js'",
            ),
            (
                "import '//c.example/x.js'",
                "import '/js_///c.example/x.js'",
            ),
            ("export{a}from'/a.js'", "export{a}from'/js_//a.js'"),
            (
                "const p=()=>import('/chunk.js')",
                "const p=()=>import('/js_//chunk.js')",
            ),
            ("import a from './a.js'", "import a from './a.js'"),
            ("import a from 'vue'", "import a from 'vue'"),
            (
                "x = '/a.js'; important('/b')",
                "x = '/a.js'; important('/b')",
            ),
        ] {
            assert_eq!(rewritten(script), expected);
        }
    }
}
