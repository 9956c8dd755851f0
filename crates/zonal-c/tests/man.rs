//! The man pages of functions are made of the header: `man/*.3` but `man/zonal.3`, which is written
//! by hand.
//!
//! `ZONAL_WRITE_MAN=1 cargo test -p zonal-c --test man` writes them anew.

use std::fmt::Write;
use std::path::Path;

/// A page: its title, its functions, and structs that it shows.
struct Page {
    name: &'static str,
    title: &'static str,
    functions: &'static [&'static str],
    structs: &'static [&'static str],
}

const PAGES: &[Page] = &[
    Page {
        name: "zonal_pool",
        title: "make and end a pool of pages",
        functions: &["zonal_pool_create", "zonal_pool_destroy", "zonal_pool_discard"],
        structs: &["zonal_options", "zonal_zone_size", "zonal_memory"],
    },
    Page {
        name: "zonal_alloc",
        title: "allocate and free pages, blocks, and many pages at once",
        functions: &[
            "zonal_alloc_page",
            "zonal_free_page",
            "zonal_alloc",
            "zonal_alloc_on",
            "zonal_free",
            "zonal_try_alloc",
            "zonal_try_free",
            "zonal_alloc_bulk",
            "zonal_free_bulk",
        ],
        structs: &[],
    },
    Page {
        name: "zonal_range",
        title: "pages in a row: any number, in any parts, at any address",
        functions: &[
            "zonal_range_alloc",
            "zonal_range_alloc_with",
            "zonal_range_alloc_at",
            "zonal_range_free",
            "zonal_range_grow",
            "zonal_range_shrink",
            "zonal_range_longest",
        ],
        structs: &["zonal_range_request"],
    },
    Page {
        name: "zonal_control",
        title: "budget, drains, settings and the fork of a pool",
        functions: &[
            "zonal_set_budget",
            "zonal_drain",
            "zonal_trim",
            "zonal_set_sysctl",
            "zonal_refresh",
            "zonal_restart_refresh",
            "zonal_restart_reclaim",
            "zonal_finish_growth",
            "zonal_fail_alloc",
            "zonal_validate",
        ],
        structs: &[],
    },
    Page {
        name: "zonal_shrinker",
        title: "caches that give memory back to a pool",
        functions: &["zonal_shrinker_register", "zonal_consumer_remove"],
        structs: &["zonal_shrinker"],
    },
    Page {
        name: "zonal_stats",
        title: "figures and texts of a pool",
        functions: &[
            "zonal_pool_get_info",
            "zonal_node_get_stats",
            "zonal_zone_get_stats",
            "zonal_get_held",
            "zonal_node_of",
            "zonal_text",
            "zonal_explain",
        ],
        structs: &["zonal_pool_info", "zonal_zone_stats", "zonal_held"],
    },
    Page {
        name: "zonal_error",
        title: "what went wrong, as a code and as a sentence",
        functions: &[
            "zonal_last_error_code",
            "zonal_last_error",
            "zonal_strerror",
            "zonal_version",
        ],
        structs: &[],
    },
];

/// A declaration of the header and the comment above it.
struct Item {
    comment: Vec<String>,
    code: Vec<String>,
}

fn items(header: &str) -> Vec<Item> {
    let mut items = Vec::new();
    for block in header.split("\n\n") {
        let is_comment = |line: &&str| line.starts_with("//");
        let comment = block.lines().take_while(is_comment);
        let comment = comment.map(|line| line[2..].trim().to_owned()).collect();
        let code = block.lines().skip_while(|line| is_comment(line)).map(str::to_owned).collect();
        items.push(Item { comment, code });
    }
    items
}

impl Item {
    fn is_function(&self, name: &str) -> bool {
        let first = self.code.first().map_or("", String::as_str);
        !first.starts_with("typedef")
            && first
                .split_once('(')
                .is_some_and(|(before, _)| before.rsplit([' ', '*']).next() == Some(name))
    }
    fn is_struct(&self, name: &str) -> bool {
        self.code.last().is_some_and(|last| *last == format!("}} {name};"))
    }
}

/// A line as it is, whatever it has.
fn plain(line: &str) -> String {
    let line = line.replace('\\', "\\e").replace('-', "\\-");
    if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line }
}

fn page(page: &Page, items: &[Item]) -> String {
    let mut text = String::new();
    let name = page.name.to_uppercase();
    let version = env!("CARGO_PKG_VERSION");
    writeln!(text, ".\\\" Made of zonal.h by tests/man.rs.").unwrap();
    writeln!(text, ".TH {name} 3 2026-11-23 \"zonal {version}\" \"Zonal\"").unwrap();
    let functions = page.functions.join(", ");
    writeln!(text, ".SH NAME\n{functions} \\- {}", plain(page.title)).unwrap();
    writeln!(text, ".SH SYNOPSIS\n.nf\n#include <zonal.h>\n").unwrap();
    let found = |is: &dyn Fn(&Item) -> bool, what: &str| -> usize {
        items.iter().position(is).unwrap_or_else(|| panic!("the header has no {what}"))
    };
    let functions: Vec<(&str, &Item)> = page
        .functions
        .iter()
        .map(|name| (*name, &items[found(&|item| item.is_function(name), name)]))
        .collect();
    for (_, item) in &functions {
        item.code.iter().for_each(|line| writeln!(text, "{}", plain(line)).unwrap());
    }
    writeln!(text, ".fi\n.SH DESCRIPTION").unwrap();
    writeln!(text, "Numbers C\\-1 to C\\-6 are those of the contract in\n.BR zonal (3).").unwrap();
    for (name, item) in functions {
        writeln!(text, ".SS {name}").unwrap();
        for line in &item.comment {
            match line.as_str() {
                "" => writeln!(text, ".PP").unwrap(),
                "# Safety" => writeln!(text, "What the caller keeps:").unwrap(),
                line => writeln!(text, "{}", plain(line)).unwrap(),
            }
        }
    }
    if !page.structs.is_empty() {
        writeln!(text, ".SH STRUCTS").unwrap();
    }
    for name in page.structs {
        let item = &items[found(&|item| item.is_struct(name), name)];
        writeln!(text, ".SS {name}\n.nf").unwrap();
        item.code.iter().for_each(|line| writeln!(text, "{}", plain(line)).unwrap());
        writeln!(text, ".fi").unwrap();
    }
    writeln!(text, ".SH SEE ALSO\n.BR zonal (3)").unwrap();
    // `.PP` right behind a heading or in front of one says nothing.
    text.replace(".PP\n.S", ".S")
}

#[test]
fn the_man_pages_are_made_of_the_header_and_have_every_function() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = std::fs::read_to_string(root.join("include/zonal.h")).unwrap();
    let items = items(&header);
    for one in PAGES {
        let path = root.join("man").join(one.name).with_extension("3");
        let made = page(one, &items);
        if std::env::var_os("ZONAL_WRITE_MAN").is_some() {
            std::fs::write(&path, &made).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap();
        assert!(
            committed == made,
            "{}: ZONAL_WRITE_MAN=1 cargo test -p zonal-c --test man",
            path.display()
        );
    }
    let map = std::fs::read_to_string(root.join("zonal.map")).unwrap();
    let all = map.split([';', '\n']).map(str::trim).filter(|word| word.starts_with("zonal_"));
    for name in all {
        let pages = PAGES.iter().filter(|page| page.functions.contains(&name)).count();
        assert_eq!(pages, 1, "{name} is on {pages} pages");
    }
}

/// An installation makes links of the names, so that `man zonal_alloc_zeroed` finds the page.
#[test]
fn the_introduction_names_what_the_header_has_inline() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = std::fs::read_to_string(root.join("include/zonal.h")).unwrap();
    let page = std::fs::read_to_string(root.join("man/zonal.3")).unwrap();
    let names = page.lines().skip_while(|line| *line != ".SH NAME").nth(1).unwrap();
    let inline = header.lines().filter(|line| line.starts_with("static inline "));
    let mut count = 0;
    for line in inline {
        let before = line.split('(').next().unwrap();
        let name = before.rsplit([' ', '*']).next().unwrap();
        assert!(names.contains(&format!(", {name}")), "zonal(3) does not name {name}");
        count += 1;
    }
    assert!(count > 5, "the header has {count} inline functions");
}
