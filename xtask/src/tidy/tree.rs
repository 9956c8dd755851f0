//! The files that are checked: what git tracks, and what it would add.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::scan::{Rust, words};
use crate::tools;

/// Everything under version control, in the order of the paths.
pub struct Tree {
    pub files: Vec<File>,
}

/// One file. Paths are relative to the repository's root, with `/` between their parts.
pub struct File {
    pub path: String,
    /// `None`: not UTF-8, so a binary file, of which only the name is known.
    pub text: Option<String>,
    /// Set for `.rs` files.
    pub rust: Option<Rust>,
    /// Another file declares this one under `#[cfg(test)]`.
    test_module: bool,
}

/// Extensions of what people write and review line by line. Markdown and data are not code.
const CODE_EXTENSIONS: &[&str] =
    &["rs", "c", "h", "cc", "cpp", "hpp", "sh", "py", "toml", "yml", "yaml"];

impl Tree {
    /// Reads the working tree at `root`.
    pub fn read(root: &Path) -> Result<Self> {
        let mut paths = match git_files(root) {
            Ok(paths) => paths,
            Err(error) => {
                eprintln!("note: {error:#}; every file below {} is checked", root.display());
                walk(root)?
            }
        };
        paths.sort();
        paths.dedup();
        let mut files = Vec::with_capacity(paths.len());
        for path in paths {
            let full = root.join(&path);
            // A deleted file is still in git's list; a link's target is checked under its own name.
            let Ok(metadata) = full.symlink_metadata() else { continue };
            if !metadata.is_file() {
                continue;
            }
            let bytes = std::fs::read(&full).with_context(|| format!("{path}: cannot read"))?;
            files.push(File::new(path, String::from_utf8(bytes).ok()));
        }
        ensure!(!files.is_empty(), "{}: no file to check", root.display());
        Ok(Self::new(files))
    }

    fn new(mut files: Vec<File>) -> Self {
        let modules: Vec<String> = files.iter().flat_map(File::test_modules).collect();
        for file in &mut files {
            let declared = |module: &String| match file.path.strip_prefix(module.as_str()) {
                Some(rest) => rest == ".rs" || rest.starts_with('/'),
                None => false,
            };
            file.test_module = modules.iter().any(declared);
        }
        Self { files }
    }

    /// Files that have text.
    pub fn texts(&self) -> impl Iterator<Item = (&File, &str)> {
        self.files.iter().filter_map(|file| Some((file, file.text.as_deref()?)))
    }

    /// Rust files.
    pub fn rust(&self) -> impl Iterator<Item = (&File, &Rust)> {
        self.files.iter().filter_map(|file| Some((file, file.rust.as_ref()?)))
    }

    /// True if `path` is a file or a directory with a file in it. The empty path is the root.
    pub fn contains(&self, path: &str) -> bool {
        self.files.iter().any(|file| match file.path.strip_prefix(path) {
            Some(rest) => path.is_empty() || rest.is_empty() || rest.starts_with('/'),
            None => false,
        })
    }

    #[cfg(test)]
    pub fn from_samples(files: &[(&str, &str)]) -> Self {
        let file = |&(path, text): &(&str, &str)| File::new(path.into(), Some(text.into()));
        Self::new(files.iter().map(file).collect())
    }
}

impl File {
    pub fn new(path: String, text: Option<String>) -> Self {
        let is_rust = path.ends_with(".rs");
        let rust = text.as_deref().filter(|_| is_rust).map(Rust::new);
        Self { path, text, rust, test_module: false }
    }

    /// Paths, without `.rs`, of the modules that this file declares under `#[cfg(test)]`.
    fn test_modules(&self) -> Vec<String> {
        let Some(rust) = &self.rust else { return Vec::new() };
        let (parent, name) = self.path.rsplit_once('/').unwrap_or(("", &self.path));
        let directory = match name {
            "lib.rs" | "main.rs" | "mod.rs" => parent,
            _ => self.path.trim_end_matches(".rs"),
        };
        let declarations = rust.words().filter(|&(at, word)| word == "mod" && rust.is_test(at));
        let names = declarations.filter_map(|(at, _)| {
            let (start, name) = words(&rust.code[at + 3..]).next()?;
            rust.code[at + 3 + start + name.len()..].starts_with(';').then_some(name)
        });
        names.map(|name| format!("{directory}/{name}")).collect()
    }

    /// Written by people, line by line.
    pub fn is_code(&self) -> bool {
        let name = self.path.rsplit('/').next().unwrap_or(&self.path);
        match name.rsplit_once('.') {
            Some((_, extension)) => CODE_EXTENSIONS.contains(&extension),
            None => self.path.starts_with(".ci/"),
        }
    }

    /// All of it is test, bench or example code; `Rust::is_test` knows the parts of other files.
    pub fn is_test(&self) -> bool {
        let test_dir = |part| matches!(part, "tests" | "benches" | "examples");
        self.test_module
            || self.path.split('/').any(test_dir)
            || self.path.ends_with("/tests.rs")
            || self.path.ends_with("_tests.rs")
    }

    /// Recorded by a machine and kept as it was.
    pub fn is_recorded(&self) -> bool {
        let data_dir =
            |part| matches!(part, "data" | "fixtures" | "samples" | "corpus" | "results");
        !self.is_code() && self.path.split('/').any(data_dir)
    }
}

fn git_files(root: &Path) -> Result<Vec<String>> {
    let args = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let list = tools::said(root, "git", &args)?;
    Ok(list.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect())
}

/// Without git (an unpacked archive): everything but build outputs.
fn walk(root: &Path) -> Result<Vec<String>> {
    let mut files = Vec::new();
    let mut directories = vec![String::new()];
    while let Some(directory) = directories.pop() {
        let entries = std::fs::read_dir(root.join(&directory))
            .with_context(|| format!("{directory}: cannot list"))?;
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path =
                if directory.is_empty() { name.clone() } else { format!("{directory}/{name}") };
            let file_type = entry.file_type()?;
            if !file_type.is_dir() {
                files.push(path);
            } else if name != ".git" && name != "target" {
                directories.push(path);
            }
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str) -> File {
        File::new(path.into(), Some(String::new()))
    }

    #[test]
    fn kinds_follow_from_the_path() {
        for path in ["a.rs", "crates/a/Cargo.toml", ".ci/run", "x/y.sh"] {
            assert!(file(path).is_code(), "{path}");
        }
        for path in ["README.md", "Cargo.lock", "LICENSE-MIT", "data/meta.json", "rs"] {
            assert!(!file(path).is_code(), "{path}");
        }
        assert!(file("crates/a/tests/model.rs").is_test());
        assert!(file("crates/a/src/buddy/tests.rs").is_test());
        assert!(file("crates/a/src/buddy_tests.rs").is_test());
        assert!(!file("crates/a/src/attests.rs").is_test());
        assert!(file("crates/a/tests/fixtures/zoneinfo").is_recorded());
        assert!(!file("crates/a/data/mod.rs").is_recorded());
    }

    #[test]
    fn modules_declared_for_tests_are_tests() {
        let tree = Tree::from_samples(&[
            (
                "a/lib.rs",
                "#[cfg(test)]\nmod model;\nmod zone;\n#[cfg(test)]\nmod t { fn f() {} }\n",
            ),
            ("a/model.rs", ""),
            ("a/model/deep.rs", ""),
            ("a/models.rs", ""),
            ("a/t.rs", ""),
            ("a/zone.rs", "#[cfg(all(test, unix))]\nmod check;\n"),
            ("a/zone/check.rs", ""),
            ("a/check.rs", ""),
        ]);
        let tests: Vec<&str> =
            tree.files.iter().filter(|f| f.is_test()).map(|f| f.path.as_str()).collect();
        assert_eq!(tests, ["a/model.rs", "a/model/deep.rs", "a/zone/check.rs"]);
    }

    #[test]
    fn a_directory_is_contained_when_a_file_is_in_it() {
        let tree = Tree::from_samples(&[("docs/A.md", ""), ("docs/deep/B.md", "")]);
        for path in ["docs/A.md", "docs", "docs/deep", ""] {
            assert!(tree.contains(path), "{path}");
        }
        for path in ["doc", "docs/A", "docs/C.md", "A.md"] {
            assert!(!tree.contains(path), "{path}");
        }
    }

    #[test]
    fn the_walk_without_git_finds_this_file() {
        let files = walk(&crate::repository_root()).expect("the repository can be walked");
        assert!(files.iter().any(|path| path == "xtask/src/tidy/tree.rs"));
        assert!(!files.iter().any(|path| path.starts_with("target/")));
    }
}
