//! `cargo xtask aarch64`: the tests of the allocator on aarch64, in an emulated machine.
//!
//! ```text
//!  cargo test --no-run --target aarch64 ──► test programs ─┐
//!  libc, a shell, a script that runs them all ─────────────┴─► initramfs (cpio)
//!  Debian's kernel for arm64, in qemu ◄────────────────────────┘  tells all on its serial port
//! ```
//! An emulated machine, not an emulated process: restartable sequences and their fence are the
//! kernel's. The emulator runs each CPU in a thread of its own, so races are real; but it runs them
//! on this processor, so some reorderings that aarch64 allows never occur. It says nothing about
//! speed.
//!
//! What it takes comes from Debian 12: `--fetch` asks `apt-get` for it and unpacks it in the target
//! directory, with package lists of its own, so that the system stays as it is. Where the project's
//! toolchain has a standard library for the target, it is used instead of Debian's compiler.

mod image;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::available_parallelism;

use anyhow::{Context, Result, bail, ensure};

use crate::ci::TestCounts;
use crate::tools::{cargo_program, target_directory};
use image::Image;

const TARGET: &str = "aarch64-unknown-linux-gnu";
/// Packages whose test programs are run.
const TESTED: [&str; 2] = ["zonal-core", "zonal"];
/// All that the tests are of.
const FEATURES: &str = "zonal-core/history,zonal/history";

/// Test programs that are not run unless they are named: what loom tries is a model's orders, not
/// the processor's, and takes most of an hour here.
const MODELS: &str = ".loom_";

/// Where programs look for shared libraries, of the host and of the target.
const HOST_LIBRARIES: [&str; 2] = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"];
const TARGET_LIBRARIES: &str = "usr/aarch64-linux-gnu/lib";
/// What test programs are linked with.
const LINKED: [&str; 4] = ["ld-linux-aarch64.so.1", "libc.so.6", "libm.so.6", "libgcc_s.so.1"];

const RUSTC: &str = "usr/bin/rustc";
const STD: &str = "usr/lib/rustlib/aarch64-unknown-linux-gnu/lib";
const LINKER: &str = "usr/bin/aarch64-linux-gnu-gcc";
const EMULATOR: &str = "usr/bin/qemu-system-aarch64";
const SHELL: &str = "bin/busybox";
const KERNELS: &str = "boot";

/// Prefix of the lines that the machine's script prints.
const MARK: &str = "== ";
const ALL_RUN: &str = "== all run";

/// The folders of this command.
struct Places {
    /// The repository.
    root: PathBuf,
    /// What `--fetch` unpacked.
    unpacked: PathBuf,
    /// Lists and packages of `apt-get`.
    apt: PathBuf,
    /// Cargo's target directory for this, and the initramfs.
    build: PathBuf,
}

impl Places {
    fn new(root: &Path) -> Places {
        Places::below(root, &target_directory(root).join("aarch64"))
    }

    fn below(root: &Path, ours: &Path) -> Places {
        Places {
            root: root.to_owned(),
            unpacked: ours.join("root"),
            apt: ours.join("apt"),
            build: ours.join("build"),
        }
    }

    /// A file of a package: unpacked, or installed.
    fn find(&self, path: &str) -> Option<PathBuf> {
        [&self.unpacked, Path::new("/")]
            .map(|root| root.join(path))
            .into_iter()
            .find(|p| p.exists())
    }

    fn get(&self, path: &str) -> Result<PathBuf> {
        self.find(path).with_context(|| format!("{path}: not found"))
    }

    /// The newest kernel for the target.
    fn kernel(&self) -> Option<PathBuf> {
        let files = fs::read_dir(self.unpacked.join(KERNELS)).ok()?;
        let names = files.filter_map(|file| file.ok()?.file_name().into_string().ok());
        let newest = names.filter(|n| n.starts_with("vmlinuz-") && n.ends_with("-arm64")).max()?;
        Some(self.unpacked.join(KERNELS).join(newest))
    }

    /// Whether the project's own toolchain can compile for the target.
    fn own_compiler(&self) -> bool {
        let mut rustc = Command::new("rustc");
        rustc.args(["--print", "target-libdir", "--target", TARGET]).current_dir(&self.root);
        let output = rustc.output().ok().map(|output| output.stdout).unwrap_or_default();
        Path::new(String::from_utf8_lossy(&output).trim()).is_dir()
    }

    /// Debian packages that are not there.
    fn missing(&self) -> Vec<&'static str> {
        let own = self.own_compiler();
        let unpacked = |path: &str| self.unpacked.join(path).exists();
        [
            ("rustc-web", own || unpacked(RUSTC)),
            ("libstd-rust-web-dev:arm64", own || unpacked(STD)),
            ("gcc-aarch64-linux-gnu", self.find(LINKER).is_some()),
            ("libc6-dev-arm64-cross", self.find(TARGET_LIBRARIES).is_some()),
            ("qemu-system-arm", self.find(EMULATOR).is_some()),
            ("linux-image-arm64:arm64", self.kernel().is_some()),
            ("busybox-static:arm64", unpacked(SHELL)),
        ]
        .into_iter()
        .filter_map(|(package, there)| (!there).then_some(package))
        .collect()
    }

    /// A command that finds the unpacked shared libraries.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        let libraries = HOST_LIBRARIES.map(|path| self.unpacked.join(path));
        if let Ok(path) = std::env::join_paths(libraries) {
            command.env("LD_LIBRARY_PATH", path);
        }
        command
    }
}

/// Runs the test programs whose name contains one of `wanted`, or all; true if all passed.
pub fn run(root: &Path, wanted: &[&str]) -> Result<bool> {
    let places = Places::new(root);
    let missing = places.missing();
    ensure!(
        missing.is_empty(),
        "these packages of Debian 12 are missing: {}\n`cargo xtask aarch64 --fetch` gets them with \
         apt-get into {}, about 1.3 GB, and leaves the system as it is",
        missing.join(", "),
        places.unpacked.display()
    );
    let programs = build(&places)?;
    let chosen: Vec<_> = programs
        .iter()
        .filter(|(name, _)| match wanted {
            [] => !name.contains(MODELS),
            _ => wanted.iter().any(|part| name.contains(part)),
        })
        .collect();
    if chosen.is_empty() {
        let names: Vec<_> = programs.iter().map(|(name, _)| name.as_str()).collect();
        bail!("no test program is called {}: there are {}", wanted.join(", "), names.join(", "));
    }
    let initramfs = places.build.join("initramfs");
    let image = make_image(&places, &chosen)?;
    fs::write(&initramfs, image.finish())
        .with_context(|| format!("{}: cannot be written", initramfs.display()))?;
    emulate(&places, &initramfs, chosen.len())
}

/// Gets the packages and unpacks them.
pub fn fetch(root: &Path) -> Result<bool> {
    let places = Places::new(root);
    let missing = places.missing();
    if missing.is_empty() {
        println!("everything is there");
        return Ok(true);
    }
    let archives = places.apt.join("cache/archives");
    for directory in [places.apt.join("state/lists/partial"), archives.join("partial")] {
        make_directory(&directory)?;
    }
    make_directory(&places.unpacked)?;
    let status = places.apt.join("state/status");
    fs::copy("/var/lib/dpkg/status", &status).context("this is no Debian: no dpkg status")?;
    apt(&places, &["update"])?;
    // A library of the target would bring all its dependencies, which nothing runs.
    let (alone, with_others): (Vec<&str>, Vec<&str>) = missing
        .into_iter()
        .partition(|package| package.ends_with(":arm64") && !package.starts_with("linux-"));
    let install = ["install", "--download-only", "--yes", "--no-install-recommends"];
    if !with_others.is_empty() {
        apt(&places, &[&install[..], &with_others].concat())?;
    }
    if !alone.is_empty() {
        apt(&places, &[&["download"], &alone[..]].concat())?;
    }
    for file in fs::read_dir(&archives)? {
        let package = file?.path();
        if package.extension().is_some_and(|extension| extension == "deb") {
            let mut unpack = Command::new("dpkg-deb");
            unpack.arg("--extract").arg(&package).arg(&places.unpacked);
            ensure!(unpack.status()?.success(), "{}: cannot be unpacked", package.display());
        }
    }
    let missing = places.missing();
    ensure!(missing.is_empty(), "apt-get left out {}", missing.join(", "));
    Ok(true)
}

fn make_directory(path: &Path) -> Result<()> {
    fs::create_dir_all(path).with_context(|| format!("{}: cannot be made", path.display()))
}

/// `apt-get` with lists, status and packages in a folder of its own.
fn apt(places: &Places, arguments: &[&str]) -> Result<()> {
    println!("$ apt-get {}", arguments.join(" "));
    let state = places.apt.join("state");
    let options = [
        format!("Dir::State={}", state.display()),
        format!("Dir::State::status={}", state.join("status").display()),
        format!("Dir::Cache={}", places.apt.join("cache").display()),
        "APT::Architectures::=amd64".to_owned(),
        "APT::Architectures::=arm64".to_owned(),
        "APT::Sandbox::User=root".to_owned(),
        "Debug::NoLocking=1".to_owned(),
    ];
    let status = Command::new("apt-get")
        .args(options.iter().flat_map(|option| ["-o", option]))
        .args(arguments)
        .current_dir(places.apt.join("cache/archives"))
        .status()
        .context("cannot start apt-get: this needs Debian 12")?;
    ensure!(status.success(), "apt-get {} failed", arguments.join(" "));
    Ok(())
}

/// Builds the test programs. Returns their names, as `package.program`, and where they are.
fn build(places: &Places) -> Result<Vec<(String, PathBuf)>> {
    let linker = places.get(LINKER)?;
    let mut command = places.command(Path::new(&cargo_program()));
    command
        .args(["test", "--no-run", "--message-format=json-render-diagnostics", "--target", TARGET])
        .args(TESTED.iter().flat_map(|package| ["-p", package]))
        .args(["--features", FEATURES])
        .arg("--target-dir")
        .arg(&places.build)
        .current_dir(&places.root)
        .env("CARGO_INCREMENTAL", "0")
        // The emulator takes twenty times as long, so it gets less to do, and less to load.
        .env("CARGO_PROFILE_DEV_OPT_LEVEL", "1")
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env("CARGO_PROFILE_DEV_STRIP", "debuginfo")
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", &linker)
        .stdout(Stdio::piped());
    if linker.starts_with(&places.unpacked) {
        let flags = format!("-Clink-arg=--sysroot={}", places.unpacked.display());
        command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS", flags);
    }
    if !places.own_compiler() {
        command.env("RUSTC", places.get(RUSTC)?);
    }
    let mut child = command.spawn().context("cannot start cargo test --no-run")?;
    let messages = BufReader::new(child.stdout.take().context("cargo has no stdout")?);
    let mut programs = Vec::new();
    for line in messages.lines() {
        programs.extend(program(&line?));
    }
    ensure!(child.wait()?.success(), "the test programs cannot be built for {TARGET}");
    programs.sort();
    Ok(programs)
}

/// The test program named in a line of cargo's messages.
fn program(message: &str) -> Option<(String, PathBuf)> {
    let message: serde_json::Value = serde_json::from_str(message).ok()?;
    if message["profile"]["test"] != true {
        return None; // An example, which cargo builds along.
    }
    let executable = message["executable"].as_str()?;
    let manifest = Path::new(message["manifest_path"].as_str()?);
    let package = manifest.parent()?.file_name()?.to_str()?;
    let name = match message["target"]["kind"][0].as_str()? {
        "test" => message["target"]["name"].as_str()?,
        kind => kind,
    };
    Some((format!("{package}.{name}"), PathBuf::from(executable)))
}

/// The initial file system: the programs, their libraries, and a script that runs them.
fn make_image(places: &Places, programs: &[&(String, PathBuf)]) -> Result<Image> {
    let mut image = Image::default();
    for directory in ["bin", "lib", "tests", "proc", "sys", "dev", "tmp"] {
        image.directory(directory);
    }
    image.program("bin/busybox", &places.unpacked.join(SHELL))?;
    let libraries = places.get(TARGET_LIBRARIES)?;
    for library in LINKED {
        image.program(&format!("lib/{library}"), &libraries.join(library))?;
    }
    for (name, path) in programs {
        image.program(&format!("tests/{name}"), path)?;
    }
    let runs: Vec<_> = programs.iter().map(|(name, _)| script_line(name)).collect();
    image.file("init", format!("{SCRIPT_HEAD}{}{SCRIPT_END}", runs.concat()).into_bytes());
    Ok(image)
}

const SCRIPT_HEAD: &str = "\
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
exec > /dev/console 2>&1
cd /tmp
";
const SCRIPT_END: &str = "\
echo '== all run'
poweroff -f
";

/// Runs one program and says how it ended.
fn script_line(name: &str) -> String {
    format!("echo '{MARK}{name}'\n/tests/{name}\necho \"{MARK}{name}: exit $?\"\n")
}

/// Runs the machine until it turns itself off; true if all programs passed.
fn emulate(places: &Places, initramfs: &Path, programs: usize) -> Result<bool> {
    let cpus = available_parallelism().map_or(2, |n| n.get().clamp(2, 8));
    let kernel = places.kernel().context("no kernel")?;
    let mut command = places.command(&places.get(EMULATOR)?);
    if let Some(data) = places.find("usr/share/qemu") {
        command.arg("-L").arg(data);
    }
    let mut machine = command
        .args(["-machine", "virt", "-cpu", "max", "-m", "4G", "-accel", "tcg,thread=multi"])
        .args(["-smp", &cpus.to_string(), "-no-reboot", "-nodefaults", "-display", "none"])
        .args(["-serial", "stdio", "-append", "console=ttyAMA0 quiet panic=-1"])
        .arg("-kernel")
        .arg(&kernel)
        .arg("-initrd")
        .arg(initramfs)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the emulator")?;
    println!("== {cpus} emulated CPUs, {}", kernel.display());
    let serial = BufReader::new(machine.stdout.take().context("the emulator has no stdout")?);
    let mut report = Report::default();
    for line in serial.split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        println!("{}", line.trim_end());
        report.add_line(line.trim_end());
    }
    machine.wait()?;
    let passed = report.passed == programs && report.all_run && report.counts.all_passed();
    println!("{} of {programs} programs passed", report.passed);
    println!("{}", report.counts.closing_line());
    Ok(passed)
}

/// Output of the serial port.
#[derive(Debug, Default)]
struct Report {
    passed: usize,
    all_run: bool,
    counts: TestCounts,
}

impl Report {
    fn add_line(&mut self, line: &str) {
        self.passed += usize::from(line.starts_with(MARK) && line.ends_with(": exit 0"));
        self.all_run |= line == ALL_RUN;
        self.counts.add_line(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(lines: &[&str]) -> Report {
        let mut report = Report::default();
        lines.iter().for_each(|line| report.add_line(line));
        report
    }

    #[test]
    fn a_program_passes_if_it_says_so_and_the_machine_went_on() {
        let result = "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out";
        let good = report(&["== zonal.lib", result, "== zonal.lib: exit 0", ALL_RUN]);
        assert!(good.passed == 1 && good.all_run && good.counts.all_passed());
        let bad = report(&["== zonal.lib", result, "== zonal.lib: exit 101", ALL_RUN]);
        assert_eq!(bad.passed, 0);
        let hung = report(&["== zonal.lib", result, "== zonal.lib: exit 0", "== zonal.pool"]);
        assert!(hung.passed == 1 && !hung.all_run);
    }

    #[test]
    fn cargos_messages_name_the_programs() {
        let of = |kind: &str, executable: &str| {
            let test = kind != "example";
            program(&format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/a/crates/zonal/Cargo.toml",
                "target":{{"kind":["{kind}"],"name":"pool"}},"profile":{{"test":{test}}},
                "executable":{executable}}}"#
            ))
        };
        let at = |name: &str| Some((name.to_owned(), PathBuf::from("/t/pool-1")));
        assert_eq!(of("test", r#""/t/pool-1""#), at("zonal.pool"));
        assert_eq!(of("lib", r#""/t/pool-1""#), at("zonal.lib"));
        assert_eq!(of("lib", "null"), None);
        assert_eq!(of("example", r#""/t/pool-1""#), None);
        assert_eq!(program("no message"), None);
    }

    #[test]
    fn what_is_missing_is_named_by_package() {
        let nowhere = Path::new("/nonexistent");
        let nowhere = Places::below(nowhere, nowhere);
        let missing = nowhere.missing();
        assert!(missing.contains(&"linux-image-arm64:arm64"), "{missing:?}");
        assert!(missing.contains(&"busybox-static:arm64"), "{missing:?}");
    }
}
