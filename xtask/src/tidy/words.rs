//! Retired words: one thing has one name, and sentences say who does what.
//!
//! `docs/GLOSSARY.md` has the names. [`RETIRED`] is what must not come back: a word or phrase, what
//! to write in its place, and where that holds. *Prose* is comments, string literals and Markdown;
//! a phrase is found across the lines of a comment. *Names* are identifiers, by their parts:
//! `pageset` is in `setup_pageset` and `PagesetInfo`. Files below `docs/linux` speak Linux'
//! language, and the glossary names what it retires; both are left alone.

use super::finding::Finding;
use super::scan::is_word;
use super::tree::{File, Tree};

/// Where a word is retired.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Prose,
    /// Identifiers, and prose too.
    Names,
}

/// A retired word.
struct Retired {
    /// Its forms, in small letters. Of a name, its parts with `_` between them.
    forms: &'static [&'static str],
    /// What to write.
    instead: &'static str,
    place: Place,
    /// Paths that it is retired below; an empty path is all of them.
    within: &'static [&'static str],
    /// Paths below these where it is another word.
    except: &'static [&'static str],
}

const ALL: &[&str] = &[""];

/// Where `pageset` is not used. Elsewhere it is a word of zoneinfo and of recordings.
const WITHOUT_PAGESETS: &[&str] = &[
    "crates/zonal-bench/",
    "crates/zonal-cache/",
    "crates/zonal-cli/src/",
    "crates/zonal-core/",
    "crates/zonal/src/pool/",
    "crates/zonal/src/reclaim/",
    "crates/zonal/src/rseq",
    "crates/zonal/src/sys/",
];

/// The table of 2019 has pagesets, and tests name it; readers of zoneinfo have the kernel's word.
const PAGESETS_OF_OTHERS: &[&str] = &[
    "crates/zonal-cli/src/lab/moves.rs",
    "crates/zonal-cli/src/watch/reading.rs",
    "crates/zonal-core/src/alloc/tests/mod.rs",
    "crates/zonal-core/src/history/",
];

/// The crates on one platform or more.
const WITH_A_PLATFORM: &[&str] = &[
    "crates/zonal-cache/",
    "crates/zonal-core/",
    "crates/zonal-lab/src/pagecache/",
    "crates/zonal-lab/src/platform.rs",
    "crates/zonal-lab/src/sim/",
    "crates/zonal-replay/",
    "crates/zonal/",
    "docs/",
];

const RETIRED: &[Retired] = &[
    prose(&["who only"], "the CPUs, threads or calls that only …"),
    prose(&["left to us", "left to us alone"], "what is left, by name"),
    prose(&["cannot be so"], "`invalid value for KEY`, and what is accepted"),
    prose(&["goes past no", "go past no"], "`never takes`"),
    prose(&["has it not", "have it not"], "`does not have it`, or `not modelled`"),
    prose(&["to be had"], "`available`"),
    prose(
        &[
            "min mark",
            "low mark",
            "high mark",
            "promo mark",
            "min marks",
            "low marks",
            "high marks",
        ],
        "`watermark`",
    ),
    Retired {
        forms: &["pageset", "pagesets"],
        instead: "`pcp`, and `pcp list` for one of its lists",
        place: Place::Names,
        within: WITHOUT_PAGESETS,
        except: PAGESETS_OF_OTHERS,
    },
    Retired {
        forms: &["long_way", "slow_way", "quick_way"],
        instead: "`the core`, `slow path` or `fast path`",
        place: Place::Names,
        within: ALL,
        except: &[],
    },
    Retired {
        forms: &["home", "homes"],
        instead: "`platform`",
        place: Place::Names,
        within: WITH_A_PLATFORM,
        except: &["crates/zonal/src/unsound.rs"],
    },
    Retired {
        forms: &["world", "worlds"],
        instead: "`machine`",
        place: Place::Names,
        within: &["crates/zonal-core/", "crates/zonal-lab/", "crates/zonal/"],
        except: &[],
    },
    Retired {
        forms: &["batches_max", "take_batch", "put_batch", "free_batch"],
        instead: "`magazine` for a depot's array",
        place: Place::Names,
        within: ALL,
        except: &[],
    },
    prose(&["as it were", "whereof", "thereof", "wherefore"], "plain words"),
];

const fn prose(forms: &'static [&'static str], instead: &'static str) -> Retired {
    Retired { forms, instead, place: Place::Prose, within: ALL, except: &[] }
}

/// Files that name retired words, or quote others.
const LEFT_ALONE: [&str; 4] = ["docs/linux/", "docs/GLOSSARY.md", "CHANGELOG.md", "xtask/"];

pub fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    check_against(RETIRED, tree, findings);
}

fn check_against(table: &[Retired], tree: &Tree, findings: &mut Vec<Finding>) {
    for (file, text) in tree.texts() {
        let left_alone = LEFT_ALONE.iter().any(|path| file.path.starts_with(path));
        let read = file.rust.is_some() || file.path.ends_with(".md");
        if left_alone || !read || file.is_recorded() {
            continue;
        }
        let applies = |retired: &&Retired| {
            let below = |paths: &[&str]| paths.iter().any(|path| file.path.starts_with(path));
            below(retired.within) && !below(retired.except)
        };
        let table: Vec<&Retired> = table.iter().filter(applies).collect();
        let mut report = |line: usize, form: &str, instead: &str| {
            let message = format!("`{form}` is retired; write {instead}");
            findings.push(Finding::new(&file.path, line, "retired-word", message));
        };
        let flow = Flow::of(file, text);
        for retired in &table {
            for form in retired.forms {
                for line in flow.lines_of(&form.replace('_', " ")) {
                    report(line, form, retired.instead);
                }
            }
        }
        let Some(rust) = &file.rust else { continue };
        let names = table.iter().filter(|retired| retired.place == Place::Names);
        let names: Vec<_> = names.flat_map(|r| r.forms.iter().map(|f| (*f, r.instead))).collect();
        for (at, word) in rust.words() {
            let parts = format!("_{}_", parts(word));
            for (form, instead) in names.iter().filter(|(f, _)| parts.contains(&format!("_{f}_"))) {
                report(rust.line(at), form, instead);
            }
        }
    }
}

/// `PagesetInfo` is `pageset_info`, `NR_PCP_LISTS` is `nr_pcp_lists`.
fn parts(word: &str) -> String {
    let mut found = String::new();
    let mut small = false;
    for c in word.chars() {
        if c.is_uppercase() && small {
            found.push('_');
        }
        small = c.is_lowercase() || c.is_ascii_digit();
        found.extend(c.to_lowercase());
    }
    found
}

/// The prose of a file as one run of words, each blank a single one.
struct Flow {
    text: String,
    /// Where each line's words begin.
    lines: Vec<(usize, usize)>,
}

impl Flow {
    fn of(file: &File, text: &str) -> Flow {
        let prose = match &file.rust {
            Some(rust) => blank_code(text, &rust.code, &rust.comments),
            None => text.to_owned(),
        };
        let mut flow = Flow { text: " ".into(), lines: Vec::new() };
        for (index, line) in prose.lines().enumerate() {
            flow.lines.push((flow.text.len(), index + 1));
            let line = line.trim_start().trim_start_matches(['/', '!', '>']);
            for word in line.split_whitespace() {
                flow.text.push_str(&word.to_lowercase());
                flow.text.push(' ');
            }
        }
        flow
    }

    /// The lines on which a phrase begins, as whole words.
    fn lines_of(&self, phrase: &str) -> Vec<usize> {
        let whole = |&(at, found): &(usize, &str)| {
            let before = self.text[..at].chars().next_back();
            let after = self.text[at + found.len()..].chars().next();
            !before.is_some_and(is_word) && !after.is_some_and(is_word)
        };
        let starts = self.text.match_indices(phrase).filter(whole);
        let line = |at: usize| self.lines.partition_point(|&(start, _)| start <= at);
        starts.map(|(at, _)| self.lines[line(at) - 1].1).collect()
    }
}

/// Comments and literals stay, code becomes blanks.
fn blank_code(text: &str, code: &str, comments: &str) -> String {
    let views = code.bytes().zip(comments.bytes());
    let keep = |(&byte, (code, comment)): (&u8, (u8, u8))| {
        if byte == b'\n' || code == b'"' || comment != b' ' { byte } else { b' ' }
    };
    let bytes: Vec<u8> = text.as_bytes().iter().zip(views).map(keep).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::super::scan::words;
    use super::super::tests::findings;
    use super::*;

    const SAMPLE: &[Retired] = &[
        prose(&["long way", "who only"], "`slow path`"),
        Retired {
            forms: &["pageset", "page_set"],
            instead: "`pcp`",
            place: Place::Names,
            within: &["crates/core/", "docs/"],
            except: &["crates/core/text.rs"],
        },
    ];

    fn sample(files: &[(&str, &str)]) -> Vec<String> {
        findings(|tree, found| check_against(SAMPLE, tree, found), files)
    }

    #[test]
    fn phrases_are_found_in_comments_literals_and_markdown() {
        assert_eq!(sample(&[("a.rs", "//! The Long way.\n")]), ["a.rs:1 retired-word"]);
        assert_eq!(sample(&[("a.rs", "//! A\n/// long\n/// way of\n")]), ["a.rs:2 retired-word"]);
        assert_eq!(sample(&[("a.rs", "f(\"who only\");\n")]), ["a.rs:1 retired-word"]);
        assert_eq!(sample(&[("a.md", "\nthe long\nway\n")]), ["a.md:2 retired-word"]);
    }

    #[test]
    fn other_words_and_code_are_not() {
        let text = "//! A long wayward, along way.\nlet long = way; // long\nlet way;\n";
        assert_eq!(sample(&[("a.rs", text)]), [""; 0]);
        assert_eq!(sample(&[("data/a", "long way"), ("docs/linux/a.md", "long way\n")]), [""; 0]);
    }

    #[test]
    fn names_are_found_by_their_parts_where_they_are_retired() {
        let text = "fn setup_pageset() { PagesetInfo::new(NR_PAGE_SETS, pagesets, PageSet) }\n";
        let found = ["crates/core/a.rs:1 retired-word"; 3];
        assert_eq!(sample(&[("crates/core/a.rs", text)]), found);
        assert_eq!(sample(&[("crates/core/text.rs", text), ("b.rs", text)]), [""; 0]);
        assert_eq!(sample(&[("docs/a.md", "a pageset\n")]), ["docs/a.md:1 retired-word"]);
    }

    #[test]
    fn the_table_is_in_small_letters() {
        let forms = RETIRED.iter().flat_map(|retired| retired.forms);
        for form in forms {
            assert_eq!(*form, form.to_lowercase());
            assert!(words(form).count() > 0);
        }
    }
}
