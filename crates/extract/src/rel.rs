//! What the relations of a link say of it.

/// What a linked resource is to the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The page is not whole without it.
    Requisite,
    /// A browser may fetch it, and the page is whole without it.
    Spare,
    /// A reader may go there.
    Navigation,
    /// A hint for the network, or a door for programs.
    Ignored,
}

/// Returns what a list of relations says.
pub(crate) fn role(rel: &str) -> Role {
    let mut role = None;
    for word in rel.split_ascii_whitespace() {
        let found = match word.to_ascii_lowercase().as_str() {
            // `alternate stylesheet` is a style sheet: the strongest word wins.
            "stylesheet"
            | "icon"
            | "apple-touch-icon"
            | "apple-touch-icon-precomposed"
            | "apple-touch-startup-image"
            | "mask-icon"
            | "fluid-icon"
            | "preload"
            | "modulepreload"
            | "manifest"
            | "import" => return Role::Requisite,
            "prefetch" | "prerender" | "image_src" | "subresource" => Role::Spare,
            "dns-prefetch"
            | "preconnect"
            | "pingback"
            | "edituri"
            | "wlwmanifest"
            | "profile"
            | "openid.server"
            | "openid.delegate"
            | "openid2.provider"
            | "openid2.local_id"
            | "https://api.w.org/"
            | "webmention"
            | "micropub"
            | "authorization_endpoint"
            | "token_endpoint"
            | "hub" => Role::Ignored,
            _ => Role::Navigation,
        };
        // `shortcut icon` has been dealt with; otherwise the first word speaks.
        role.get_or_insert(found);
    }
    role.unwrap_or(Role::Navigation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relations_are_told_apart() {
        for (rel, expected) in [
            ("stylesheet", Role::Requisite),
            ("Alternate StyleSheet", Role::Requisite),
            ("shortcut icon", Role::Requisite),
            ("preload", Role::Requisite),
            ("manifest", Role::Requisite),
            ("prefetch", Role::Spare),
            ("canonical", Role::Navigation),
            ("alternate", Role::Navigation),
            ("next nofollow", Role::Navigation),
            ("", Role::Navigation),
            ("unheard-of", Role::Navigation),
            ("dns-prefetch", Role::Ignored),
            ("preconnect", Role::Ignored),
            ("EditURI", Role::Ignored),
        ] {
            assert_eq!(role(rel), expected, "{rel}");
        }
    }
}
