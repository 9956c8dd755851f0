//! Lines to the serial port.

use core::fmt::{Arguments, Result, Write};
use core::sync::atomic::{AtomicBool, Ordering::SeqCst};

use crate::arch;

/// The serial port.
pub struct Serial;

impl Write for Serial {
    fn write_str(&mut self, text: &str) -> Result {
        text.bytes().for_each(arch::write_byte);
        Ok(())
    }
}

static TAKEN: AtomicBool = AtomicBool::new(false);

/// Writes a line; lines of different CPUs do not mix. A CPU that fails inside of a line does not
/// wait for itself.
pub fn line(text: Arguments<'_>) {
    let was = arch::mask();
    let mut tries = 0_u32;
    while TAKEN.swap(true, SeqCst) && tries < 1_000_000 {
        core::hint::spin_loop();
        tries += 1;
    }
    let _ = writeln!(Serial, "{text}");
    TAKEN.store(false, SeqCst);
    arch::unmask(was);
}

#[macro_export]
macro_rules! say {
    ($($text:tt)*) => { $crate::out::line(format_args!($($text)*)) };
}
