//! Recordings of a few seconds, again and again, for hours: one file each, and the oldest go when
//! they need more room than was given. Between windows nothing is traced.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;

use super::load::{LOOK, Output, is_running};
use super::rings::DIGITS;
use super::{RecordArgs, Signals, make};
use crate::output::{self, chain, folder_of};

/// Records windows until something ends them. Returns how many of them there are, and how many are
/// left out.
///
/// # Errors
/// The first window's. Later ones that fail, as where somebody else records, are left out with a
/// note.
pub fn run(args: &RecordArgs, every: Duration, window: Duration) -> anyhow::Result<(u32, u32)> {
    let signal = Arc::new(AtomicUsize::new(0));
    let begin = Instant::now();
    let mut files = Files::new(&args.output, args.max_mib << 20)?;
    let is_over = || {
        let is_late = args.duration.is_some_and(|time| begin.elapsed() >= time);
        let is_gone = args.pid.is_some_and(|pid| !is_running(pid));
        // Relaxed: the flag carries no data.
        is_late || is_gone || signal.load(Ordering::Relaxed) != 0
    };
    let mut failed = 0;
    for number in 0_u32.. {
        let left = args.duration.map(|time| time.saturating_sub(begin.elapsed()));
        let time = left.map_or(window, |left| left.min(window));
        let path = files.next();
        let signals = if number == 0 { Signals::Ends } else { Signals::Caught };
        let one = RecordArgs {
            output: path.clone(),
            duration: Some(time),
            command: Vec::new(),
            ..args.clone()
        };
        match make(&one, (&signal, signals), None, Output::Ours) {
            Ok(()) => files.add(path)?,
            Err(error) if number == 0 => return Err(error),
            Err(error) => {
                // One that a signal ended while it waited for the host is not wanted any more.
                failed += u32::from(signal.load(Ordering::Relaxed) == 0);
                output::note(&format!("{} is left out: {}", path.display(), chain(&error)));
            }
        }
        let next = every.saturating_mul(number + 1);
        while begin.elapsed() < next && !is_over() {
            std::thread::sleep(LOOK.min(next.saturating_sub(begin.elapsed())));
        }
        if is_over() {
            return Ok((number + 1, failed));
        }
    }
    // More windows than numbers.
    Ok((u32::MAX, failed))
}

/// Files of this run.
struct Files {
    directory: PathBuf,
    /// Names of files need not be UTF-8.
    stem: OsString,
    number: u64,
    bytes_max: u64,
    bytes: u64,
    all: VecDeque<(PathBuf, u64)>,
}

impl Files {
    /// Names after those of earlier runs, which stay as they are.
    fn new(output: &Path, bytes_max: u64) -> anyhow::Result<Files> {
        let directory = folder_of(output).to_owned();
        let stem = output.file_stem().unwrap_or_default().to_owned();
        let entries =
            fs::read_dir(&directory).with_context(|| format!("{}", directory.display()))?;
        let names = entries.filter_map(|entry| Some(entry.ok()?.file_name()));
        let number = names.filter_map(|name| {
            let rest = name.as_encoded_bytes().strip_prefix(stem.as_encoded_bytes())?;
            let number = rest.strip_prefix(b"-")?.strip_suffix(b".zonal")?;
            std::str::from_utf8(number).ok()?.parse::<u64>().ok()
        });
        let number = number.max().unwrap_or(0);
        Ok(Files { directory, stem, number, bytes_max, bytes: 0, all: VecDeque::new() })
    }

    fn next(&mut self) -> PathBuf {
        self.number += 1;
        let mut name = self.stem.clone();
        name.push(format!("-{:0DIGITS$}.zonal", self.number));
        self.directory.join(name)
    }

    /// Adds a file; the oldest go while there is no room. The last one stays in any case.
    fn add(&mut self, path: PathBuf) -> anyhow::Result<()> {
        let bytes = match fs::metadata(&path) {
            Ok(there) => there.len(),
            // Somebody has taken it away.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error).with_context(|| format!("{}", path.display())),
        };
        self.bytes += bytes;
        self.all.push_back((path, bytes));
        while self.bytes > self.bytes_max && self.all.len() > 1 {
            let Some((oldest, bytes)) = self.all.pop_front() else { break };
            self.bytes -= bytes;
            match fs::remove_file(&oldest) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(error).with_context(|| format!("{}", oldest.display()));
                }
                // Somebody took it away.
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_windows_go_and_those_of_earlier_runs_stay() {
        let directory = tempfile::tempdir().unwrap();
        let there = |name: &str| directory.path().join(name);
        for name in ["a-000007.zonal", "a-x.zonal", "b-000099.zonal"] {
            fs::write(there(name), "old").unwrap();
        }
        let mut files = Files::new(&there("a.zonal"), 25).unwrap();
        for _ in 0..4 {
            let path = files.next();
            fs::write(&path, "0123456789").unwrap();
            files.add(path).unwrap();
        }
        let mut names: Vec<_> = fs::read_dir(directory.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        let expected =
            ["a-000007.zonal", "a-000010.zonal", "a-000011.zonal", "a-x.zonal", "b-000099.zonal"];
        assert_eq!(names, expected);
        // A name that is not UTF-8 stays as it is.
        #[cfg(unix)]
        {
            use std::os::unix::ffi::OsStrExt as _;
            let odd = |name: &[u8]| directory.path().join(std::ffi::OsStr::from_bytes(name));
            fs::write(odd(b"\xff-000004.zonal"), "old").unwrap();
            let next = Files::new(&odd(b"\xff.zonal"), 25).unwrap().next();
            assert_eq!(next, odd(b"\xff-000005.zonal"));
        }
        // One that is larger than all the room stays until the next one.
        let path = files.next();
        fs::write(&path, [0; 100]).unwrap();
        files.add(path.clone()).unwrap();
        assert!(path.exists() && !there("a-000011.zonal").exists());
        // One that somebody took away at once needs no room.
        let taken = files.next();
        files.add(taken).unwrap();
    }
}
