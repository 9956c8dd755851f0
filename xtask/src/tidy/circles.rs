//! No files of a crate import each other, neither directly nor round a circle.
//!
//! An arrow goes from a file to each file of the same crate that it names something of: in a `use`
//! item, or by a path in its code. A name that a module only passes on counts as its source's, so
//! a parent that declares a child and re-exports what is in it has no arrow to it. Types that two
//! files share belong into a file below both.
//!
//! Test code may use what it likes. What a macro names is not seen, nor what a method call reaches.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::finding::Finding;
use super::scan::{Rust, is_word, words};
use super::tree::{File, Tree};

/// Circles that stay: a crate and the folder that all of their files lie in.
const KNOWN: &[(&str, &str)] = &[
    // `Pool` and what its threads share are one type in many files: each holds the type of a field
    // and the methods about it.
    ("crates/zonal", "pool"),
];

/// A module's path from the crate's root.
type Module = Vec<String>;

/// The maps of all crates, tests left out.
fn maps(tree: &Tree) -> impl Iterator<Item = (&str, Crate<'_>)> {
    let mut crates: BTreeMap<&str, Vec<(&File, &Rust)>> = BTreeMap::new();
    for (file, rust) in tree.rust().filter(|(file, _)| !file.is_test()) {
        if let Some((krate, _)) = file.path.split_once("/src/") {
            crates.entry(krate).or_default().push((file, rust));
        }
    }
    crates.into_iter().map(|(krate, files)| (krate, Crate::new(krate, &files)))
}

/// The longest chain of files of each crate in which each imports the next, and the circles.
pub fn walks(tree: &Tree) -> Vec<(&str, Vec<String>, usize)> {
    let walk = |(krate, map): (_, Crate<'_>)| {
        let longest = map.longest_walk().iter().map(|module| said(module)).collect();
        (krate, longest, map.circles().len())
    };
    maps(tree).map(walk).collect()
}

pub fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for (krate, map) in maps(tree) {
        let known: Vec<&str> =
            KNOWN.iter().filter(|(of, _)| *of == krate).map(|(_, folder)| *folder).collect();
        for circle in map.circles() {
            let inside = |folder: &&str| {
                circle.iter().all(|module| module.first().is_some_and(|top| top == folder))
            };
            if known.iter().any(inside) {
                continue;
            }
            let (file, line, message) = map.told(&circle);
            findings.push(Finding::new(&file.path, line, "circle", message));
        }
    }
}

/// The files of a crate, what each imports, and where it names it.
struct Crate<'t> {
    files: BTreeMap<Module, &'t File>,
    /// To which module, with one name of it and the line.
    arrows: BTreeMap<Module, BTreeMap<Module, (String, usize)>>,
}

/// A path that a file names.
struct Named {
    at: usize,
    path: Module,
    /// In a `use` item; what it is called from there on.
    import: Option<String>,
    /// The `use` item passes it on.
    public: bool,
}

impl<'t> Crate<'t> {
    fn new(krate: &str, files: &[(&'t File, &'t Rust)]) -> Self {
        let places = places(krate, files);
        let mut named = BTreeMap::new();
        for (file, rust) in files {
            let module = &places[file.path.as_str()];
            named.insert(module.clone(), (*rust, names(rust)));
        }
        let modules: BTreeSet<&Module> = named.keys().collect();
        let mut imports: BTreeMap<&Module, BTreeMap<&str, Module>> = BTreeMap::new();
        for (module, (_, names)) in &named {
            for name in names {
                let Some(called) = &name.import else { continue };
                if let Some(path) = absolute(module, &name.path, &modules) {
                    imports.entry(module).or_default().insert(called, path);
                }
            }
        }
        let mut arrows: BTreeMap<Module, BTreeMap<Module, (String, usize)>> = BTreeMap::new();
        for (module, (rust, names)) in &named {
            let own = arrows.entry(module.clone()).or_default();
            for name in names {
                let Some(path) = absolute(module, &name.path, &modules) else { continue };
                let source = resolve(path, &modules, &imports, 0);
                let below = source.len() > module.len() && source.starts_with(module);
                if source != *module && !(name.public && below) {
                    let what = name.path.last().cloned().unwrap_or_default();
                    own.entry(source).or_insert((what, rust.line(name.at)));
                }
            }
        }
        let files = files.iter().map(|(file, _)| (places[file.path.as_str()].clone(), *file));
        Crate { files: files.collect(), arrows }
    }

    /// Groups of modules that reach each other.
    fn circles(&self) -> Vec<BTreeSet<Module>> {
        let reach: BTreeMap<&Module, BTreeSet<&Module>> =
            self.arrows.keys().map(|module| (module, self.reached(module))).collect();
        let mut found: BTreeSet<BTreeSet<Module>> = BTreeSet::new();
        for (module, reached) in &reach {
            if reached.contains(module) {
                let back = |other: &&&Module| reach[**other].contains(module);
                found.insert(reached.iter().filter(back).map(|other| (*other).clone()).collect());
            }
        }
        found.into_iter().collect()
    }

    /// The longest chain of imports, highest file first. A circle counts once: nothing in it goes
    /// back to where the chain has been.
    fn longest_walk(&self) -> Vec<&Module> {
        let mut known = BTreeMap::new();
        let walks = self.arrows.keys().map(|module| self.walk_from(module, &mut known));
        walks.max_by_key(Vec::len).unwrap_or_default()
    }

    /// The longest chain from a file on. What is still being found out is passed.
    fn walk_from<'m>(
        &'m self,
        from: &'m Module,
        known: &mut BTreeMap<&'m Module, Vec<&'m Module>>,
    ) -> Vec<&'m Module> {
        if let Some(walk) = known.get(from) {
            return walk.clone();
        }
        known.insert(from, Vec::new());
        let next = self.arrows.get(from).into_iter().flat_map(BTreeMap::keys);
        let rest = next.map(|module| self.walk_from(module, known)).max_by_key(Vec::len);
        let walk: Vec<&Module> = [from].into_iter().chain(rest.unwrap_or_default()).collect();
        known.insert(from, walk.clone());
        walk
    }

    fn reached(&self, from: &Module) -> BTreeSet<&Module> {
        let mut reached = BTreeSet::new();
        let mut next: Vec<&Module> = self.arrows[from].keys().collect();
        while let Some(module) = next.pop() {
            if reached.insert(module) {
                next.extend(self.arrows.get(module).into_iter().flat_map(BTreeMap::keys));
            }
        }
        reached
    }

    /// The shortest way round from the circle's first module, and where it begins.
    fn told(&self, circle: &BTreeSet<Module>) -> (&'t File, usize, String) {
        let first = circle.first().expect("a circle has members");
        let mut from: BTreeMap<&Module, &Module> = BTreeMap::new();
        let mut queue = VecDeque::from([first]);
        while let Some(module) = queue.pop_front() {
            for other in self.arrows[module].keys().filter(|other| circle.contains(*other)) {
                if !from.contains_key(other) {
                    from.insert(other, module);
                    queue.push_back(other);
                }
            }
            if from.contains_key(first) {
                break;
            }
        }
        let mut way = vec![first];
        while way.len() == 1 || way[way.len() - 1] != first {
            way.push(from[way[way.len() - 1]]);
        }
        way.reverse();
        let mut message = format!("files import each other: {}", said(first));
        for step in way.windows(2) {
            let (what, _) = &self.arrows[step[0]][step[1]];
            message += &format!(" -> {} ({what})", said(step[1]));
        }
        message += "; move what they share into a file below both";
        (self.files[first], self.arrows[first][way[1]].1, message)
    }
}

fn said(module: &Module) -> String {
    if module.is_empty() { "the root".into() } else { module.join("/") }
}

/// The module of each file: by its path, or as a `#[path]` above a `mod` mounts it.
fn places<'t>(krate: &str, files: &[(&'t File, &'t Rust)]) -> BTreeMap<&'t str, Module> {
    let source = format!("{krate}/src/");
    let mut places: BTreeMap<&str, Module> = BTreeMap::new();
    for (file, _) in files {
        let path = file.path.strip_prefix(&source).unwrap_or(&file.path);
        let mut module: Module =
            path.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
        if module.last().is_some_and(|last| matches!(last.as_str(), "mod" | "lib" | "main")) {
            module.pop();
        }
        places.insert(&file.path, module);
    }
    let mut mounts: Vec<(String, Module)> = Vec::new();
    for (file, rust) in files {
        for (name, target) in mounted(file, rust) {
            let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
            let mut module = places[file.path.as_str()].clone();
            module.push(name);
            mounts.push((joined(folder, &target), module));
        }
    }
    for (target, module) in mounts {
        // Files of the mounted module's folder move with it.
        let folder = target.strip_suffix("mod.rs");
        for (file, _) in files {
            let rest = match folder.and_then(|folder| file.path.strip_prefix(folder)) {
                Some(rest) => rest,
                None if file.path == target => "mod.rs",
                None => continue,
            };
            let mut at = module.clone();
            at.extend(rest.trim_end_matches(".rs").split('/').map(str::to_owned));
            if at.last().is_some_and(|last| last == "mod") {
                at.pop();
            }
            places.insert(&file.path, at);
        }
    }
    places
}

/// Modules that a file mounts from elsewhere: their names, and paths from the file's folder.
fn mounted(file: &File, rust: &Rust) -> Vec<(String, String)> {
    let text = file.text.as_deref().unwrap_or_default();
    let mounts = rust.code.match_indices("#[path").filter_map(|(at, _)| {
        let end = at + rust.code[at..].find(']')?;
        let target = text.get(at..end)?.split('"').nth(1)?;
        let mut after = words(&rust.code[end..]);
        after.find(|(_, word)| *word == "mod")?;
        Some((after.next()?.1.to_owned(), target.to_owned()))
    });
    mounts.collect()
}

/// `a/b` and `../c` is `a/c`.
fn joined(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').collect();
    for part in path.split('/') {
        match part {
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The paths that a file's own code names.
fn names(rust: &Rust) -> Vec<Named> {
    let code = rust.code.as_str();
    let mut named = Vec::new();
    for (at, word) in rust.words().filter(|(at, _)| !rust.is_test(*at)) {
        // `pub(in path)` says who may use a name, and uses nothing.
        let before = code[..at].trim_end();
        let starts = !before.ends_with("::") && !before.ends_with("pub(in");
        if word == "use" && rust.is_import(at) {
            let end = code[at..].find(';').map_or(code.len(), |end| at + end);
            let public = code[..at].trim_end().ends_with("pub") || restricted(&code[..at]);
            for (path, called) in leaves(&code[at + 3..end]) {
                named.push(Named { at, path, import: Some(called), public });
            }
        } else if starts && !rust.is_import(at) && !word.starts_with(|c: char| c.is_ascii_digit()) {
            let path = path_at(&code[at..]);
            if path.len() > 1 {
                named.push(Named { at, path, import: None, public: false });
            }
        }
    }
    named
}

/// Whether a text ends with `pub(…)`.
fn restricted(before: &str) -> bool {
    let before = before.trim_end();
    before.ends_with(')') && before.rfind('(').is_some_and(|at| before[..at].ends_with("pub"))
}

/// The names, divided by `::`, that a text begins with.
fn path_at(text: &str) -> Module {
    let mut path = Module::new();
    let mut rest = text;
    loop {
        let len = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        if len == 0 {
            return path;
        }
        path.push(rest[..len].to_owned());
        match rest[len..].trim_start().strip_prefix("::") {
            Some(after) => rest = after.trim_start(),
            None => return path,
        }
    }
}

/// The paths of a `use`, and what each is called: `a::{b, c as d}` is `a::b` and `a::c`.
fn leaves(tree: &str) -> Vec<(Module, String)> {
    let tree = tree.trim();
    let Some(open) = tree.find('{') else {
        let (path, called) = tree.split_once(" as ").unwrap_or((tree, ""));
        let path: Module = path.split("::").map(|part| part.trim().to_owned()).collect();
        let last = path.last().cloned().unwrap_or_default();
        return vec![(path, if called.is_empty() { last } else { called.trim().to_owned() })];
    };
    let front = tree[..open].split("::").map(str::trim).filter(|part| !part.is_empty());
    let front: Module = front.map(str::to_owned).collect();
    let body = &tree[open + 1..tree.rfind('}').unwrap_or(tree.len())];
    let mut found = Vec::new();
    let mut nesting = 0_usize;
    let mut start = 0;
    for (at, c) in body.char_indices().chain([(body.len(), ',')]) {
        match c {
            '{' => nesting += 1,
            '}' => nesting = nesting.saturating_sub(1),
            ',' if nesting == 0 => {
                for (path, called) in leaves(&body[start..at]) {
                    if path.iter().all(String::is_empty) {
                        continue;
                    }
                    let mut whole = front.clone();
                    let own = path.len() == 1 && path[0] == "self";
                    let called = if own { front.last().cloned().unwrap_or(called) } else { called };
                    whole.extend(path.into_iter().filter(|_| !own));
                    found.push((whole, called));
                }
                start = at + 1;
            }
            _ => {}
        }
    }
    found
}

/// A path from the crate's root; `None` where it leads out of the crate or names something of its
/// own file.
fn absolute(module: &Module, path: &Module, modules: &BTreeSet<&Module>) -> Option<Module> {
    let rest = |from: usize| path[from..].iter().cloned();
    match path[0].as_str() {
        "crate" => Some(rest(1).collect()),
        "self" | "super" => {
            let ups = path.iter().take_while(|part| matches!(part.as_str(), "self" | "super"));
            let ups: Vec<_> = ups.collect();
            let supers = ups.iter().filter(|part| **part == "super").count();
            let mut whole = module[..module.len().checked_sub(supers)?].to_vec();
            whole.extend(rest(ups.len()));
            Some(whole)
        }
        child => {
            let mut whole = module.clone();
            whole.push(child.to_owned());
            modules.contains(&whole).then(|| {
                whole.extend(rest(1));
                whole
            })
        }
    }
}

/// The module that a path's last name comes from, through what modules pass on.
fn resolve(
    path: Module,
    modules: &BTreeSet<&Module>,
    imports: &BTreeMap<&Module, BTreeMap<&str, Module>>,
    depth: usize,
) -> Module {
    let longest = (0..=path.len()).rev().find(|len| modules.contains(&path[..*len].to_vec()));
    let module = path[..longest.unwrap_or(0)].to_vec();
    let name = path.get(module.len());
    let passed = name.and_then(|name| imports.get(&module)?.get(name.as_str()));
    match passed {
        Some(source) if depth < 8 => {
            let mut whole = source.clone();
            whole.extend(path[module.len() + 1..].iter().cloned());
            resolve(whole, modules, imports, depth + 1)
        }
        _ => module,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::findings;
    use super::*;

    fn in_crate(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<(String, &str)> =
            files.iter().map(|(path, text)| (format!("crates/c/src/{path}"), *text)).collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (&**path, *text)).collect();
        findings(check, &files)
    }

    #[test]
    fn files_that_import_each_other_are_found() {
        let (a, b) = ("use crate::b::B;\npub struct A;\n", "use super::a::A;\npub struct B;\n");
        assert_eq!(in_crate(&[("a.rs", a), ("b.rs", b)]), ["crates/c/src/a.rs:1 circle"]);
        assert_eq!(in_crate(&[("a.rs", a), ("b.rs", "pub struct B;\n")]), [""; 0]);
        let by_path = "pub struct B;\nfn f() -> crate::a::A { crate::a::A }\n";
        assert_eq!(in_crate(&[("a.rs", a), ("b.rs", by_path)]), ["crates/c/src/a.rs:1 circle"]);
    }

    #[test]
    fn a_circle_may_be_long_and_go_through_the_root() {
        let files = [
            ("lib.rs", "mod a;\nmod b;\nmod c;\npub struct R;\nuse a::A;\n"),
            ("a.rs", "use crate::b::{self, B};\npub struct A;\n"),
            ("b.rs", "use crate::c::C as D;\npub struct B;\n"),
            ("c.rs", "use super::R;\npub struct C;\n"),
        ];
        assert_eq!(in_crate(&files), ["crates/c/src/lib.rs:5 circle"]);
        let apart = [files[0], files[1], files[2], ("c.rs", "pub struct C;\n")];
        assert_eq!(in_crate(&apart), [""; 0]);
    }

    #[test]
    fn a_parent_may_declare_a_child_and_pass_on_what_is_in_it() {
        let child = ("a/b.rs", "use super::P;\npub struct B;\npub fn f() {}\n");
        let parent = "mod b;\npub use b::{B, f};\npub struct P;\n";
        assert_eq!(in_crate(&[("a/mod.rs", parent), child]), [""; 0]);
        let uses = format!("{parent}fn g() {{ b::f() }}\n");
        assert_eq!(in_crate(&[("a/mod.rs", &uses), child]), ["crates/c/src/a/mod.rs:4 circle"]);
    }

    #[test]
    fn a_name_that_is_passed_on_is_its_source_s() {
        let files = [
            ("lib.rs", "mod leaf;\nmod user;\npub use leaf::L;\nuse user::U;\n"),
            ("leaf.rs", "pub struct L;\n"),
            ("user.rs", "use crate::L;\npub struct U;\n"),
        ];
        assert_eq!(in_crate(&files), [""; 0]);
    }

    #[test]
    fn tests_and_comments_do_not_count() {
        let a = "use crate::b::B;\npub struct A;\n";
        let b = "//! See [`A`](crate::a::A).\npub struct B;\n#[cfg(test)]\nmod t {\n    use \
                 crate::a::A;\n}\n";
        assert_eq!(in_crate(&[("a.rs", a), ("b.rs", b)]), [""; 0]);
        assert_eq!(in_crate(&[("a.rs", a), ("b/tests.rs", "use crate::a::A;\n")]), [""; 0]);
    }

    #[test]
    fn a_mounted_file_is_of_the_module_that_mounts_it() {
        let files = [
            ("a/mod.rs", "#[path = \"../old/a/mod.rs\"]\nmod old;\nuse old::f;\npub struct A;\n"),
            ("old/a/mod.rs", "mod deep;\npub fn f() {}\n"),
            ("old/a/deep.rs", "use super::super::A;\n"),
        ];
        assert_eq!(in_crate(&files), [""; 0], "deep is used by nobody");
        let used = [files[0], ("old/a/mod.rs", "mod deep;\npub use deep::f;\n"), files[2]];
        assert_eq!(in_crate(&used), ["crates/c/src/a/mod.rs:3 circle"]);
    }

    #[test]
    fn a_known_folder_may_keep_its_circle_but_not_with_others() {
        let (pool, worker) = ("use worker::W;\npub struct P;\n", "use super::P;\npub struct W;\n");
        let in_zonal = |files: &[(&str, &str)]| findings(check, files);
        let inside =
            [("crates/zonal/src/pool/mod.rs", pool), ("crates/zonal/src/pool/worker.rs", worker)];
        assert_eq!(in_zonal(&inside), [""; 0]);
        let outside = [
            ("crates/zonal/src/pool/mod.rs", "use crate::view::V;\npub struct P;\n"),
            ("crates/zonal/src/view.rs", "use crate::pool::P;\npub struct V;\n"),
        ];
        assert_eq!(in_zonal(&outside), ["crates/zonal/src/pool/mod.rs:1 circle"]);
    }
}
