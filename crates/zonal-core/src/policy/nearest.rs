//! The name that a mistyped one most likely stands for.

/// Longer names are not compared.
const LEN_MAX: usize = 48;

/// The name nearest to `written`: the one with the fewest letters to insert, remove or change, if
/// these are at most a third of the longer of the two. The first of several.
///
/// ```
/// use zonal_core::policy::nearest::nearest;
///
/// let names = ["pcp.batch", "pcp.orders", "numa.stat"];
/// assert_eq!(nearest("pcp.bacth", names), Some("pcp.batch"));
/// assert_eq!(nearest("nonsense", names), None);
/// ```
pub fn nearest<'n>(written: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let mut best = None;
    for name in names {
        let most = written.len().max(name.len()) / 3;
        let Some(edits) = edits(written.as_bytes(), name.as_bytes()) else { continue };
        if edits <= most && best.is_none_or(|(least, _)| edits < least) {
            best = Some((edits, name));
        }
    }
    best.map(|(_, name)| name)
}

/// Bytes to insert, remove or change to make `b` of `a`; `None` if one is too long.
fn edits(a: &[u8], b: &[u8]) -> Option<usize> {
    if a.len() > LEN_MAX || b.len() > LEN_MAX {
        return None;
    }
    // `row[j]`: edits from the prefix of `a` read so far to the first `j` bytes of `b`.
    let mut row = [0; LEN_MAX + 1];
    (0..=b.len()).for_each(|j| row[j] = j);
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    Some(row[b.len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_those_of_levenshtein() {
        for (a, b, n) in [
            ("", "", 0),
            ("", "abc", 3),
            ("kitten", "sitting", 3),
            ("abc", "abc", 0),
            ("ab", "ba", 2),
        ] {
            assert_eq!(edits(a.as_bytes(), b.as_bytes()), Some(n), "{a} {b}");
            assert_eq!(edits(b.as_bytes(), a.as_bytes()), Some(n), "{b} {a}");
        }
        assert_eq!(edits(&[b'a'; LEN_MAX + 1], b"a"), None);
    }

    #[test]
    fn each_setting_with_one_letter_missing_or_wrong_is_found_again() {
        let keys = || crate::policy::set::SETTINGS.iter().map(|setting| setting.key);
        for key in keys() {
            assert!(key.len() <= LEN_MAX, "{key}");
            let mut wrong = [b'~'; LEN_MAX];
            wrong[..key.len()].copy_from_slice(key.as_bytes());
            wrong[key.len() / 2] = b'~';
            let wrong = core::str::from_utf8(&wrong[..key.len()]).unwrap();
            let found = nearest(wrong, keys()).unwrap();
            assert_eq!(edits(wrong.as_bytes(), found.as_bytes()), Some(1), "{wrong}: {found}");
            let found = nearest(&key[..key.len() - 1], keys()).unwrap();
            assert!(found == key || found == &key[..key.len() - 1], "{key}: {found}");
        }
    }
}
