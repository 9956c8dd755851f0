//! The file in which a pool shows itself to other programs ([`Builder::observe`]).
//!
//! ```text
//! zonal-observed 1
//! process 4711
//! at_ms 86400123            CLOCK_MONOTONIC
//! zoneinfo 5120             a name, and how many bytes of text follow
//! Node 0, zone   Normal
//! …
//! buddyinfo 120
//! …
//! ```
//! The texts are the kernel's own forms ([`crate::text`]) and OpenMetrics, all of one reading. The
//! refresh thread writes a new file beside the old one and renames it, so a reader always finds a
//! whole one.
//!
//! [`Builder::observe`]: crate::Builder::observe

use std::fmt::Write as _;

use thiserror::Error;
use zonal_text::Layout;

use crate::text::State;

/// The first line.
pub(crate) const MAGIC: &str = "zonal-observed 1";
/// A file of more bytes than this is none.
pub const SNAPSHOT_BYTES_MAX: u64 = 256 << 20;

/// Texts of one reading of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Observed<'t> {
    /// The process that has the pool.
    pub process: u32,
    /// When, in milliseconds of CLOCK_MONOTONIC.
    pub at_ms: u64,
    /// As `/proc/zoneinfo`.
    pub zoneinfo: &'t str,
    /// As `/proc/buddyinfo`.
    pub buddyinfo: &'t str,
    /// As `/proc/vmstat`.
    pub vmstat: &'t str,
    /// Every counter of the pool.
    pub openmetrics: &'t str,
}

/// A file that no pool wrote.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("byte {at}: expected {expected}, as a pool with Builder::observe writes it")]
pub struct ObservedError {
    /// Where, in bytes from the beginning.
    pub at: usize,
    /// The accepted text.
    pub expected: &'static str,
}

impl<'t> Observed<'t> {
    /// Reads a file's text.
    ///
    /// # Errors
    /// Says where it is none, and what was expected there.
    pub fn parse(text: &'t str) -> Result<Observed<'t>, ObservedError> {
        let mut rest = Rest { text, at: 0 };
        if rest.line()? != MAGIC {
            return Err(ObservedError { at: 0, expected: "`zonal-observed 1`" });
        }
        let process = rest.number("process ", "`process` and a number")?;
        let process = u32::try_from(process).map_err(|_| rest.error("a process below 2^32"))?;
        let at_ms = rest.number("at_ms ", "`at_ms` and a number")?;
        let zoneinfo = rest.section("zoneinfo ", "`zoneinfo`, a number of bytes and as many")?;
        let buddyinfo = rest.section("buddyinfo ", "`buddyinfo`, a number of bytes and as many")?;
        let vmstat = rest.section("vmstat ", "`vmstat`, a number of bytes and as many")?;
        let openmetrics =
            rest.section("openmetrics ", "`openmetrics`, a number of bytes and as many")?;
        match rest.text.len() == rest.at {
            true => Ok(Observed { process, at_ms, zoneinfo, buddyinfo, vmstat, openmetrics }),
            false => Err(rest.error("the end")),
        }
    }
}

/// The text of a file.
pub(crate) fn print(state: &State, layout: Layout, (process, at_ms): (u32, u64)) -> String {
    let mut text = format!("{MAGIC}\nprocess {process}\nat_ms {at_ms}\n");
    for (name, section) in [
        ("zoneinfo", state.zoneinfo(layout).to_string()),
        ("buddyinfo", state.buddyinfo().to_string()),
        ("vmstat", state.vmstat(layout).to_string()),
        ("openmetrics", state.openmetrics()),
    ] {
        // Writing to a String cannot fail.
        let _ = write!(text, "{name} {}\n{section}", section.len());
    }
    text
}

struct Rest<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Rest<'t> {
    fn error(&self, expected: &'static str) -> ObservedError {
        ObservedError { at: self.at, expected }
    }

    fn line(&mut self) -> Result<&'t str, ObservedError> {
        let rest = &self.text[self.at..];
        let end = rest.find('\n').ok_or_else(|| self.error("a line"))?;
        self.at += end + 1;
        Ok(&rest[..end])
    }

    fn number(&mut self, name: &str, expected: &'static str) -> Result<u64, ObservedError> {
        let from = self.at;
        let value = self.line()?.strip_prefix(name).and_then(|value| value.parse().ok());
        value.ok_or(ObservedError { at: from, expected })
    }

    fn section(&mut self, name: &str, expected: &'static str) -> Result<&'t str, ObservedError> {
        let from = self.at;
        let bytes = usize::try_from(self.number(name, expected)?).ok();
        let text = bytes.and_then(|bytes| {
            let end = self.at.checked_add(bytes)?;
            let text = self.text.get(self.at..end)?;
            self.at = end;
            Some(text)
        });
        text.ok_or(ObservedError { at: from, expected })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pool;

    #[test]
    fn what_is_printed_is_read_and_what_is_cut_is_refused() {
        let pool = Pool::builder().size(16 << 20).refresh_every(None).build().unwrap();
        let state = pool.state();
        let text = print(&state, Layout::Linux6_14, (4711, 99));
        let observed = Observed::parse(&text).unwrap();
        assert_eq!((observed.process, observed.at_ms), (4711, 99));
        assert_eq!(observed.zoneinfo, state.zoneinfo(Layout::Linux6_14).to_string());
        assert_eq!(observed.openmetrics, state.openmetrics());
        for length in 0..text.len() {
            assert!(Observed::parse(&text[..length]).is_err(), "{length}");
        }
        let more = text.clone() + "x";
        let error = Observed::parse(&more).unwrap_err();
        assert_eq!((error.at, error.expected), (text.len(), "the end"));
        for (from, to) in [
            ("observed 1", "observed 2"),
            ("process 4711", "process 99999999999"),
            ("at_ms 99", "at_ms -1"),
            ("buddyinfo ", "buddyinfo 18446744073709551615"),
        ] {
            assert!(Observed::parse(&text.replacen(from, to, 1)).is_err(), "{to}");
        }
    }
}
