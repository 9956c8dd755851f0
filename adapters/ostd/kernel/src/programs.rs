//! Random programs on all CPUs: frames and segments, written to, cut, given to other CPUs.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{
    AtomicUsize,
    Ordering::{Acquire, Release},
};

use ostd::mm::io::util::HasVmReaderWriter;
use ostd::mm::io::{VmReader, VmWriter};
use ostd::mm::{FrameAllocOptions, HasPaddr, HasSize, PAGE_SIZE, Segment, Split};
use ostd::prelude::*;
use ostd::sync::{PreemptDisabled, SpinLock};
use ostd::task::{Task, TaskOptions};

const STEPS: u64 = 20_000;
const MOST_HELD: usize = 300;

type Mail = Arc<SpinLock<Vec<Segment<()>>, PreemptDisabled>>;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Pages whose first word and last byte say where they are: nobody else writes to them.
struct Held(Segment<()>);

fn stamp(segment: &Segment<()>, page: usize) -> [u8; 8] {
    ((segment.paddr() + page * PAGE_SIZE) as u64).to_le_bytes()
}

impl Held {
    fn new(count: usize) -> Held {
        let mut options = FrameAllocOptions::new();
        let segment = options.zeroed(false).alloc_segment(count).expect("pages");
        for page in 0..count {
            let mark = stamp(&segment, page);
            let mut to: VmWriter<'_, _> = segment.writer();
            to.skip(page * PAGE_SIZE);
            to.write(&mut VmReader::from(&mark[..]));
        }
        Held(segment)
    }

    fn check(&self) {
        for page in 0..self.0.size() / PAGE_SIZE {
            let mut found = [0; 8];
            let mut from: VmReader<'_, _> = self.0.reader();
            from.skip(page * PAGE_SIZE);
            from.read(&mut VmWriter::from(&mut found[..]));
            assert!(found == stamp(&self.0, page), "{:#x}: another's page", self.0.paddr());
        }
    }
}

fn program(seed: u64, mail: &Mail) {
    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ (seed + 1));
    let mut held: Vec<Held> = Vec::new();
    for step in 0..STEPS {
        let r = random.next();
        let at = (r >> 32) as usize;
        match r % 9 {
            0..4 if held.len() < MOST_HELD => {
                let count = if r >> 20 & 7 == 0 { 1 + at % 20 } else { 1 };
                held.push(Held::new(count));
            }
            4 => {
                if let Some(one) = held.pop() {
                    mail.lock().push(one.0);
                }
            }
            5 => {
                let one = mail.lock().pop().map(Held);
                held.extend(one);
            }
            6 if !held.is_empty() => {
                // Cut in two, and one half goes.
                let one = held.swap_remove(at % held.len());
                one.check();
                let count = one.0.size() / PAGE_SIZE;
                if count > 1 {
                    let (front, back) = one.0.split((1 + at % (count - 1)) * PAGE_SIZE);
                    held.push(Held(if r >> 40 & 1 == 0 { front } else { back }));
                }
            }
            _ if !held.is_empty() => held.swap_remove(at % held.len()).check(),
            _ => {}
        }
        if step.is_multiple_of(500) {
            Task::yield_now();
        }
    }
    held.iter().for_each(Held::check);
}

/// Two tasks for each CPU; then all frames are back.
pub fn run() {
    static DONE: AtomicUsize = AtomicUsize::new(0);
    let mail: Mail = Arc::new(SpinLock::new(Vec::new()));
    let tasks = 2 * ostd::cpu::num_cpus();
    for seed in 0..tasks {
        let mail = mail.clone();
        let body = move || {
            program(seed as u64, &mail);
            // Release: pairs with the Acquire below.
            DONE.fetch_add(1, Release);
        };
        TaskOptions::new(body).data(()).spawn().expect("a task");
    }
    // Acquire: pairs with the Release above.
    while DONE.load(Acquire) < tasks {
        Task::yield_now();
    }
    mail.lock().clear();
    println!("programs: {} tasks of {} steps", tasks, STEPS);
    #[cfg(feature = "zonal")]
    check();
}

/// What the core says of itself.
#[cfg(feature = "zonal")]
fn check() {
    use crate::frames::FRAMES;
    let valid = FRAMES.with_core(|core| core.validate()).expect("it is up");
    if let Err(fault) = valid {
        panic!("the core is not as it must be: {fault}");
    }
    assert_eq!(FRAMES.refused_frees(), 0, "OSTD gave back what it does not have");
    let (free, held) = FRAMES
        .with_core(|core| {
            let pages = core.allocated().map(|(_, order)| order.pages()).sum::<u64>();
            (core.free_pages(), pages)
        })
        .expect("it is up");
    let managed = FRAMES.with_core(|core| core.zones().iter().map(|zone| zone.managed()).sum());
    assert_eq!(Some(free + held), managed, "pages are lost");
    println!(
        "passed: programs: {} pages free, {} held by OSTD, {} were its own before",
        free,
        held,
        FRAMES.late_pages()
    );
    let mut text = alloc::string::String::new();
    FRAMES.zoneinfo(&mut text).expect("a text");
    println!("BEGIN zoneinfo\n{}END zoneinfo", text);
}
