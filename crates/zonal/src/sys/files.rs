//! Files that somebody else writes at the same time.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// More than any file of sysfs that is read here: lists of 8192 CPUs, distances of 1024 nodes.
const SNAPSHOT_BYTES: usize = 64 * 1024;

/// The text of a file of sysfs, as it was at one moment.
///
/// The kernel generates the text of such a file for each `read`. A reader that asks in pieces may
/// get the beginning of one text and the end of another: while a CPU goes offline, `0-1` and `0`
/// were read as `0\n1`. So this asks once, for all of it.
///
/// # Errors
/// What the system says; a file longer than 64 KiB, or one that is not UTF-8.
pub fn snapshot(path: &Path) -> io::Result<String> {
    let mut bytes = vec![0; SNAPSHOT_BYTES];
    let length = File::open(path)?.read(&mut bytes)?;
    if length == bytes.len() {
        let what = format!("longer than {SNAPSHOT_BYTES} bytes, so no file of sysfs");
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    bytes.truncate(length);
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Each of two files gets the other's name, in one step.
///
/// # Errors
/// What the system says: one of them is not there, or the system has no such call.
pub(crate) fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    super::os::exchange(one, other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_snapshot_is_the_answer_to_one_read() {
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"0-1\n").unwrap();
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader));
        // Another read would wait here for ever: the writer stays.
        assert_eq!(snapshot(Path::new(&path)).unwrap(), "0-1\n");
        drop(writer);
    }

    #[test]
    fn a_file_that_is_too_long_is_refused_and_not_cut() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("long");
        std::fs::write(&path, vec![b'1'; SNAPSHOT_BYTES]).unwrap();
        let error = snapshot(&path).unwrap_err();
        assert!(error.to_string().contains("longer than 65536 bytes"), "{error}");
        std::fs::write(&path, vec![b'1'; SNAPSHOT_BYTES - 1]).unwrap();
        assert_eq!(snapshot(&path).unwrap().len(), SNAPSHOT_BYTES - 1);
    }
}
