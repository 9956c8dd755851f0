//! The C test-suite: every program of `tests/c` and every example, under C99 and all warnings, by
//! gcc (or what `cc` is) and clang.

mod common;
#[path = "common/symbols.rs"]
mod symbols;

use common::{Compiler, root};

const CC: Compiler = Compiler { program: "cc", says: "" };
const CLANG: Compiler = Compiler { program: "clang", says: "clang" };

/// C files of a folder below the package.
fn sources(folder: &str) -> Vec<String> {
    let files = std::fs::read_dir(root().join(folder)).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut sources: Vec<String> =
        names.filter(|name| name.ends_with(".c")).map(|name| format!("{folder}/{name}")).collect();
    sources.sort();
    assert!(!sources.is_empty(), "{folder} has no C file");
    sources
}

fn run_all(compiler: Compiler, standard: &str, shared: bool) {
    if !compiler.is_there() {
        return;
    }
    for source in sources("tests/c").into_iter().chain(sources("examples")) {
        let output = compiler.run(&source, standard, shared);
        assert!(output.ends_with("ok\n"), "{source}: {output}");
    }
}

#[test]
fn c_programs_run_with_the_static_library() {
    run_all(CC, "c99", false);
}

#[test]
fn c_programs_run_with_the_shared_library() {
    run_all(CC, "c11", true);
}

#[test]
fn c_programs_run_when_clang_compiles_them() {
    run_all(CLANG, "c99", false);
}

/// A function that is added without a bad handle in `tests/c/borders.c` is found here.
#[test]
fn every_function_of_the_abi_meets_bad_handles() {
    let read = |file: &str| std::fs::read_to_string(root().join(file)).unwrap();
    let (map, borders) = (read("zonal.map"), read("tests/c/borders.c"));
    let names: Vec<&str> = map.lines().filter_map(|line| line.trim().strip_suffix(';')).collect();
    let names: Vec<&str> = names.into_iter().filter(|name| name.starts_with("zonal_")).collect();
    assert!(names.len() > 40, "{names:?}");
    // They take no handle.
    let without = ["zonal_last_error", "zonal_last_error_code", "zonal_strerror", "zonal_version"];
    for name in names.into_iter().filter(|name| !without.contains(name)) {
        assert!(borders.contains(&format!("{name}(")), "tests/c/borders.c does not call {name}");
    }
}

#[test]
fn a_program_that_unloads_the_library_goes_on() {
    if !CC.is_there() {
        return;
    }
    let library = common::library_directory().join("libzonal_c.so");
    let output = CC.run_with("tests/plugin/unload.c", "c99", &library);
    assert!(output.ends_with("ok\n"), "{output}");
    if output.contains("sequences: 0") {
        eprintln!("SKIPPED: no restartable sequences here, so none was left behind");
    }
}

/// Languages that read declarations of C (LuaJIT, PHP, Python's cffi) have no preprocessor, and
/// know nothing of what a C library's own headers say.
#[test]
fn the_header_is_plain_declarations_where_these_are_asked_for() {
    if !CC.is_there() {
        return;
    }
    let header = root().join("include/zonal.h");
    let mut cc = std::process::Command::new(CC.program);
    cc.args(["-E", "-P", "-DZONAL_DECLARATIONS"]).arg(&header);
    let output = cc.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    // A struct without a tag is another type in each file that some of them (D) make of it.
    for foreign in ["#", "static", "inline", "__", "memset", "struct {", "enum {"] {
        assert!(!text.contains(foreign), "'{foreign}' in {text}");
    }
    let map = std::fs::read_to_string(root().join("zonal.map")).unwrap();
    let names = map.lines().filter_map(|line| line.trim().strip_suffix(';'));
    let names: Vec<&str> = names.filter(|name| name.starts_with("zonal_")).collect();
    assert!(names.len() > 40, "{names:?}");
    for name in names {
        assert!(text.contains(&format!("{name}(")), "{name} is not in {text}");
    }
    CC.takes(&format!("#include <stddef.h>\n#include <stdint.h>\n{text}"), ".c", "c99", &[]);
}

#[test]
fn goroutines_share_a_pool_whose_cache_is_theirs() {
    let go = std::process::Command::new("go").arg("version").output();
    if !CC.is_there() || !go.is_ok_and(|version| version.status.success()) {
        eprintln!("SKIPPED: go is not installed; its example was not run");
        return;
    }
    let (library, target) = (common::library_directory(), tempfile::tempdir().unwrap());
    let program = target.path().join("program");
    let mut go = std::process::Command::new("go");
    go.args(["build", "-o"]).arg(&program).arg(".").current_dir(root().join("examples/go"));
    go.env("CGO_ENABLED", "1").env("GOFLAGS", "-mod=mod -buildvcs=false").env("GOWORK", "off");
    if std::env::var_os("HOME").is_none() {
        go.env("GOCACHE", target.path().join("cache"));
    }
    go.env("CGO_CFLAGS", format!("-I{}", root().join("include").display()));
    go.env("CGO_LDFLAGS", format!("-L{0} -lzonal_c -Wl,-rpath,{0}", library.display()));
    let built = go.output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    for checks in ["cgocheck=1", "cgocheck=1,asyncpreemptoff=1"] {
        let mut ran = std::process::Command::new(&program);
        let output = ran.env("GODEBUG", checks).output().unwrap();
        assert_eq!(output.stdout, b"ok\n", "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// The page of the book quotes the example and the command that these tests run.
#[test]
fn the_book_says_what_is_tested() {
    let Ok(page) = std::fs::read_to_string(root().join("../../docs/howto/c.md")) else {
        eprintln!("SKIPPED: the book is not here");
        return;
    };
    let server = std::fs::read_to_string(root().join("examples/server.c")).unwrap();
    let quoted: Vec<&str> = page
        .lines()
        .skip_while(|line| *line != "```c")
        .skip(1)
        .take_while(|line| *line != "```")
        .collect();
    assert!(quoted.len() > 4 && server.contains(&quoted.join("\n")), "{quoted:?}");
    let libraries = common::SYSTEM.join(" ");
    assert!(page.matches(&libraries).count() >= 3, "the page links without {libraries}");
}

#[test]
fn the_readme_is_taken_under_the_warnings_of_careful_users() {
    let text = common::block("README.md", "c", "#include <stdio.h>\n#include <zonal.h>").unwrap();
    let careful = ["-Wstrict-prototypes", "-Wmissing-prototypes", "-Wc++-compat"];
    for compiler in [CC, CLANG].into_iter().filter(|compiler| compiler.is_there()) {
        compiler.takes(&text, ".c", "c99", &careful);
    }
}
