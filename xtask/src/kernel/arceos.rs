//! `cargo xtask arceos`: a kernel of ArceOS' crates with `zonal-core` as its page allocator.
//!
//! ```text
//!  adapters/arceos/kernel ── cargo build ──► QEMU ──► programs, counts beside ArceOS' own
//! ```
//! ArceOS' crates come from the registry and none of their files is in this repository. They boot
//! the machine, tell of its memory and have the allocator of bytes, which asks ours for pages. They
//! need a nightly compiler: the one of [`ostd`](super::ostd).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::ostd::{TOOLCHAIN, beside, clean};
use super::output::{Output, watch};
use super::table;
use crate::tools::{self, target_directory};

const TARGET: &str = "x86_64-unknown-none";
const EMULATOR: &str = "qemu-system-x86_64";
/// Where the kernel is, with its settings of Cargo.
const KERNEL: &str = "adapters/arceos/kernel";
const LIMIT: Duration = Duration::from_secs(300);

/// Builds and boots, by `[--write FILE]`; true if all is well.
pub fn run(root: &Path, args: &[&str]) -> Result<bool> {
    let write = match args {
        [] => None,
        ["--write", file] => Some(Path::new(file)),
        _ => anyhow::bail!("arceos {}: expected nothing or --write FILE", args.join(" ")),
    };
    let missing = missing();
    ensure!(
        missing.is_empty(),
        "SKIPPED: ArceOS' crates cannot be built or booted here\n{missing}"
    );
    let image = build(root)?;
    let mut rows = Vec::new();
    let mut counts = Output::default();
    let mut good = true;
    for (machine, more) in [
        ("64 MiB", &["-m", "64M"][..]),
        ("512 MiB", &["-m", "512M"]),
        ("512 MiB, counted", &["-m", "512M", "-icount", "shift=0"]),
    ] {
        println!("== kernel of ArceOS' crates, {machine}");
        let output = boot(&image, more)?;
        for start in ["passed: ", "count: "] {
            output.all(start).for_each(|line| println!("   {start}{line}"));
        }
        if !output.is_good() {
            let from = output.lines.len().saturating_sub(20);
            output.lines[from..].iter().for_each(|line| println!("   {line}"));
        }
        good &= output.is_good();
        let word = if output.is_good() { "passed" } else { "FAILED" };
        let passed = output.all("passed: ").collect::<Vec<_>>().join("; ");
        rows.push([machine, word, &passed].map(String::from).to_vec());
        counts = output;
    }
    let report = report(&rows, &counts);
    match write {
        Some(file) => std::fs::write(root.join(file), report)
            .with_context(|| format!("{}", file.display()))?,
        None => print!("{report}"),
    }
    Ok(good)
}

/// What has to be installed first, a line each.
fn missing() -> String {
    let runs = |program: &str, args: &[&str]| {
        let output = Command::new(program).args(args).output().ok();
        output.filter(|output| output.status.success()).map(|output| output.stdout)
    };
    let mut text = String::new();
    if runs(EMULATOR, &["--version"]).is_none() {
        text += &format!("{EMULATOR} is missing: apt-get install qemu-system-x86\n");
    }
    let print = ["run", TOOLCHAIN, "rustc", "--target", TARGET, "--print", "target-libdir"];
    let libraries = runs("rustup", &print);
    let libraries = libraries.map(|path| PathBuf::from(String::from_utf8_lossy(&path).trim()));
    if !libraries.is_some_and(|path| path.is_dir()) {
        text += &format!(
            "{TOOLCHAIN} for {TARGET} is missing: rustup toolchain install {TOOLCHAIN} --profile \
             minimal --target {TARGET}\n"
        );
    }
    text
}

/// Builds the image, and returns its path.
fn build(root: &Path) -> Result<PathBuf> {
    let to = target_directory(root).join("arceos");
    let mut command = Command::new(tools::find(root, "cargo").context("no cargo in PATH")?);
    clean(&mut command).current_dir(root.join(KERNEL));
    command.args(["build", "--release", "--locked", "--target-dir"]).arg(&to);
    let status = command.status().context("cannot start cargo")?;
    ensure!(status.success(), "{KERNEL} cannot be built: see above");
    Ok(to.join(TARGET).join("release/zonal-arceos-kernel"))
}

fn boot(image: &Path, more: &[&str]) -> Result<Output> {
    let mut command = Command::new(EMULATOR);
    command
        .args(["-machine", "q35", "-cpu", "max", "-display", "none", "-serial", "stdio"])
        .args(["-no-reboot"])
        .args(more)
        .arg("-kernel")
        .arg(image);
    watch(&mut command, LIMIT)
}

fn report(rows: &[Vec<String>], counts: &Output) -> String {
    let mut text = String::from(
        "# A kernel of ArceOS' crates with `zonal-core` as its page allocator\n\n\
         By `cargo xtask arceos`: `axplat-x86-pc` 0.4.1 boots a PC in QEMU (TCG) and tells of its \
         memory, `adapters/arceos` hands out the pages by ArceOS' trait `PageAllocator` \
         (`ax-allocator` 0.5.6), and ArceOS' TLSF makes bytes of them for `alloc`. One CPU. No \
         timing.\n\n## Programs\n\n",
    );
    text += &table(&["machine", "", "programs"], rows);
    text += "\n## Instructions\n\n\
        QEMU `-icount shift=0`: instructions of an allocation and its free, a pair, per page where \
        pages are held. Both behind ArceOS' lock `SpinNoIrq`. `default` is ArceOS' own \
        `BitmapPageAllocator`, on 24 MiB of pages.\n\n";
    let of = |whose| counts.all("count: ").filter_map(move |line| line.strip_prefix(whose));
    text + &beside(&of("default: ").collect::<Vec<_>>(), &of("zonal: ").collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compiler_is_the_one_that_the_kernel_names() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let file = root.join(KERNEL).join("rust-toolchain.toml");
        let text = std::fs::read_to_string(file).unwrap();
        assert!(text.contains(TOOLCHAIN) && text.contains(TARGET), "{text}");
    }
}
