//! Which captures of a page its calendar shows: those at which enough has changed since the last one shown.
//!
//! Every version is stored and can be seen; what is not shown is one link away.

use std::collections::HashSet;
use std::path::Path;

use ecluse_changes::{
    ChangesError, DayClass, PageChanges, PagePattern, PatternSums, SitePattern, VersionChange,
    read_records, site_of,
};
use ecluse_generation::IndexDirectory;
use ecluse_refresh::{IndexingOrder, indexed_versions};

/// Returns the times, in 14 digits, of the captures of a key that are shown; none where nothing is known of its changes, and
/// then all are.
pub(crate) fn shown_versions(
    changes: &Path,
    collection: Option<&str>,
    key: &str,
) -> Result<Option<HashSet<String>>, ChangesError> {
    let directory = IndexDirectory::of(changes, collection).ok();
    let Some(current) = directory.and_then(|directory| directory.current().ok().flatten()) else {
        return Ok(None);
    };
    let versions: Vec<VersionChange> = read_records(&current, key)?;
    let Some((first, later)) = versions.split_first() else {
        return Ok(None);
    };
    let weighed: Vec<f64> = later.iter().filter_map(|version| version.weight).collect();
    let mean = weighed.iter().sum::<f64>() / weighed.len().max(1) as f64;
    // A change that could not be weighed counts as others of the page do.
    let weights: Vec<f64> = later
        .iter()
        .map(|version| version.weight.unwrap_or(mean))
        .collect();
    let threshold = threshold(&current, key)?.unwrap_or(mean);
    let shown = indexed_versions(&weights, threshold, IndexingOrder::Corrected);
    let shown = later.iter().zip(shown).filter(|(_, is_shown)| *is_shown);
    let times = shown.map(|(version, _)| version.time.to_string());
    Ok(Some(times.chain([first.time.to_string()]).collect()))
}

/// Returns the mean weight of what the periods of the day bring, by the page's own pattern or its site's.
fn threshold(current: &Path, key: &str) -> Result<Option<f64>, ChangesError> {
    let page: Option<PageChanges> = read_records(current, key)?.pop();
    let own = page.is_some_and(|page| page.pattern == Some(ecluse_changes::PatternOf::Page));
    let sums = match own {
        true => read_records::<PagePattern>(current, key)?
            .pop()
            .map(|it| it.sums),
        false => read_records::<SitePattern>(current, site_of(key))?
            .pop()
            .map(|it| it.sums),
    };
    Ok(sums.as_ref().and_then(mean_gain))
}

fn mean_gain(sums: &PatternSums) -> Option<f64> {
    let periods = DayClass::ALL
        .into_iter()
        .flat_map(|class| (0..sums.periods()).map(move |period| (class, period)));
    let known: Vec<f64> = periods
        .filter_map(|(class, period)| sums.gain(class, period))
        .collect();
    let mean = known.iter().sum::<f64>() / known.len().max(1) as f64;
    (!known.is_empty()).then_some(mean)
}
