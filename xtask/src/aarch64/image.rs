//! What a kernel unpacks into memory when it starts: an archive of the form that `cpio` calls newc.
//!
//! Each entry is a head of fixed length (a magic number and 13 fields of 8 hexadecimal digits), the
//! name, terminated by a zero byte, and the contents; both are filled up to a multiple of four
//! bytes.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

const MAGIC: &str = "070701";
const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
/// The name that ends an archive.
const LAST: &str = "TRAILER!!!";

/// An archive under way.
#[derive(Default)]
pub struct Image {
    bytes: Vec<u8>,
    entries: u32,
}

impl Image {
    /// Adds a folder. Its parent must be there.
    pub fn directory(&mut self, name: &str) {
        self.entry(name, DIRECTORY, &[]);
    }

    /// Adds a program with these contents.
    pub fn file(&mut self, name: &str, contents: Vec<u8>) {
        self.entry(name, PROGRAM, &contents);
    }

    /// Adds a program of this machine's.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn program(&mut self, name: &str, from: &Path) -> Result<()> {
        let contents =
            fs::read(from).with_context(|| format!("{}: cannot be read", from.display()))?;
        self.entry(name, PROGRAM, &contents);
        Ok(())
    }

    /// The archive, ended.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry(LAST, 0, &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, contents: &[u8]) {
        self.entries += 1;
        let (size, name_size) = (contents.len() as u32, name.len() as u32 + 1);
        // Number, mode, user, group, links, time, size, four of devices, size of the name, sum.
        let fields = [self.entries, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
        self.bytes.extend(MAGIC.bytes());
        self.bytes.extend(fields.iter().flat_map(|field| format!("{field:08X}").into_bytes()));
        self.bytes.extend(name.bytes());
        self.bytes.push(0);
        self.fill_up();
        self.bytes.extend(contents);
        self.fill_up();
    }

    fn fill_up(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_heads_names_and_contents_in_words() {
        let mut image = Image::default();
        image.directory("bin");
        image.file("init", b"hello".to_vec());
        let bytes = image.finish();
        assert_eq!(bytes.len() % 4, 0);
        let text = String::from_utf8(bytes).unwrap();
        let heads: Vec<usize> = text.match_indices(MAGIC).map(|(at, _)| at).collect();
        assert_eq!(heads.len(), 3);
        assert!(heads.iter().all(|at| at % 4 == 0), "{heads:?}");
        // Behind magic, number and mode come four fields, then the size.
        assert_eq!(&text[heads[1] + 6 + 6 * 8..][..8], "00000005");
        assert!(text[heads[1]..].contains("init\0\0hello\0\0\0"), "{text}");
        assert!(text.contains(LAST));
    }
}
