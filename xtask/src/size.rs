//! `cargo xtask size`: how much text the core brings into a minimal image, and how many
//! instructions its calls take.
//!
//! The image is `xtask/minimal` for a machine without an operating system: a platform with one CPU
//! that makes an allocator, allocates and frees; `opt-level = "s"`, fat LTO, `panic = "abort"`. It
//! is built with and without the feature `history`, the policy chosen at run time, and with the
//! policy `zonal` or `kernel` compiled in (`Platform::POLICY`). Text is counted by the crate that a
//! function is written in; inlined code counts for its caller. Of the smallest image it lists each
//! function that calls a panic, and stack frames above 1 KiB (`frames`).
//!
//! Instructions are those that valgrind counts on this host at `opt-level = 3`, as the difference
//! of two runs: the same on every machine whose processor has AVX2 (bulk calls take some two more
//! elsewhere). The platform has no per-CPU sequences, so calls are served under the gate of the
//! pcp; with the feature `by-core` each closes its pcp and opens it.

mod frames;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::ci::BARE_TARGET;
use crate::tools::{cargo, target_directory};
use frames::Frames;

/// The builds: a name, and features of `xtask/minimal`.
const BUILDS: [(&str, &str); 5] = [
    ("history", "history"),
    ("no history", ""),
    ("by core", "by-core"),
    ("one policy", "fixed"),
    ("kernel", "kernel"),
];
/// The build whose panics and stack frames are listed: the smallest.
const SMALLEST: &str = "kernel";

/// What is counted: an argument of the program, calls in one turn, and turns of the two runs.
const CALLS: [(&str, u64, [u64; 2]); 10] = [
    ("order0", 1, [1000, 6000]),
    ("order3", 1, [1000, 6000]),
    ("order9", 1, [1000, 6000]),
    ("bulk", 512, [10, 60]),
    ("bulk4096", 4096, [10, 60]),
    ("bulkcalls", 512, [10, 60]),
    ("range2", 1, [1000, 6000]),
    ("range3", 1, [1000, 6000]),
    ("range8", 1, [1000, 6000]),
    ("range512", 1, [1000, 6000]),
];

/// Builds, measures and prints; true if everything could be built.
pub fn run(root: &Path) -> Result<bool> {
    let out = target_directory(root).join("minimal");
    println!("text of the image for {BARE_TARGET}, bytes by crate");
    for (name, features) in BUILDS {
        let image = build(root, &out, features, Some(BARE_TARGET))?;
        let bytes = std::fs::read(&image).with_context(|| format!("{}", image.display()))?;
        let text = Text::of(&bytes).with_context(|| format!("{}", image.display()))?;
        let by_crate: Vec<String> =
            text.by_crate.iter().map(|(name, bytes)| format!("{name} {bytes}")).collect();
        println!("{name:10} {:7}  {}", text.whole, by_crate.join(", "));
        if name == SMALLEST {
            match Frames::of(&image)? {
                Some(frames) => frames.print(name),
                None => eprintln!("note: SKIPPED: objdump shows panics and stack; none found"),
            }
        }
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        eprintln!("note: SKIPPED: valgrind counts the instructions; none found");
        return Ok(true);
    }
    println!("instructions of an allocation and its free, x 0.1");
    for (name, features) in BUILDS {
        let program = build(root, &out, features, None)?;
        let counts = CALLS.map(|(what, calls, turns)| {
            let [few, many] = turns.map(|turns| count(&program, what, turns));
            Ok::<_, anyhow::Error>((what, (many? - few?) * 10 / ((turns[1] - turns[0]) * calls)))
        });
        let counts: Result<Vec<_>> = counts.into_iter().collect();
        let counts: Vec<String> =
            counts?.iter().map(|(what, count)| format!("{what} {count}")).collect();
        println!("{name:10}  {}", counts.join(", "));
    }
    Ok(true)
}

/// Builds the image for `target`, or the program that is counted for this host.
fn build(root: &Path, out: &Path, features: &str, target: Option<&str>) -> Result<PathBuf> {
    let (bin, profile) = if target.is_some() { ("image", "image") } else { ("count", "release") };
    let mut command = cargo(&root.join("xtask/minimal"));
    command
        .args(["build", "--quiet", "--bin", bin, "--profile", profile, "--features", features])
        .arg("--target-dir")
        .arg(out)
        .env("RUSTFLAGS", "-Csymbol-mangling-version=v0");
    if let Some(target) = target {
        command.args(["--target", target]);
    }
    let status = command.status().context("cannot start cargo build in xtask/minimal")?;
    ensure!(
        status.success(),
        "xtask/minimal cannot be built with features '{features}'; the image needs \
         `rustup target add {BARE_TARGET}`"
    );
    Ok(out.join(target.unwrap_or_default()).join(profile).join(bin))
}

/// Instructions of one run of the program.
fn count(program: &Path, what: &str, turns: u64) -> Result<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args([what, &turns.to_string()])
        .output()
        .context("cannot start valgrind")?;
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().find_map(|line| line.split_once("Collected : "));
    let (_, count) = line.with_context(|| format!("valgrind counted nothing:\n{text}"))?;
    count.trim().parse().with_context(|| format!("'{count}' is no count of instructions"))
}

/// The code of an image.
#[derive(Debug, Default, PartialEq, Eq)]
struct Text {
    /// Bytes of all sections with instructions.
    whole: u64,
    /// Bytes of functions by the crate that they are written in; the rest is padding.
    by_crate: BTreeMap<String, u64>,
}

const SECTION_BYTES: usize = 64;
const SYMBOL_BYTES: usize = 24;
const SYMBOL_TABLE: u32 = 2;
const EXECUTABLE: u64 = 4;
const FUNCTION: u8 = 2;

impl Text {
    /// Reads an ELF file of 64 bits, little endian, with its symbols.
    fn of(elf: &[u8]) -> Result<Text> {
        ensure!(elf.starts_with(b"\x7fELF\x02\x01"), "no ELF file of 64 bits, little endian");
        let table = number(elf, 0x28, 8)? as usize;
        let sections = number(elf, 0x3c, 2)? as usize;
        let section = |index: usize| -> Result<Section> {
            let at = table + index * SECTION_BYTES;
            let field = |offset, len| number(elf, at + offset, len);
            Ok(Section {
                kind: field(4, 4)? as u32,
                flags: field(8, 8)?,
                offset: field(0x18, 8)? as usize,
                size: field(0x20, 8)?,
                link: field(0x28, 4)? as usize,
            })
        };
        let mut text = Text::default();
        for index in 0..sections {
            let one = section(index)?;
            if one.flags & EXECUTABLE != 0 {
                text.whole += one.size;
            }
            if one.kind != SYMBOL_TABLE {
                continue;
            }
            let names = section(one.link)?;
            for at in (one.offset..one.offset + one.size as usize).step_by(SYMBOL_BYTES) {
                if number(elf, at + 4, 1)? as u8 & 0xf != FUNCTION {
                    continue;
                }
                let name = names.offset + number(elf, at, 4)? as usize;
                let rest = elf.get(name..).context("a name beyond the end")?;
                let name: Vec<u8> = rest.iter().copied().take_while(|byte| *byte != 0).collect();
                let name = String::from_utf8_lossy(&name);
                let size = number(elf, at + 0x10, 8)?;
                *text.by_crate.entry(crate_of(&name).to_owned()).or_default() += size;
            }
        }
        Ok(text)
    }
}

/// A section's header, as far as it is read.
struct Section {
    kind: u32,
    flags: u64,
    offset: usize,
    size: u64,
    link: usize,
}

fn number(bytes: &[u8], at: usize, len: usize) -> Result<u64> {
    let bytes = bytes.get(at..at + len).context("the file ends too soon")?;
    Ok(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// The crate in whose source a function is written: the first crate root (`C`, perhaps a
/// disambiguator, a length and a name) of a symbol in Rust's v0 form. Others are `other`.
fn crate_of(symbol: &str) -> &str {
    let Some(path) = symbol.strip_prefix("_R") else { return "other" };
    let mut rest = path;
    while let Some(at) = rest.find('C') {
        rest = &rest[at + 1..];
        let name = match rest.strip_prefix('s') {
            Some(named) => named.split_once('_').map_or("", |(_, name)| name),
            None => rest,
        };
        let digits = name.len() - name.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let Ok(len) = name[..digits].parse::<usize>() else { continue };
        let name = name[digits..].strip_prefix('_').unwrap_or(&name[digits..]);
        if let Some(name) = name.get(..len) {
            return name;
        }
    }
    "other"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symbol_names_the_crate_that_it_is_written_in() {
        for (symbol, expected) in [
            ("_RNvNtCs1234_7mycrate3foo3bar", "mycrate"),
            ("_RNvC4core4main", "core"),
            (
                "_RNvXs_NtNtCsd9i_10zonal_core3pcp6closedNtB4_6ClosedNtNtCs8_4core3ops4Drop4drop",
                "zonal_core",
            ),
            ("_RINvMs0_NtCsaa_10zonal_core5allocNtB6_1A5allocNtCsbb_7minimal4HomeE", "zonal_core"),
            ("memcpy", "other"),
            ("_RC99short", "other"),
        ] {
            assert_eq!(crate_of(symbol), expected, "{symbol}");
        }
    }

    /// A header, three sections (text, symbols, names), two functions and an object.
    #[test]
    fn text_is_summed_by_crate() {
        let names = b"\0_RNvC4core4main\0memcpy\0";
        let symbols = [(1u32, 2u8, 40u64), (1, 2, 2), (17, 2, 8), (17, 1, 99)];
        let mut elf = vec![0; 64];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        let mut body = names.to_vec();
        for (name, kind, size) in symbols {
            body.extend(name.to_le_bytes());
            body.extend([kind, 0, 0, 0]);
            body.extend([0; 8]);
            body.extend(size.to_le_bytes());
        }
        let (names_at, symbols_at) = (64u64, 64 + names.len() as u64);
        let table = symbols_at + 24 * symbols.len() as u64;
        elf[0x28..0x30].copy_from_slice(&table.to_le_bytes());
        elf[0x3c..0x3e].copy_from_slice(&3u16.to_le_bytes());
        elf.extend(body);
        let sections = [
            (1u32, 6u64, 0u64, 64u64, 0u32),
            (2, 0, symbols_at, 24 * symbols.len() as u64, 2),
            (3, 0, names_at, names.len() as u64, 0),
        ];
        for (kind, flags, offset, size, link) in sections {
            let mut header = [0; SECTION_BYTES];
            header[4..8].copy_from_slice(&kind.to_le_bytes());
            header[8..16].copy_from_slice(&flags.to_le_bytes());
            header[0x18..0x20].copy_from_slice(&offset.to_le_bytes());
            header[0x20..0x28].copy_from_slice(&size.to_le_bytes());
            header[0x28..0x2c].copy_from_slice(&link.to_le_bytes());
            elf.extend(header);
        }
        let text = Text::of(&elf).unwrap();
        let expected = [("core".to_owned(), 42), ("other".to_owned(), 8)];
        assert_eq!(text, Text { whole: 64, by_crate: expected.into() });
        assert!(Text::of(&elf[..300.min(elf.len() - 1)]).is_err(), "cut off");
        assert!(Text::of(b"#!/bin/sh").is_err());
    }
}
