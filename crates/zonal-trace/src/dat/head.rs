//! The head of a `trace.dat`, of either version.

use super::meta::Meta;
use crate::bytes::{Damage, Endian};
use crate::ring::PageLayout;
use crate::tracefs::{Decoder, Symbols};

/// Where the pages of one CPU are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) cpu: u32,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

impl Place {
    /// Where the pages end. The number of compressed chunks comes before the bytes that the size
    /// counts.
    pub(super) fn end(&self, compressed: bool) -> u64 {
        let counted = if compressed { 4 } else { 0 };
        self.offset.saturating_add(self.bytes).saturating_add(counted)
    }
}

/// The head of a `trace.dat`.
#[derive(Debug, Clone)]
pub(crate) struct TraceDat {
    pub(super) layout: PageLayout,
    pub(super) decoder: Decoder,
    pub(super) places: Vec<Place>,
    /// Whether pages are in compressed chunks.
    pub(super) compressed: bool,
    pub(crate) clock: Option<String>,
    pub(crate) cpus: Option<u32>,
    pub(crate) uname: Option<String>,
}

/// The first bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Initial {
    pub(super) endian: Endian,
    pub(super) long: usize,
    pub(super) page: usize,
}

/// Puts together what both versions found.
pub(super) fn assemble(initial: Initial, meta: Meta, compressed: bool) -> Result<TraceDat, Damage> {
    let Initial { endian, long, page } = initial;
    let (page, kernel_long) = meta.page.unwrap_or((page, Some(long)));
    let mut decoder = Decoder::new(endian, meta.symbols.unwrap_or(Symbols::Unknown));
    for (offset, text) in &meta.formats {
        decoder.learn(text).map_err(|fault| Damage::new(*offset, fault))?;
    }
    if decoder.is_empty() {
        let expected = "formats of kmem events: record with `trace-cmd record -e kmem`";
        return Err(Damage::bad(0, "event formats", expected, "none"));
    }
    Ok(TraceDat {
        layout: PageLayout { endian, page, long: kernel_long.unwrap_or(long) },
        decoder,
        places: Vec::new(),
        compressed,
        clock: None,
        cpus: None,
        uname: None,
    })
}

/// The clock of the text of `trace_clock`, `local global [mono] …`, or of a bare name.
pub(super) fn clock_of(text: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(text);
    let text = text.trim_matches(['\0', '\n', ' ']);
    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    let name = chosen.map_or(text, |(name, _)| name);
    (!name.is_empty()).then(|| name.to_owned())
}

/// A string of an option, without its zero byte.
pub(super) fn option_text(data: &[u8]) -> Option<String> {
    let text = data.split(|&byte| byte == 0).next().unwrap_or_default();
    (!text.is_empty()).then(|| String::from_utf8_lossy(text).into_owned())
}
