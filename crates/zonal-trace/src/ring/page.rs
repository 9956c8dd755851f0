//! One page of a ring: a header, then records.
//!
//! ```text
//!  0          8           8 + long                                    data + commit     page size
//!  ├ time ns ─┼ commit ───┼ record │ record │ … ──────────────────────┼ (lost events) ──┤
//!               bits 0-26: bytes of records; bit 31: events were lost before this page;
//!               bit 30: how many stands after the records, as a long
//! ```
//! A record begins with 32 bits: 5 of type and length, 27 of time since the record before.
//!
//! | type | what | then |
//! |--|--|--|
//! | 0 | an event | 32 bits of length (with themselves), then the payload |
//! | 1 to 28 | an event | 4 to 112 bytes of payload |
//! | 29 | a discarded event, with 32 bits of length; or, without time, the rest of the page | |
//! | 30 | the high bits of a long pause | 32 bits, to be shifted by 27 |
//! | 31 | an absolute time: bits 27 to 58 | 32 bits; the 5 highest are those of the page |
//!
//! The type is in the 5 low bits of a little-endian kernel and in the 5 high bits of the other.
//!
//! - **RING-1** `start <= at <= end <= page size`: a record's length is checked against `end`
//!   before it is used

use crate::bytes::{Damage, Endian};

/// Smallest and largest page: `buffer_subbuf_size_kb` allows up to 4 MiB less a bit.
pub(crate) const PAGE_BYTES: std::ops::RangeInclusive<u64> = 64..=4 << 20;

const COMMIT_MASK: u64 = (1 << 27) - 1;
const LOST: u64 = 1 << 31;
const LOST_STORED: u64 = 1 << 30;
/// The bits of an absolute time that a page has to supply.
const TIME_HIGH: u64 = 0xf8 << 56;

/// How the pages of a recording are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageLayout {
    pub(crate) endian: Endian,
    /// Bytes of a page.
    pub(crate) page: usize,
    /// Bytes of a `long` of the kernel: 4 or 8.
    pub(crate) long: usize,
}

/// The records of one page.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PageCursor {
    at: usize,
    end: usize,
    time: u64,
    page_time: u64,
    /// Least number of events lost before this page.
    pub(crate) lost: Option<u64>,
}

/// An event's time, and where its payload is in the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) time: u64,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl PageLayout {
    /// Bytes before the records.
    pub(crate) fn header(&self) -> usize {
        8 + self.long
    }

    /// The layout of pages that begin like `start`, if nothing names it: that of the first kind of
    /// kernel whose header is valid, most usual first.
    pub(crate) fn guess(start: &[u8], page: usize) -> Option<PageLayout> {
        let kinds = [(Endian::Little, 8), (Endian::Big, 8), (Endian::Little, 4), (Endian::Big, 4)];
        let layouts = kinds.map(|(endian, long)| PageLayout { endian, page, long });
        layouts.into_iter().find(|layout| {
            let Some(bytes) = start.get(8..layout.header()) else { return false };
            let Some(commit) = layout.endian.number(bytes) else { return false };
            let used = (commit & COMMIT_MASK) as usize;
            let known = commit & !(COMMIT_MASK | LOST | LOST_STORED) == 0;
            known && used > 0 && used <= page - layout.header() && used.is_multiple_of(4)
        })
    }

    /// Opens a page that lies at `offset` of its file.
    pub(crate) fn open(&self, page: &[u8], offset: u64) -> Result<PageCursor, Damage> {
        let header = self.header();
        let number = |range: std::ops::Range<usize>| {
            page.get(range).and_then(|bytes| self.endian.number(bytes))
        };
        let (Some(time), Some(commit)) = (number(0..8), number(8..header)) else {
            return Err(Damage::cut_short(offset + page.len() as u64, "the header of a ring page"));
        };
        let used = (commit & COMMIT_MASK) as usize;
        let end = header + used;
        if end > page.len() || commit & !(COMMIT_MASK | LOST | LOST_STORED) != 0 {
            let expected = "a page's number of bytes used, in its size";
            let found = format!("{commit:#x}");
            return Err(Damage::bad(offset + 8, "ring page header", expected, found));
        }
        let stored = number(end..end + self.long).filter(|_| commit & LOST_STORED != 0);
        let lost = (commit & LOST != 0).then(|| stored.unwrap_or(1).max(1));
        Ok(PageCursor { at: header, end, time, page_time: time, lost })
    }
}

impl PageCursor {
    /// The next event of the page, which lies at `offset` of its file.
    pub(crate) fn next(
        &mut self,
        layout: PageLayout,
        page: &[u8],
        offset: u64,
    ) -> Result<Option<Record>, Damage> {
        let word = |at: usize| {
            let bytes = page.get(at..self.end)?.first_chunk::<4>()?;
            Some(layout.endian.u32(*bytes))
        };
        while self.at < self.end {
            let at = self.at;
            let cut = |what| Damage::cut_short(offset + at as u64, what);
            let head = word(at).ok_or_else(|| cut("the head of a ring record"))?;
            let (kind, delta) = match layout.endian {
                Endian::Little => (head & 31, head >> 5),
                Endian::Big => (head >> 27, head & ((1 << 27) - 1)),
            };
            let delta = u64::from(delta);
            let extra = || word(at + 4).ok_or_else(|| cut("the rest of a ring record"));
            let (start, end) = match kind {
                0 => {
                    let length = extra()? as usize;
                    (at + 8, aligned(at + 4, length.max(4)))
                }
                1..=28 => (at + 4, at + 4 + kind as usize * 4),
                29 if delta == 0 => {
                    self.at = self.end;
                    break;
                }
                29 => {
                    let length = extra()? as usize;
                    (0, aligned(at + 4, length.max(4)))
                }
                30 => {
                    self.time = self.time.wrapping_add((u64::from(extra()?) << 27) + delta);
                    self.at += 8;
                    continue;
                }
                _ => {
                    let low = (u64::from(extra()?) << 27) + delta;
                    self.time = absolute(low, self.page_time);
                    self.at += 8;
                    continue;
                }
            };
            if end > self.end {
                return Err(cut("a whole ring record in its page"));
            }
            self.time = self.time.wrapping_add(delta);
            self.at = end;
            if start != 0 {
                return Ok(Some(Record { time: self.time, start, end }));
            }
        }
        Ok(None)
    }
}

/// Where a part of `length` bytes from `at` ends, on 4 bytes; past every page on overflow.
fn aligned(at: usize, length: usize) -> usize {
    at.saturating_add(length.saturating_add(3) & !3)
}

/// A time whose highest bits are those of the page, or one more where they have since turned over.
fn absolute(low: u64, page_time: u64) -> u64 {
    let time = low & !TIME_HIGH | page_time & TIME_HIGH;
    match time < page_time && page_time - time > 1 << 58 {
        true => time.wrapping_add(1 << 59),
        false => time,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: PageLayout = PageLayout { endian: Endian::Little, page: 128, long: 8 };

    fn page(time: u64, flags: u64, words: &[u32]) -> Vec<u8> {
        let mut page = time.to_le_bytes().to_vec();
        page.extend(((words.len() as u64 * 4) | flags).to_le_bytes());
        page.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        page.resize(128, 0);
        page
    }

    fn records(page: &[u8]) -> Result<Vec<Record>, Damage> {
        let mut cursor = LAYOUT.open(page, 0)?;
        let mut records = Vec::new();
        while let Some(record) = cursor.next(LAYOUT, page, 0)? {
            records.push(record);
        }
        Ok(records)
    }

    #[test]
    fn every_type_of_record_is_read() {
        let head = |kind: u32, delta: u32| delta << 5 | kind;
        let words = [
            head(1, 5),
            0xaaaa, // 4 bytes of payload, 5 ns after the page
            head(0, 1),
            9,
            1,
            2, // 5 bytes with a length of their own
            head(29, 2),
            8,
            0, // discarded
            head(30, 3),
            1, // a pause of 2^27 + 3
            head(2, 1),
            1,
            2,
            head(31, 7),
            16, // the time is 16 << 27 | 7
            head(1, 0),
            3,
            head(29, 0),
            99, // the rest is empty
        ];
        let found = records(&page(1000, 0, &words)).unwrap();
        let times: Vec<u64> = found.iter().map(|record| record.time).collect();
        assert_eq!(times, [1005, 1006, 1012 + (1 << 27), (16 << 27) + 7]);
        let lengths: Vec<usize> = found.iter().map(|record| record.end - record.start).collect();
        assert_eq!(lengths, [4, 8, 8, 4]);
    }

    #[test]
    fn lost_events_are_told() {
        let lost = |flags| LAYOUT.open(&page(1, flags, &[33, 0]), 0).unwrap().lost;
        assert_eq!(lost(0), None);
        assert_eq!(lost(LOST), Some(1));
        let mut stored = page(1, LOST | LOST_STORED, &[33, 0]);
        stored[24..32].copy_from_slice(&7_u64.to_le_bytes());
        assert_eq!(LAYOUT.open(&stored, 0).unwrap().lost, Some(7));
    }

    #[test]
    fn lengths_past_the_page_are_refused_with_their_offset() {
        for words in [&[28][..], &[0, u32::MAX], &[0], &[29 | 1 << 5, 4000], &[30], &[31]] {
            let damage = records(&page(1, 0, words)).unwrap_err();
            assert_eq!(damage.offset, 16, "{words:?}");
        }
        let damage = LAYOUT.open(&page(1, 0x1000, &[]), 4096).unwrap_err();
        assert_eq!(damage.offset, 4104);
    }

    #[test]
    fn kinds_of_kernels_are_told_apart() {
        let mut big = 5_u64.to_be_bytes().to_vec();
        big.extend(40_u64.to_be_bytes());
        for (start, endian, long) in [
            (page(5, 0, &[33, 0]), Endian::Little, 8),
            (big, Endian::Big, 8),
            ([&5_u64.to_le_bytes()[..], &[40, 0, 0, 0, 1, 2, 3, 4]].concat(), Endian::Little, 4),
            ([&5_u64.to_be_bytes()[..], &[0, 0, 0, 40, 1, 2, 3, 4]].concat(), Endian::Big, 4),
        ] {
            let layout = PageLayout::guess(&start, 128).unwrap();
            assert_eq!((layout.endian, layout.long), (endian, long));
        }
        assert_eq!(PageLayout::guess(&[0xff; 16], 128), None);
        assert_eq!(PageLayout::guess(&[], 128), None);
    }

    #[test]
    fn an_absolute_time_gets_its_high_bits() {
        let page_time = 3 << 59 | 100;
        assert_eq!(absolute(500, page_time), 3 << 59 | 500);
        let late = (3 << 59) + ((1 << 59) - 1);
        assert_eq!(absolute(5, late), (4 << 59) + 5);
    }
}
