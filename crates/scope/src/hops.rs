//! The way from a seed to a URL, one letter a hop, as Heritrix writes it.
//!
//! L navigation, E embed, X speculative, R redirect, P prerequisite, I inferred, M manifest (sitemap), S form.

/// Tells whether what was found this way is part of a page: an embed, or where an embed redirects to.
pub fn is_requisite(hops: &str) -> bool {
    let before_redirects = hops.trim_end_matches('R');
    before_redirects.ends_with(['E', 'I'])
}

/// Tells whether the way ends in something that must be fetched before something else: DNS, robots.txt.
pub fn is_prerequisite(hops: &str) -> bool {
    hops.ends_with('P')
}

/// Tells whether every letter is one of the eight.
pub fn is_path(hops: &str) -> bool {
    hops.bytes().all(|hop| b"LEXRPIMS".contains(&hop))
}

/// How many pages away from the seed it is: links, forms and sitemaps followed.
pub fn depth(hops: &str) -> usize {
    hops.bytes().filter(|hop| is_navigation(*hop)).count()
}

/// The hops after the last navigation, counted by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trail {
    /// All of them.
    pub all: usize,
    /// Redirects among them.
    pub redirects: usize,
    /// Speculative ones among them.
    pub speculative: usize,
}

impl Trail {
    /// Counts the end of a way.
    pub fn of(hops: &str) -> Trail {
        let mut trail = Trail::default();
        for hop in hops.bytes().rev().take_while(|hop| !is_navigation(*hop)) {
            trail.all += 1;
            trail.redirects += usize::from(hop == b'R');
            trail.speculative += usize::from(hop == b'X');
        }
        trail
    }
}

fn is_navigation(hop: u8) -> bool {
    matches!(hop, b'L' | b'S' | b'M')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requisites_are_embeds_and_where_they_lead() {
        for hops in ["E", "LLE", "LER", "ERR", "LEE", "I", "LXE"] {
            assert!(is_requisite(hops), "{hops}");
        }
        for hops in ["", "L", "R", "LR", "EL", "X", "EX", "P", "LEP", "M"] {
            assert!(!is_requisite(hops), "{hops}");
        }
    }

    #[test]
    fn a_trail_begins_after_the_last_page() {
        let trail = |all, redirects, speculative| Trail {
            all,
            redirects,
            speculative,
        };
        assert_eq!(Trail::of(""), trail(0, 0, 0));
        assert_eq!(Trail::of("LEL"), trail(0, 0, 0));
        assert_eq!(Trail::of("LERX"), trail(3, 1, 1));
        assert_eq!(Trail::of("RR"), trail(2, 2, 0));
        assert_eq!(Trail::of("XMS"), trail(0, 0, 0));
        assert_eq!(depth("LERSMXL"), 4);
        assert!(is_path("LEXRPIMS") && !is_path("LeX") && is_path(""));
    }
}
