//! Time zones by name, from the system's files.

use std::path::Path;

use jiff::tz::TimeZone;

/// Where the system keeps them.
const ZONES: &str = "/usr/share/zoneinfo";

/// Returns a zone by its name, such as `Europe/Paris`.
pub(crate) fn zone_named(name: &str) -> Option<TimeZone> {
    if name == "UTC" {
        return Some(TimeZone::UTC);
    }
    let is_part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_uppercase())
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"_-+".contains(&byte))
    };
    if !name.split('/').all(is_part) {
        return None;
    }
    let bytes = std::fs::read(Path::new(ZONES).join(name)).ok()?;
    TimeZone::tzif(name, &bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_is_a_name_and_no_path() {
        assert!(zone_named("Europe/Paris").is_some());
        assert!(zone_named("UTC").is_some());
        for name in [
            "",
            "../passwd",
            "/etc/passwd",
            "Europe/",
            "Europe",
            "Europe/Nowhere",
            "tzdata.zi",
        ] {
            assert!(zone_named(name).is_none(), "{name}");
        }
    }
}
