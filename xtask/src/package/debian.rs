//! Packages of Debian: made by cargo-deb, looked at by lintian, tried in a fresh Debian.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::capi;
use crate::record::Record;
use crate::tools::find;

/// A package: its name, the crate with its `[package.metadata.deb]`, and the variant of that.
struct Package {
    name: &'static str,
    krate: &'static str,
    variant: Option<&'static str>,
}

const PACKAGES: [Package; 3] = [
    Package { name: "zonal", krate: "zonal-cli", variant: None },
    Package { name: LIBRARY, krate: "zonal-c", variant: Some("lib") },
    Package { name: "libzonal-dev", krate: "zonal-c", variant: Some("dev") },
];
/// The package of the shared library.
const LIBRARY: &str = "libzonal0";
/// What programs are compiled with in the fresh Debian.
const COMPILERS: &str = "--include=gcc,g++,libc6-dev,pkgconf";
/// Programs that are compiled there, and what they include.
const SOURCES: [&str; 3] = ["examples/server.c", "tests/cpp/containers.cpp", "tests/c/check.h"];
const TRY: &str = include_str!("try.sh");

/// Makes all packages and tries them. `version`: that of the crates.
pub fn run(root: &Path, output: &Path, version: &str, record: &mut Record) -> Result<()> {
    let start = Instant::now();
    let Some(tool) = find(root, "cargo-deb") else {
        let missing = "SKIPPED: cargo-deb is not installed; `cargo install cargo-deb --locked`";
        record.row("Debian packages", start, true, missing);
        return Ok(());
    };
    let manifest = fs::read_to_string(root.join("crates/zonal-c/Cargo.toml"))?;
    ensure!(
        manifest.contains(&format!("\"{LIBRARY} (= {version}-1)")),
        "crates/zonal-c/Cargo.toml: libzonal-dev depends on another {LIBRARY} than {version}-1"
    );
    stage(root, output)?;
    record.row(
        "library of C",
        start,
        true,
        "cargo-c: libzonal.so.0, libzonal.a, headers, zonal.pc",
    );
    let mut all = true;
    for package in &PACKAGES {
        all &= make(root, output, &tool, version, package, record)?;
    }
    if all { try_them(root, output, version, record) } else { Ok(()) }
}

/// Installs the interface of C into `target/package/capi`, without what only its makers need.
fn stage(root: &Path, output: &Path) -> Result<()> {
    let to = output.join("capi");
    if to.exists() {
        fs::remove_dir_all(&to)?;
    }
    let asked = Command::new("dpkg-architecture").arg("-qDEB_HOST_MULTIARCH").output();
    let asked = asked.context("dpkg-architecture does not start: `apt-get install dpkg-dev`")?;
    let libraries = format!("/usr/lib/{}", String::from_utf8_lossy(&asked.stdout).trim());
    capi::install_with(root, &to, &libraries)?;
    // cargo-deb puts the name of the processor into the path again.
    fs::rename(to.join(libraries.trim_start_matches('/')), to.join("libraries"))?;
    let at = |file: &str| to.join("libraries").join(file);
    for (how, file) in [("--strip-unneeded", "libzonal.so.0"), ("--strip-debug", "libzonal.a")] {
        let mut strip = Command::new("strip");
        strip.args([how, "--remove-section=.comment"]);
        // Through a link, strip would put a file in the place of the link.
        let file = fs::canonicalize(at(file))?;
        ensure!(strip.arg(&file).status()?.success(), "strip {} failed", file.display());
    }
    Ok(())
}

/// Makes a package, and lets lintian look at it. Returns whether there is one.
fn make(
    root: &Path,
    output: &Path,
    tool: &Path,
    version: &str,
    package: &Package,
    record: &mut Record,
) -> Result<bool> {
    let start = Instant::now();
    let Package { name, krate, variant } = package;
    let file = output.join(format!("{name}.deb"));
    let mut make = Command::new(tool);
    make.args(["-p", krate, "--no-build", "--output"]).arg(&file).current_dir(root);
    if let Some(variant) = variant {
        make.args(["--multiarch=same", "--variant", variant]);
    }
    // Standard output is for the record alone.
    let mut made =
        make.stdout(std::io::stderr()).status().context("cannot start cargo-deb")?.success();
    if made && *name == LIBRARY {
        made = add_control(output, &file, version)?;
    }
    record.row(name, start, made, &format!("cargo-deb: {name}.deb"));
    if made {
        lintian(&file, name, record);
    }
    Ok(made)
}

/// Adds what a shared library has and cargo-deb does not write: which package a program that is
/// linked with it depends on, and that the linker's list is made anew. The library was executable,
/// since cargo-deb asks only of such files what they depend on.
fn add_control(output: &Path, file: &Path, version: &str) -> Result<bool> {
    let unpacked = output.join("library");
    if unpacked.exists() {
        fs::remove_dir_all(&unpacked)?;
    }
    let mut unpack = Command::new("dpkg-deb");
    let status = unpack.arg("--raw-extract").args([file, &unpacked]).status()?;
    ensure!(status.success(), "{}: dpkg-deb cannot unpack it", file.display());
    let control = unpacked.join("DEBIAN");
    fs::write(control.join("shlibs"), format!("libzonal 0 {LIBRARY} (>= {version})\n"))?;
    fs::write(control.join("triggers"), "activate-noawait ldconfig\n")?;
    let mut chmod = Command::new("sh");
    chmod.args(["-c", "chmod 644 usr/lib/*/*.so.*"]).current_dir(&unpacked);
    ensure!(chmod.status()?.success(), "{}: it has no library", file.display());
    let mut pack = Command::new("dpkg-deb");
    pack.args(["--root-owner-group", "--build"]).args([&unpacked, &file.to_path_buf()]);
    Ok(pack.output()?.status.success())
}

fn lintian(file: &Path, name: &str, record: &mut Record) {
    let start = Instant::now();
    let mut lintian = Command::new("lintian");
    // No upload to Debian, so there is no bug that asks for the package.
    lintian.args(["--suppress-tags", "initial-upload-closes-no-bugs"]);
    let part = format!("{name}, lintian");
    lintian.args(["--fail-on", "error,warning"]).arg(file).stdout(std::io::stderr());
    match lintian.status() {
        Ok(status) => record.row(&part, start, status.success(), "no error, no warning"),
        Err(_) => record.row(&part, start, true, "SKIPPED: lintian is not installed"),
    }
}

/// Installs the packages in a fresh Debian of this release, uses them and removes them: each line
/// that `try.sh` says is a row.
fn try_them(root: &Path, output: &Path, version: &str, record: &mut Record) -> Result<()> {
    let start = Instant::now();
    let folder = output.join("try");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("try.sh"), TRY)?;
    for package in &PACKAGES {
        let file = format!("{}.deb", package.name);
        fs::copy(output.join(&file), folder.join(&file)).context(file)?;
    }
    for source in SOURCES {
        let from = root.join("crates/zonal-c").join(source);
        fs::copy(&from, folder.join(from.file_name().unwrap_or_default())).context(source)?;
    }
    let what = "fresh Debian";
    let suite = suite(&fs::read_to_string("/etc/os-release").unwrap_or_default());
    let suite = match (suite, find(root, "mmdebstrap")) {
        (Ok(suite), Some(_)) => suite,
        (Err(why), _) => {
            record.row(what, start, true, &format!("SKIPPED: {why:#}"));
            return Ok(());
        }
        (_, None) => {
            let missing = "SKIPPED: mmdebstrap is not installed; `apt-get install mmdebstrap`";
            record.row(what, start, true, missing);
            return Ok(());
        }
    };
    let said = match in_fresh_debian(&folder, &suite, version) {
        Ok(said) => said,
        Err(why) => {
            record.row(what, start, false, &format!("{why:#}"));
            return Ok(());
        }
    };
    for (passed, part, what) in parts(&said) {
        record.row(part, start, passed, what);
    }
    let whole = said.lines().last() == Some("done");
    record.row(what, start, whole, "mmdebstrap, a minimal root with compilers; thrown away");
    Ok(())
}

/// What `try.sh` says in a new root, which is thrown away. mmdebstrap may need no root's rights.
fn in_fresh_debian(folder: &Path, suite: &str, version: &str) -> Result<String> {
    let said = folder.join("said");
    let quoted = |path: &Path| format!("'{}'", path.display());
    let status = Command::new("mmdebstrap")
        .args(["--variant=minbase", COMPILERS])
        .arg(format!("--customize-hook=copy-in {} /", quoted(folder)))
        .arg(format!("--customize-hook=chroot \"$1\" sh /try/try.sh {version}"))
        .arg(format!("--customize-hook=copy-out /try/said {}", quoted(folder)))
        .args([suite, "/dev/null"])
        .status()
        .context("mmdebstrap does not start")?;
    ensure!(status.success(), "mmdebstrap cannot make a root of {suite}: see above");
    fs::read_to_string(&said).with_context(|| format!("{}: not read", said.display()))
}

/// The name of this Debian's release.
fn suite(os_release: &str) -> Result<String> {
    let value = |key: &str| os_release.lines().find_map(|line| line.strip_prefix(key));
    ensure!(value("ID=") == Some("debian"), "this is no Debian");
    Ok(value("VERSION_CODENAME=").context("this Debian has no name")?.to_owned())
}

/// Lines of `try.sh`.
fn parts(said: &str) -> impl Iterator<Item = (bool, &str, &str)> {
    said.lines().filter_map(|line| {
        let mut fields = line.splitn(3, '|');
        let passed = fields.next()? == "yes";
        Some((passed, fields.next()?, fields.next()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_script_says_are_rows() {
        let said = "yes|C|by pkg-config\nNO|purged|no file is left: > /usr/x\ndone\n";
        let rows: Vec<_> = parts(said).collect();
        assert_eq!(
            rows,
            [(true, "C", "by pkg-config"), (false, "purged", "no file is left: > /usr/x")]
        );
    }

    #[test]
    fn only_a_debian_has_a_fresh_one() {
        let debian = "ID=debian\nVERSION_CODENAME=bookworm\n";
        assert_eq!(suite(debian).unwrap(), "bookworm");
        assert!(suite("ID=fedora\n").is_err() && suite("").is_err());
    }

    #[test]
    fn the_script_is_one_that_a_shell_reads() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/package/try.sh");
        let status = Command::new("sh").arg("-n").arg(path).status().unwrap();
        assert!(status.success());
    }
}
