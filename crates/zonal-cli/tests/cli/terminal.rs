//! The program in a terminal: a pseudo-terminal, and what it shows.

use std::fs::File;
use std::io::Read as _;
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// Nothing takes longer than this.
const LONG: Duration = Duration::from_secs(120);

/// A program in a terminal.
pub struct Terminal {
    own: OwnedFd,
    child: Child,
    output: Receiver<Vec<u8>>,
    parser: vt100::Parser,
    /// All that was written.
    pub written: Vec<u8>,
}

fn size(rows: u16, columns: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

fn cells(count: u16) -> NonZero<u16> {
    NonZero::new(count).expect("a terminal has rows and columns")
}

impl Terminal {
    /// Runs a command in a terminal of this size. `term` is its type, if it has one.
    pub fn run(args: &[&str], (rows, columns): (u16, u16), term: Option<&str>) -> Terminal {
        let own = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&own).unwrap();
        unlockpt(&own).unwrap();
        tcsetwinsize(&own, size(rows, columns)).unwrap();
        let path = ptsname(&own, Vec::new()).unwrap();
        let open = || {
            let path = path.to_str().unwrap();
            File::options().read(true).write(true).open(path).unwrap()
        };
        // `setsid -c` makes it the controlling terminal, which tells the program of its sizes.
        let mut command = Command::new("setsid");
        command.args(["-w", "-c", env!("CARGO_BIN_EXE_zonal")]).args(args);
        command.stdin(open()).stdout(open()).stderr(Stdio::null()).env("NO_COLOR", "1");
        match term {
            Some(term) => command.env("TERM", term),
            None => command.env_remove("TERM"),
        };
        let child = command.spawn().unwrap();
        drop(command);
        let (sender, output) = channel();
        let mut reader = File::from(own.try_clone().unwrap());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // An error is the end: nobody has the other side.
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                if sender.send(bytes[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        let (rows, columns) = (cells(rows), cells(columns));
        let parser = vt100::Parser::new(rows, columns, 0);
        Terminal { own, child, output, parser, written: Vec::new() }
    }

    /// What is on the screen.
    pub fn screen(&self) -> String {
        self.parser.screen().contents()
    }

    /// Whether the program has a screen of its own, as editors have.
    pub fn is_drawn(&self) -> bool {
        self.parser.screen().alternate_screen()
    }

    /// Waits until the screen is as wanted.
    pub fn wait(&mut self, what: &str, is_wanted: impl Fn(&str) -> bool) {
        let begin = Instant::now();
        while !is_wanted(&self.screen()) {
            assert!(begin.elapsed() < LONG, "{what} was never shown:\n{}", self.screen());
            if let Ok(bytes) = self.output.recv_timeout(Duration::from_millis(50)) {
                self.take(&bytes);
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.parser.process(bytes);
        self.written.extend(bytes);
    }

    /// Types keys.
    pub fn keys(&self, keys: &str) {
        rustix::io::write(&self.own, keys.as_bytes()).unwrap();
    }

    /// Gives the terminal another size, and an empty screen: what is on it then was drawn for that
    /// size.
    pub fn resize(&mut self, rows: u16, columns: u16) {
        self.parser.screen_mut().set_size(cells(rows), cells(columns));
        self.parser.process(b"\x1b[2J\x1b[H");
        tcsetwinsize(&self.own, size(rows, columns)).unwrap();
    }

    /// Waits for the end of the program; returns its exit code.
    pub fn end(&mut self) -> Option<i32> {
        let begin = Instant::now();
        let code = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status.code();
            }
            assert!(begin.elapsed() < LONG, "it never ended:\n{}", self.screen());
            std::thread::sleep(Duration::from_millis(5));
        };
        while let Ok(bytes) = self.output.recv_timeout(Duration::from_millis(300)) {
            self.take(&bytes);
        }
        code
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Of a failed test.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
