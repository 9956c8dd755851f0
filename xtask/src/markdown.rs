//! Markdown as far as checks need it: links, headings, anchors.

use std::collections::BTreeSet;

/// The lines outside of fenced code, with their indices.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fence = None;
    text.lines().enumerate().filter(move |(_, line)| {
        let start = line.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|mark| start.starts_with(mark));
        match (fence, mark) {
            (None, Some(mark)) => fence = Some(mark),
            (Some(open), Some(mark)) if open == mark => fence = None,
            _ => {}
        }
        fence.is_none() && mark.is_none()
    })
}

/// Lines and targets of all links outside of code.
pub fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (index, line) in prose(text) {
        let start = line.trim_start();
        let in_code = |at: usize| line[..at].matches('`').count() % 2 == 1;
        for opening in ["](", "src=\"", "href=\""] {
            for (at, _) in line.match_indices(opening).filter(|&(at, _)| !in_code(at)) {
                found.push((index + 1, target_at(&line[at + opening.len()..])));
            }
        }
        // `[name]: target` at the start of a line; `[^1]:` is a footnote.
        if let Some((name, rest)) = start.split_once("]: ")
            && name.starts_with('[')
            && !name.starts_with("[^")
        {
            found.push((index + 1, target_at(rest.trim_start())));
        }
    }
    found
}

/// `target)`, `<target>)`, `target "title")`, `target"`, up to its end.
fn target_at(rest: &str) -> &str {
    if let Some(rest) = rest.strip_prefix('<') {
        return rest.split('>').next().unwrap_or_default();
    }
    let mut nesting = 0_i32;
    let end = rest.find(|c: char| {
        nesting += i32::from(c == '(') - i32::from(c == ')');
        nesting < 0 || c.is_whitespace() || c == '"'
    });
    &rest[..end.unwrap_or(rest.len())]
}

/// What a link may name behind `#`: the slugs of all headings, as GitHub and mdBook make them, and
/// the ids of anchors.
pub fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (_, line) in prose(text) {
        for (at, sign) in line.match_indices("<a id=\"") {
            let id = line[at + sign.len()..].split('"').next().unwrap_or_default();
            found.insert(id.to_owned());
        }
        let level = line.len() - line.trim_start_matches('#').len();
        if (1..=6).contains(&level) && line[level..].starts_with(' ') {
            let slug = slug(line[level..].trim());
            let again = |n: &u32| !found.contains(&format!("{slug}-{n}"));
            let slug = match found.contains(&slug) {
                true => format!("{slug}-{}", (1..).find(again).unwrap_or_default()),
                false => slug,
            };
            found.insert(slug);
        }
    }
    found
}

/// Small letters, digits, `-` and `_`; blanks become `-`. Of a link its text counts.
fn slug(heading: &str) -> String {
    let mut text = String::new();
    let mut rest = heading;
    while let Some((before, after)) = rest.split_once("](") {
        text.push_str(before);
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    text.push_str(rest);
    let small = text.chars().flat_map(char::to_lowercase);
    let kept = small.filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | ' '));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_become_the_slugs_that_books_give_them() {
        assert_eq!(
            slug("`zonal replay`: what it *says*, and how"),
            "zonal-replay-what-it-says-and-how"
        );
        assert_eq!(slug("Layers of the [core](x.md)"), "layers-of-the-core");
        assert_eq!(slug("D.4 Free-list scan"), "d4-free-list-scan");
        let text = "# A\n```\n# no\n```\n## A\n## A\n<a id=\"z\"></a>\n#no\n";
        let expected = ["a", "a-1", "a-2", "z"].map(str::to_owned);
        assert_eq!(anchors(text), BTreeSet::from(expected));
    }
}
