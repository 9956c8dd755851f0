//! Random programs by the real tuning and by `shared/reference/pcp_model.py` itself, state for
//! state. Skipped, and said so, where the file or Python is not there.

extern crate std;
use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::string::String;
use std::vec::Vec;
use std::{eprintln, format};

use super::model::Event;
use super::tests::{Lists, NAMED};
use super::*;
use crate::types::Choice;

const PROGRAMS: usize = 3000;

/// Runs programs from standard input on the model, one line of state for each line of program.
/// What it takes off lists on a refresh it takes off list 0, so a refresh counts only while the
/// others are empty; and it decays at every level, which only level 7 and up did (LB E.10).
const DRIVER: &str = r"
import sys
sys.path.insert(0, sys.argv[1])
import pcp_model as m
for line in sys.stdin:
    op, *args = line.split()
    args = [int(a) for a in args]
    if op == 'P':
        level, batch, low, top, big, m.MAX = args
        p = m.P(level, batch, low, top, big_slice=bool(big))
        p.avail(0)
    elif op == 'A':
        for _ in range(args[1]): p.alloc(args[0])
    elif op == 'F':
        for _ in range(args[1]): p.free(args[0])
    elif op == 'G':
        p.below, p.reclaim = (bool(a) for a in args)
    elif op == 'B':
        p.hmin, p.hmax = args
    elif op == 'T':
        if p.L >= 7 and not any(p.lists[o] for o in (1, 2, 3)): p.decay()
    events = ' '.join(k + ':' + str(n) for k, n in p.log)
    p.log = []
    high = p.high if p.L >= 7 else p.hmin
    prev = p.prev if p.L >= 1 else False
    print(p.count, high, p.ff + p.fc, p.af, int(prev), *p.lists.values(), events)
";

/// A line of program.
#[derive(Clone, Copy)]
enum Line {
    Start { tuning: Tuning, batch: u32, bounds: (u32, u32), big: bool, scale_max: u8 },
    Alloc(usize, u32),
    Free(usize, u32),
    Flags(bool, bool),
    Bounds(u32, u32),
    Tick,
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    /// Often nothing, or about a chunk, where the branches meet.
    fn bound(&mut self, max: u64) -> u32 {
        match self.below(8) {
            0 => 0,
            1 => 60 + self.below(6) as u32,
            _ => self.below(max) as u32,
        }
    }

    fn start(&mut self) -> Line {
        Line::Start {
            tuning: NAMED[self.below(NAMED.len() as u64) as usize],
            batch: if self.below(2) == 0 { 63 } else { 1 + self.below(100) as u32 },
            bounds: (self.bound(1500), self.bound(10_000)),
            big: self.below(2) == 0,
            scale_max: self.below(u64::from(SCALE_MAX_LIMIT) + 1) as u8,
        }
    }

    fn line(&mut self) -> Line {
        let times = if self.below(4) == 0 { self.below(300) } else { self.below(5) } as u32 + 1;
        let list = if self.below(2) == 0 { 0 } else { self.below(4) as usize };
        match self.below(20) {
            0..8 => Line::Alloc(list, times),
            8..16 => Line::Free(list, times),
            16 => Line::Flags(self.below(2) == 0, self.below(2) == 0),
            17 => Line::Bounds(self.bound(1500), self.bound(10_000)),
            _ => Line::Tick,
        }
    }
}

impl Line {
    fn text(&self, out: &mut String) {
        let done = match *self {
            Line::Start { tuning, batch, bounds, big, scale_max } => {
                let level = if tuning == Tuning::Release615 { "18" } else { tuning.name() };
                let (low, top) = bounds;
                writeln!(out, "P {level} {batch} {low} {top} {} {scale_max}", u8::from(big))
            }
            Line::Alloc(list, times) => writeln!(out, "A {list} {times}"),
            Line::Free(list, times) => writeln!(out, "F {list} {times}"),
            Line::Flags(below, reclaim) => {
                writeln!(out, "G {} {}", u8::from(below), u8::from(reclaim))
            }
            Line::Bounds(low, top) => writeln!(out, "B {low} {top}"),
            Line::Tick => writeln!(out, "T"),
        };
        done.unwrap();
    }

    fn run(&self, lists: &mut Lists) {
        match *self {
            Line::Start { tuning, batch, bounds, big, scale_max } => {
                *lists = Lists::new(PcpParams {
                    batch,
                    high_min: bounds.0,
                    high_max: bounds.1,
                    scale_max,
                    free_high_batch: big,
                    tuning,
                    stream: 0,
                });
            }
            Line::Alloc(list, times) => (0..times).for_each(|_| lists.alloc(list)),
            Line::Free(list, times) => (0..times).for_each(|_| lists.free(list)),
            Line::Flags(below_high, reclaim_active) => {
                lists.pressure = Pressure { below_high, reclaim_active };
            }
            Line::Bounds(low, top) => {
                (lists.params.high_min, lists.params.high_max) = (low, top);
            }
            Line::Tick if lists.blocks[1..4].iter().any(|blocks| *blocks > 0) => {}
            Line::Tick => {
                lists.decay();
            }
        }
    }
}

/// The state in the words of the driver.
fn state_line(lists: &mut Lists) -> String {
    let (state, tuning) = (lists.state, lists.params.tuning);
    let high = if tuning.moves_high() { state.high } else { lists.params.high_min };
    let prev = tuning.has(Tuning::Level1) && state.prev_free_high_order;
    let mut line = format!("{} {high} {} ", state.count, state.free_count);
    write!(line, "{} {}", state.alloc_factor, u8::from(prev)).unwrap();
    lists.blocks[..4].iter().for_each(|blocks| write!(line, " {blocks}").unwrap());
    line.push(' ');
    let events: Vec<String> = lists
        .log
        .drain(..)
        .map(|event| match event {
            Event::Refill(n) => format!("R:{n}"),
            Event::Free(n) => format!("F:{n}"),
            Event::ForcedFree(n) => format!("F*:{n}"),
        })
        .collect();
    line + &events.join(" ")
}

/// What the reference model answers to `program`; `None` if it cannot run here.
fn ask_reference(program: String) -> Option<String> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/reference");
    if !dir.join("pcp_model.py").exists() {
        eprintln!("SKIPPED: {} has no pcp_model.py", dir.display());
        return None;
    }
    let mut python = Command::new("python3");
    python.args(["-B", "-c", DRIVER]).arg(dir).stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut child) = python.spawn() else {
        eprintln!("SKIPPED: there is no python3");
        return None;
    };
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(program.as_bytes()));
    let mut answers = String::new();
    child.stdout.take().unwrap().read_to_string(&mut answers).unwrap();
    writer.join().unwrap().unwrap();
    assert!(child.wait().unwrap().success(), "the driver failed");
    Some(answers)
}

#[test]
fn random_programs_tune_as_the_reference_model_itself_does() {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let mut lines = Vec::new();
    for _ in 0..PROGRAMS {
        lines.push(random.start());
        (0..10 + random.below(30)).for_each(|_| lines.push(random.line()));
    }
    let mut program = String::new();
    lines.iter().for_each(|line| line.text(&mut program));
    let Some(answers) = ask_reference(program.clone()) else { return };
    let mut lists = Lists::new(PcpParams::BOOT);
    let mut start = "";
    let mut answered = answers.lines();
    for (line, text) in lines.iter().zip(program.lines()) {
        line.run(&mut lists);
        if let Line::Start { .. } = line {
            start = text;
        }
        let theirs = answered.next().expect("one answer for each line");
        assert_eq!(state_line(&mut lists), theirs, "after '{text}' in the program of '{start}'");
    }
    assert_eq!(answered.next(), None);
}
