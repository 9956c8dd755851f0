//! Events to the compact text form, for programs that read lines.

use std::io::{self, Write};

use crate::compact;
use crate::event::Event;

const HEAD: &str =
    "# time_ns cpu pid event pfn(hex) order [migratetype] [gfp(hex)|percpu_refill|fallback(hex)]\n";

/// Writes `events.txt`.
pub struct TextWriter<W: Write> {
    output: W,
    line: String,
}

impl<W: Write> TextWriter<W> {
    /// Begins with the line by which readers know the form.
    ///
    /// # Errors
    /// Those of `output`.
    pub fn new(mut output: W) -> io::Result<TextWriter<W>> {
        output.write_all(HEAD.as_bytes())?;
        Ok(TextWriter { output, line: String::new() })
    }

    /// Adds an event.
    ///
    /// # Errors
    /// Those of the output.
    pub fn push(&mut self, event: &Event) -> io::Result<()> {
        self.line.clear();
        compact::write(event, &mut self.line).map_err(io::Error::other)?;
        self.output.write_all(self.line.as_bytes())
    }

    /// Gives the output back, flushed.
    ///
    /// # Errors
    /// Those of the output.
    pub fn finish(mut self) -> io::Result<W> {
        self.output.flush()?;
        Ok(self.output)
    }
}
