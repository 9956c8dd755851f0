//! `cargo xtask capi`: the C interface as others get it. Installs it into a directory of its own by
//! cargo-c, looks at what is there, and runs the C and C++ programs of the test-suite against it:
//! by both compilers, with the shared library, under valgrind, and under AddressSanitizer and
//! UndefinedBehaviorSanitizer with the static one. Then the man pages, and what a page costs from C
//! beside Rust.
//!
//! `cargo xtask capi install DIRECTORY` only installs.
//!
//! # Symbol versions
//! rustc writes a version script of its own for a shared library, and no linker takes two. So cargo
//! gets this program as its linker ([`as_linker`]): it puts `crates/zonal-c/zonal.map` in the place
//! of rustc's script where the library is linked, and passes everything on to `cc`.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use crate::fuzz::host;
use crate::record::Record;
use crate::tools::{self, target_directory};

/// The newest cargo-c that the pinned toolchain compiles.
const VERSION: &str = "0.10.24";
const EXACT: &str = "0.10.24+cargo-0.98.0";
/// Set where cargo calls this program in place of the linker: the version script.
const AS_LINKER: &str = "XTASK_AS_LINKER";
const SCRIPT: &str = "--version-script=";
const STRICT: [&str; 6] = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-O1", "-gdwarf-4"];
/// What the static library asks of the system.
const SYSTEM: [&str; 4] = ["-lgcc_s", "-lpthread", "-ldl", "-lm"];
/// What an installation has, below its root.
const INSTALLED: [&str; 7] = [
    "usr/include/zonal.h",
    "usr/include/zonal.hpp",
    "usr/lib/libzonal.a",
    "usr/lib/libzonal.so",
    "usr/lib/libzonal.so.0",
    "usr/lib/libzonal.so.0.1.0",
    "usr/lib/pkgconfig/zonal.pc",
];

/// Where cargo runs this program as a linker: does what `cc` does, with our version script.
pub fn as_linker() -> Option<ExitCode> {
    let map = std::env::var(AS_LINKER).ok()?;
    let args: Vec<String> = std::env::args().skip(1).collect();
    let status = Command::new("cc").args(with_script(&args, &map)).status();
    Some(match status {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: cannot start cc: {error}");
            ExitCode::FAILURE
        }
    })
}

/// The linker's arguments, with the version script `map` if the library of C is linked.
fn with_script(args: &[String], map: &str) -> Vec<String> {
    let output = args.iter().skip_while(|arg| *arg != "-o").nth(1);
    let name = output.and_then(|path| path.rsplit('/').next()).unwrap_or_default();
    let is_ours = name.starts_with("libzonal") && name.contains(".so");
    let script = |arg: &String| match arg.split_once(SCRIPT) {
        Some((before, _)) if is_ours => format!("{before}{SCRIPT}{map}"),
        _ => arg.clone(),
    };
    args.iter().map(script).collect()
}

/// All of it; true if nothing failed.
pub fn run(root: &Path) -> Result<bool> {
    let mut record = Record::begin(root, "");
    let start = Instant::now();
    let to = target_directory(root).join("capi");
    let prefix = to.join("root");
    if prefix.exists() {
        std::fs::remove_dir_all(&prefix)?;
    }
    install(root, &prefix)?;
    let missing: Vec<&str> =
        INSTALLED.into_iter().filter(|path| !prefix.join(path).exists()).collect();
    record.row("installed files", start, missing.is_empty(), &format!("missing: {missing:?}"));
    let start = Instant::now();
    let (good, what) = abi(root, &prefix)?;
    record.row("soname and symbol versions", start, good, &what);
    for (cc, cxx) in [("gcc", "g++"), ("clang", "clang++")] {
        suites(root, &to, &prefix, cc, cxx, &mut record)?;
    }
    man_pages(root, &mut record)?;
    pair(root, &to, &mut record)?;
    Ok(record.end())
}

/// Installs below `to` as a package would: `to/usr/lib` and so on.
pub fn install(root: &Path, to: &Path) -> Result<()> {
    install_with(root, to, "/usr/lib")
}

/// The same with the libraries in another directory.
pub fn install_with(root: &Path, to: &Path, libraries: &str) -> Result<()> {
    let target = target_directory(root);
    let tools = target.join("tools/bin");
    get_cargo_c(root)?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(std::iter::once(tools).chain(std::env::split_paths(&path)))?;
    let linker = format!("CARGO_TARGET_{}_LINKER", host(root)?.replace('-', "_").to_uppercase());
    let status = Command::new("cargo")
        .args(["cinstall", "--release", "--manifest-path", "crates/zonal-c/Cargo.toml"])
        .args(["--prefix", "/usr", "--libdir", libraries, "--destdir"])
        .arg(std::path::absolute(to)?)
        .env("PATH", path)
        .env(linker, std::env::current_exe()?)
        .env(AS_LINKER, root.join("crates/zonal-c/zonal.map"))
        .current_dir(root)
        .status()
        .context("cannot start cargo cinstall")?;
    ensure!(status.success(), "cargo cinstall failed");
    install_man_pages(root, &to.join("usr/share/man/man3"))
}

/// The man pages, each under the names of all of its functions.
fn install_man_pages(root: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(root.join("crates/zonal-c/man"))? {
        let entry = entry?;
        let file = entry.file_name().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(entry.path())?;
        let names = text.lines().skip_while(|line| *line != ".SH NAME").nth(1).unwrap_or_default();
        let names = names.split_once(" \\-").map_or("", |(names, _)| names);
        for name in names.split(", ").filter(|name| file != format!("{name}.3")) {
            std::fs::write(to.join(format!("{name}.3")), format!(".so man3/{file}\n"))?;
        }
        std::fs::write(to.join(file), text)?;
    }
    Ok(())
}

fn get_cargo_c(root: &Path) -> Result<()> {
    let cargo_c = tools::Published {
        package: "cargo-c",
        version: EXACT,
        program: "cargo-capi",
        says: VERSION,
        arguments: &[],
    };
    tools::installed(root, &cargo_c).map(drop)
}

/// Whether the shared library says what it should: its soname, and each function of the version
/// script under its version.
fn abi(root: &Path, prefix: &Path) -> Result<(bool, String)> {
    let library = prefix.join("usr/lib/libzonal.so");
    let dynamic = text(Command::new("readelf").arg("-d").arg(&library))?;
    let soname = dynamic.lines().find(|line| line.contains("SONAME")).unwrap_or_default();
    let soname = soname.split(['[', ']']).nth(1).unwrap_or("none").to_owned();
    let symbols = text(Command::new("nm").args(["-D", "--defined-only"]).arg(&library))?;
    let map = std::fs::read_to_string(root.join("crates/zonal-c/zonal.map"))?;
    let mut version = "";
    let mut expected = Vec::new();
    for line in map.lines().map(str::trim) {
        if let Some(name) = line.strip_suffix(" {") {
            version = name;
        } else if let Some(name) = line.strip_suffix(';').filter(|name| name.starts_with("zonal_"))
        {
            expected.push(format!("{name}@@{version}"));
        }
    }
    let names = symbols.lines().filter_map(|line| line.rsplit(' ').next());
    let mut found: Vec<String> =
        names.filter(|name| name.contains("zonal_")).map(str::to_owned).collect();
    expected.sort();
    found.sort();
    let same = expected == found;
    if !same {
        eprintln!("expected {expected:?}\nfound {found:?}");
    }
    Ok((same && soname == "libzonal.so.0", format!("{soname}, {} functions", found.len())))
}

/// The suites of C and C++ by one pair of compilers, in each way.
fn suites(
    root: &Path,
    to: &Path,
    prefix: &Path,
    cc: &str,
    cxx: &str,
    record: &mut Record,
) -> Result<()> {
    if !exists(cc) || !exists(cxx) {
        eprintln!("SKIPPED: {cc} or {cxx} is not installed");
        return Ok(());
    }
    let package = root.join("crates/zonal-c");
    let sources = sources(&package)?;
    let installed = flags(prefix)?;
    let archive = prefix.join("usr/lib/libzonal.a").display().to_string();
    let include = format!("-I{}", prefix.join("usr/include").display());
    let mut fixed = vec![include, archive, "-fsanitize=address,undefined".to_owned()];
    fixed.extend(SYSTEM.map(str::to_owned));
    for (way, flags) in
        [("shared", &installed), ("valgrind", &installed), ("ASan and UBSan", &fixed)]
    {
        if way == "valgrind" && !exists("valgrind") {
            eprintln!("SKIPPED: valgrind is not installed");
            continue;
        }
        let start = Instant::now();
        let mut failed = Vec::new();
        for source in &sources {
            let is_cpp = source.extension().is_some_and(|extension| extension == "cpp");
            let (compiler, standard) = if is_cpp { (cxx, "c++17") } else { (cc, "c99") };
            let program = to.join("program");
            let mut compile = Command::new(compiler);
            compile.arg(format!("-std={standard}")).args(STRICT);
            compile.arg("-I").arg(package.join("tests/c")).arg(source).arg("-o").arg(&program);
            let compiled = compile.args(flags).status()?.success();
            // In a child, what other threads of the parent had is lost, and told as a leak.
            let forks = std::fs::read_to_string(source)?.contains("fork()");
            let leaks = if forks { "--leak-check=no" } else { "--leak-check=full" };
            if !(compiled && runs(way, leaks, &program, prefix)?) {
                failed.push(source.display().to_string());
            }
        }
        let what = format!("{} programs, failed: {failed:?}", sources.len());
        record.row(&format!("{cc}, {way}"), start, failed.is_empty(), &what);
    }
    Ok(())
}

fn runs(way: &str, leaks: &str, program: &Path, prefix: &Path) -> Result<bool> {
    let mut command = match way {
        "valgrind" => {
            let mut command = Command::new("valgrind");
            command.args(["--quiet", "--error-exitcode=9", leaks]);
            command.args(["--errors-for-leak-kinds=definite", "--fair-sched=yes"]).arg(program);
            command
        }
        _ => Command::new(program),
    };
    let output = command.env("LD_LIBRARY_PATH", prefix.join("usr/lib")).output()?;
    let good = output.status.success() && output.stdout.ends_with(b"ok\n");
    if !good {
        eprintln!("{}: {}\n{}", program.display(), output.status, both(&output));
    }
    Ok(good)
}

/// What pkg-config says of an installation.
fn flags(prefix: &Path) -> Result<Vec<String>> {
    let words = text(
        Command::new("pkg-config")
            .args(["--cflags", "--libs", "zonal"])
            .env("PKG_CONFIG_PATH", prefix.join("usr/lib/pkgconfig"))
            .env("PKG_CONFIG_SYSROOT_DIR", prefix)
            .env("PKG_CONFIG_ALLOW_SYSTEM_CFLAGS", "1")
            .env("PKG_CONFIG_ALLOW_SYSTEM_LIBS", "1"),
    )?;
    let mut flags: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
    flags.push("-lpthread".to_owned());
    Ok(flags)
}

/// Programs of the test-suite, and examples.
fn sources(package: &Path) -> Result<Vec<PathBuf>> {
    let mut sources = Vec::new();
    for folder in ["tests/c", "tests/cpp", "examples"] {
        for entry in std::fs::read_dir(package.join(folder))? {
            let path = entry?.path();
            let is_source = path.extension().is_some_and(|end| end == "c" || end == "cpp");
            if is_source && std::fs::read_to_string(&path)?.contains("int main(") {
                sources.push(path);
            }
        }
    }
    sources.sort();
    Ok(sources)
}

/// What mandoc and man say of the pages.
fn man_pages(root: &Path, record: &mut Record) -> Result<()> {
    let start = Instant::now();
    if !exists("mandoc") {
        eprintln!("SKIPPED: mandoc is not installed");
        return Ok(());
    }
    let mut warnings = 0;
    let mut pages = 0;
    for entry in std::fs::read_dir(root.join("crates/zonal-c/man"))? {
        let page = entry?.path();
        pages += 1;
        let lint =
            Command::new("mandoc").args(["-T", "lint", "-W", "warning"]).arg(&page).output()?;
        let man = Command::new("man").args(["--warnings", "-l", "-P", "cat"]).arg(&page).output();
        let said = man.map_or(Vec::new(), |output| output.stderr);
        if !lint.stdout.is_empty() || !said.is_empty() {
            eprintln!("{}{}", both(&lint), String::from_utf8_lossy(&said));
            warnings += 1;
        }
    }
    let what = format!("{pages} pages, {warnings} with warnings");
    record.row("man pages", start, warnings == 0 && pages > 0, &what);
    Ok(())
}

/// What a page costs from C beside Rust.
fn pair(root: &Path, to: &Path, record: &mut Record) -> Result<()> {
    let start = Instant::now();
    let object = to.join("hot_pair.o");
    let compiled = Command::new("cc")
        .args(["-O2", "-std=c99", "-I", "crates/zonal-c/include", "-c"])
        .args(["crates/zonal-c/examples/hot_pair/pair.c", "-o"])
        .arg(&object)
        .current_dir(root)
        .status()?;
    // A program of its own has no use for functions that only C calls: thin LTO takes them away.
    let built = Command::new("cargo")
        .args(["rustc", "--release", "-p", "zonal-c", "--example", "hot_pair"])
        .args(["--features", "pair", "--", "-C"])
        .arg(format!("link-arg={}", object.display()))
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .current_dir(root)
        .stderr(Stdio::inherit())
        .status()?;
    ensure!(compiled.success() && built.success(), "hot_pair cannot be built");
    let program = target_directory(root).join("release/examples/hot_pair");
    let said = text(&mut Command::new(program))?;
    eprintln!("{said}");
    record.row("a page from C", start, true, said.lines().last().unwrap_or_default());
    Ok(())
}

fn exists(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // mandoc does not know the option, but is there.
    command.status().is_ok()
}

fn text(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}\n{}", output.status, both(&output));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn both(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(output: &str) -> Vec<String> {
        let all = ["-Wl,--version-script=/t/list", "-shared", "-o", output, "-lc"];
        all.map(str::to_owned).to_vec()
    }

    #[test]
    fn only_the_library_of_c_gets_the_version_script() {
        let ours = with_script(&arguments("/t/deps/libzonal.so"), "zonal.map");
        assert_eq!(ours[0], "-Wl,--version-script=zonal.map");
        assert_eq!(ours[1..], arguments("/t/deps/libzonal.so")[1..]);
        for other in ["/t/libserde_derive.so", "/t/build-script", "/libzonal/x"] {
            assert_eq!(with_script(&arguments(other), "zonal.map"), arguments(other));
        }
    }
}
