//! Whether a stream is whole, told by its end alone.
//!
//! | form | a file that was cut short |
//! |--|--|
//! | text | does not end in a newline |
//! | anything in zstd frames | ends inside a block, or before a frame's checksum |
//! | `.zonal` | has no end marker |
//! | `trace.dat` | ends before the pages of a CPU do |
//! | ring pages | does not end with a page |
//! | `perf.data` | is refused when it is opened |
//!
//! A text that was cut between two lines, and ring pages that were cut between two pages, look
//! whole; only the number of events in `meta.json` tells, where it is known, once all are read.

use std::io::{self, ErrorKind, SeekFrom};

use crate::error::{Fault, TraceErrorKind};
use crate::lines::read_fault;
use crate::source::Seekable;

/// First bytes of a zstd frame, and of a frame that holds no data (RFC 8878).
const FRAME: u32 = 0xfd2f_b528;
const SKIPPABLE: u32 = 0x184d_2a50;

/// Bytes of a frame's dictionary id and of the size of its content, by their flags.
const DICTIONARY_BYTES: [u64; 4] = [0, 1, 2, 4];
const CONTENT_BYTES: [u64; 4] = [0, 2, 4, 8];
/// A block of one byte that is repeated.
const RLE: u32 = 1;

/// Refuses a stream of text, compressed or not, that is cut short.
///
/// # Errors
/// The missing part, and its byte.
pub(crate) fn check_text(input: &mut dyn Seekable) -> Result<(), (u64, Fault)> {
    let end = input.seek(SeekFrom::End(0)).map_err(|error| (0, fault(error)))?;
    match missing(input, end) {
        Ok(None) => Ok(()),
        Ok(Some(kind)) => Err((end, Box::new(kind))),
        Err(error) => Err((end, fault(error))),
    }
}

/// Refuses a file of pages of `page` bytes that ends in the middle of one.
///
/// # Errors
/// As [`check_text`].
pub(crate) fn check_pages(input: &mut dyn Seekable, page: u64) -> Result<(), (u64, Fault)> {
    let end = input.seek(SeekFrom::End(0)).map_err(|error| (0, fault(error)))?;
    match end % page {
        0 => Ok(()),
        bytes => Err((
            end,
            Box::new(TraceErrorKind::CutShort {
                expected: format!("a whole ring page of {page} bytes"),
                found: format!("{bytes} bytes of one"),
            }),
        )),
    }
}

fn fault(error: io::Error) -> Fault {
    Box::new(read_fault(error))
}

/// The part that a text lacks at its end.
fn missing(input: &mut dyn Seekable, end: u64) -> io::Result<Option<TraceErrorKind>> {
    let mut magic = [0; 4];
    input.rewind()?;
    if end >= magic.len() as u64 {
        input.read_exact(&mut magic)?;
    }
    if u32::from_le_bytes(magic) == FRAME {
        let whole = frames_are_whole(input, end)?;
        return Ok((!whole).then_some(TraceErrorKind::CompressionCutShort));
    }
    let mut last = [b'\n'];
    input.seek(SeekFrom::Start(end.saturating_sub(1)))?;
    let read = input.read(&mut last)?;
    Ok((read == 1 && last != [b'\n']).then(|| TraceErrorKind::CutShort {
        expected: "the last line to end in a newline".to_owned(),
        found: "the end".to_owned(),
    }))
}

/// Whether the last frame is whole. Blocks are passed over by their sizes and not looked into.
fn frames_are_whole(input: &mut dyn Seekable, end: u64) -> io::Result<bool> {
    let mut frames = Frames { input, end, at: 0 };
    loop {
        match frames.pass() {
            Ok(()) if frames.at == end => return Ok(true),
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(false),
            Err(error) => return Err(error),
        }
    }
}

struct Frames<'a> {
    input: &'a mut dyn Seekable,
    end: u64,
    at: u64,
}

impl Frames<'_> {
    /// Passes over a frame. `UnexpectedEof` if the file ends in it.
    fn pass(&mut self) -> io::Result<()> {
        let magic = self.number(4)?;
        if magic & !0xf == SKIPPABLE {
            let bytes = self.number(4)?;
            return self.skip(u64::from(bytes));
        }
        if magic != FRAME {
            return Err(io::Error::new(ErrorKind::InvalidData, "not a zstd frame"));
        }
        let descriptor = self.number(1)?;
        let (content, dictionary) = (descriptor >> 6, descriptor & 3);
        let is_single = descriptor & 0x20 != 0;
        let has_checksum = descriptor & 4 != 0;
        let content = CONTENT_BYTES[content as usize] + u64::from(content == 0 && is_single);
        self.skip(u64::from(!is_single) + DICTIONARY_BYTES[dictionary as usize] + content)?;
        loop {
            let head = self.number(3)?;
            let (is_last, kind, bytes) = (head & 1 == 1, head >> 1 & 3, head >> 3);
            self.skip(if kind == RLE { 1 } else { u64::from(bytes) })?;
            if is_last {
                return self.skip(if has_checksum { 4 } else { 0 });
            }
        }
    }

    fn number(&mut self, bytes: usize) -> io::Result<u32> {
        let mut number = [0; 4];
        self.input.seek(SeekFrom::Start(self.at))?;
        self.input.read_exact(&mut number[..bytes])?;
        self.at += bytes as u64;
        Ok(u32::from_le_bytes(number))
    }

    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        self.at = self.at.saturating_add(bytes);
        if self.at > self.end { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn is_whole(bytes: &[u8]) -> bool {
        check_text(&mut Cursor::new(bytes.to_vec())).is_ok()
    }

    #[test]
    fn a_text_ends_with_a_line() {
        assert!(is_whole(b"a 1\nb 2\n"));
        assert!(!is_whole(b"a 1\nb 2"));
        assert!(!is_whole(b"x"));
    }

    /// Frames of every kind of block, checksum and size, and each of them cut at every byte.
    #[test]
    fn a_frame_that_is_cut_anywhere_is_not_whole() {
        let random: Vec<u8> = (0..200_000_u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
        for content in [&b"one line\n"[..], &[b'x'; 300_000], &random, b""] {
            for (level, checksum, size) in
                [(1, false, true), (3, true, true), (19, true, false), (1, false, false)]
            {
                let mut encoder = zstd::Encoder::new(Vec::new(), level).unwrap();
                encoder.include_checksum(checksum).unwrap();
                encoder.include_contentsize(size).unwrap();
                if size {
                    encoder.set_pledged_src_size(Some(content.len() as u64)).unwrap();
                }
                io::copy(&mut &content[..], &mut encoder).unwrap();
                let frame = encoder.finish().unwrap();
                assert!(is_whole(&frame), "{} bytes, level {level}", content.len());
                let step = (frame.len() / 500).max(1);
                for cut in (4..frame.len()).step_by(step).chain([frame.len() - 1]) {
                    assert!(!is_whole(&frame[..cut]), "{cut} of {}", frame.len());
                    // A second frame behind a whole one.
                    let both = [&frame[..], &frame[..cut]].concat();
                    assert!(!is_whole(&both), "{cut} of the second {}", frame.len());
                }
                assert!(is_whole(&[&frame[..], &frame].concat()));
                let skippable = [&0x184d_2a53_u32.to_le_bytes()[..], &[2, 0, 0, 0, 9, 9]].concat();
                assert!(is_whole(&[&frame[..], &skippable].concat()));
            }
        }
    }
}
