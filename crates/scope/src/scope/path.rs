//! Paths that feed on themselves: `/a/b/a/b/a/b/`.

/// Segments that are looked at; the rule on their number rejects what has more.
const MOST_SEGMENTS: usize = 256;

/// Returns the block of segments that stands more than `repetitions` times in a row.
///
/// This is Heritrix's `.*?/(.*?/)\1{n,}.*` on the path: whole segments, an empty one too, each with its slash. A row of
/// blocks of one length shows as a run of segments that equal those one length before, so one pass for each length
/// finds it; nothing is tried twice.
pub(super) fn repeated_block(path: &str, repetitions: usize) -> Option<&str> {
    // Where each segment begins; the last has no slash and belongs to no block.
    let begins: Vec<usize> = memchr::memchr_iter(b'/', path.as_bytes())
        .map(|slash| slash + 1)
        .take(MOST_SEGMENTS + 1)
        .collect();
    let count = begins.len().saturating_sub(1);
    let segment = |index: usize| &path[begins[index]..begins[index + 1]];
    let blocks = repetitions + 1;
    for length in 1..=count / blocks {
        let mut run = 0;
        for index in length..count {
            run = if segment(index) == segment(index - length) {
                run + 1
            } else {
                0
            };
            if run == length * repetitions {
                let first = index + 1 - length;
                return Some(&path[begins[first]..begins[first + length]]);
            }
        }
    }
    None
}

/// Returns the segment that stands in the path more than `limit` times, wherever.
pub(super) fn frequent_segment(path: &str, limit: usize) -> Option<&str> {
    let mut segments: Vec<&str> = path
        .split('/')
        .filter(|segment| !segment.is_empty())
        .take(MOST_SEGMENTS)
        .collect();
    segments.sort_unstable();
    segments
        .chunk_by(|a, b| a == b)
        .find(|chunk| chunk.len() > limit)
        .and_then(|chunk| chunk.first().copied())
}

/// How many segments a path has, as Heritrix counts them: slashes after the first, the last segment included.
pub(super) fn segments(path: &str) -> usize {
    let path = path.strip_suffix('/').unwrap_or(path);
    memchr::memchr_iter(b'/', path.as_bytes()).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn blocks_in_a_row_are_found() {
        for (path, block) in [
            ("/a/a/a/", Some("a/")),
            ("/x/a/a/a/y", Some("a/")),
            ("/a/b/a/b/a/b/c", Some("a/b/")),
            ("////", Some("/")),
            ("/a/a/a", None),
            ("/a/a/b/a/a/", None),
            ("/a/b/a/b/a/", None),
            ("/", None),
            ("", None),
            ("/images/images/photo.jpg", None),
        ] {
            assert_eq!(repeated_block(path, 2), block, "{path}");
        }
        assert_eq!(repeated_block("/a/a/", 1), Some("a/"));
        assert_eq!(repeated_block("/a/a/a/", 3), None);
    }

    #[test]
    fn a_long_path_costs_no_time() {
        let path: String = (0..100_000).map(|n| format!("/{}", n % 251)).collect();
        assert_eq!(repeated_block(&path, 2), None);
        assert_eq!(repeated_block(&"/".repeat(1_000_000), 2), Some("/"));
        assert_eq!(frequent_segment(&path, 2), None);
    }

    #[test]
    fn segments_are_counted() {
        for (path, count) in [
            ("/", 0),
            ("/a", 1),
            ("/a/", 1),
            ("/a/b", 2),
            ("", 0),
            ("//", 1),
        ] {
            assert_eq!(segments(path), count, "{path}");
        }
        assert_eq!(frequent_segment("/a/b/a/c/a/d", 2), Some("a"));
        assert_eq!(frequent_segment("/a/b/a/c", 2), None);
        assert_eq!(frequent_segment("/////", 2), None);
    }

    proptest! {
        /// Heritrix's expression, by trying every place and every block.
        #[test]
        fn found_where_the_expression_matches(path in "(/[ab]{0,2}){0,9}/?", repetitions in 1usize..4) {
            let tried = path.match_indices('/').any(|(slash, _)| {
                let rest = &path[slash + 1..];
                rest.match_indices('/').any(|(end, _)| {
                    let block = &rest[..=end];
                    let mut after = &rest[end + 1..];
                    (0..repetitions).all(|_| match after.strip_prefix(block) {
                        Some(left) => {
                            after = left;
                            true
                        }
                        None => false,
                    })
                })
            });
            prop_assert_eq!(repeated_block(&path, repetitions).is_some(), tried);
        }
    }
}
