//! The fence protocol under every interleaving: the very file of the crate, `fence.rs`, compiled a
//! second time with loom's atomics in place of the machine's.
//!
//! A section is modelled as what matters of it: it reads the mark, and if there is none it commits,
//! by a write to a loom cell. Between the two an interrupt may come: then the CPU answers, and the
//! section starts over. The fencing CPU marks, fences, and writes the same cell: if a section could
//! still commit, these are two accesses at the same time, which loom reports. CPUs that wait for
//! each other for ever exceed loom's bound of steps.
//!
//! The canaries break a rule and must be found: else the model proves nothing.
#![allow(clippy::arc_with_non_send_sync, reason = "loom's threads take turns")]

/// Makes `core::...` in that file mean the modules below; macros have their own way to the real
/// one.
extern crate self as core;

/// Stands for `core::sync`.
pub mod sync {
    /// Loom's atomics.
    pub mod atomic {
        pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
    }
}
/// Stands for `core::fmt`.
pub mod fmt {
    pub use std::fmt::{Display, Formatter, Result};
}
/// Stands for `core::error`.
pub mod error {
    pub use std::error::Error;
}

#[path = "../../zonal/tests/support/interleavings.rs"]
#[allow(dead_code, reason = "each test binary uses its own part of this")]
mod interleavings;
#[path = "../src/fence.rs"]
#[allow(dead_code, unused_imports, unreachable_pub, reason = "the crate uses all of it")]
mod model;

use std::process::{Command, Stdio};
use std::sync::Arc;

use interleavings::{explore, is_found};
use loom::cell::UnsafeCell;
use loom::sync::Mutex;
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use loom::thread::{self, yield_now};
use model::{FenceCell, FenceError, Fences, Patience, Signals};

/// For `interleavings`: runs one test of this program again, with a variable set, and returns how
/// it ended.
fn run_child(test: &str, variable: &str, value: &str) -> Option<i32> {
    let program = std::env::current_exe().unwrap();
    let mut child = Command::new(program);
    child.args([test, "--exact"]).env(variable, value).stdout(Stdio::null()).stderr(Stdio::null());
    child.status().unwrap().code()
}

/// A CPU that nobody is: it answers nothing.
const NOBODY: u32 = 9;
const FOR_EVER: Patience = Patience { ns: u64::MAX, looks: u64::MAX - 1 };

/// An interrupt is not sent: the model's CPUs look by themselves where one could come.
struct Polled;

impl Signals for Polled {
    fn interrupt(&self, _cpu: u32) {}
    fn now_ns(&self) -> u64 {
        0
    }
    fn relax(&self) {
        yield_now();
    }
}

/// Two CPUs and the pcp of CPU 1.
struct Scene {
    cells: [FenceCell; 2],
    patience: Patience,
    mark: AtomicU32,
    /// What a section commits to, and what the fencing CPU changes behind the fence. Loom sees who
    /// is at it.
    pcp: UnsafeCell<()>,
    fenced: AtomicBool,
    /// CPU 1: who has it runs there, and leaves it behind a section or where nothing is masked.
    cpu1: Mutex<()>,
}

impl Scene {
    fn new(patience: Patience) -> Arc<Scene> {
        Arc::new(Scene {
            cells: Default::default(),
            patience,
            mark: AtomicU32::new(0),
            pcp: UnsafeCell::new(()),
            fenced: AtomicBool::new(false),
            cpu1: Mutex::new(()),
        })
    }

    fn fences(&self) -> Fences<'_> {
        Fences::new(&self.cells, self.patience)
    }

    /// CPU 1 runs a section, which an interrupt may start over.
    fn section(&self, restarts: bool) {
        loop {
            let marked = self.mark.load(Ordering::Relaxed) != 0;
            if self.fences().answer(1) && restarts {
                continue;
            }
            if !marked {
                self.pcp.with_mut(|_| ());
            }
            return;
        }
    }

    /// CPU 0 marks the pcp, fences CPU 1 and changes the pcp.
    fn change(&self) {
        self.mark.store(1, Ordering::Relaxed);
        self.fences().fence(0, 1, &Polled).unwrap();
        self.pcp.with_mut(|_| ());
        self.fenced.store(true, Ordering::Release);
    }

    /// A thread that waits until the fence is through, on CPU 1. Unless it `masks`, it loses the
    /// CPU between the look at its number and the answer.
    fn wait_on_cpu1(&self, masks: bool) {
        while !self.fenced.load(Ordering::Acquire) {
            let running = self.cpu1.lock().unwrap();
            if masks {
                self.fences().answer(1);
            }
            drop(running);
            if !masks {
                self.fences().answer(1);
            }
            yield_now();
        }
    }

    /// CPU 1 has nothing to do, and is interrupted now and then.
    fn idle(&self) {
        while !self.fenced.load(Ordering::Acquire) {
            self.fences().answer(1);
            yield_now();
        }
    }
}

/// What CPU 1 does while CPU 0 fences it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Other {
    Runs,
    ComesUp,
    GoesDown,
    ComesAndGoes,
    /// Canary: the interrupt's entry does not look into the table.
    IsNotStartedOver,
    /// Canary: a section runs before the CPU is up.
    IsEarly,
    /// Canary: a section runs when the CPU is down.
    IsLate,
}

const CANARIES: [Other; 3] = [Other::IsNotStartedOver, Other::IsEarly, Other::IsLate];

fn fenced_while(other: Other) -> u64 {
    let interleavings = explore(Some(3), move || {
        let scene = Scene::new(FOR_EVER);
        if matches!(other, Other::Runs | Other::GoesDown | Other::IsNotStartedOver | Other::IsLate)
        {
            scene.fences().up(1).unwrap();
        }
        let theirs = Arc::clone(&scene);
        let cpu1 = thread::spawn(move || {
            let fences = theirs.fences();
            if other == Other::IsEarly {
                theirs.section(true);
            }
            if matches!(other, Other::ComesUp | Other::ComesAndGoes | Other::IsEarly) {
                fences.up(1).unwrap();
            }
            if matches!(other, Other::IsLate) {
                fences.down(1).unwrap();
            }
            if other != Other::IsEarly {
                theirs.section(other != Other::IsNotStartedOver);
            }
            if matches!(other, Other::GoesDown | Other::ComesAndGoes) {
                fences.down(1).unwrap();
                return;
            }
            theirs.idle();
        });
        scene.change();
        cpu1.join().unwrap();
    });
    eprintln!("{other:?}: {interleavings} interleavings");
    interleavings
}

/// Both CPUs fence each other, with interrupts masked. `answers`: they look while they wait.
fn mutual(answers: bool) -> u64 {
    let interleavings = explore(Some(3), move || {
        let scene = Scene::new(FOR_EVER);
        let fences = scene.fences();
        (0..2).for_each(|cpu| fences.up(cpu).unwrap());
        let theirs = Arc::clone(&scene);
        let me = move |cpu| if answers { cpu } else { NOBODY };
        let last = Arc::new(AtomicU32::new(0));
        // Who is through goes on and is interrupted sooner or later.
        let through = move |scene: &Scene, cpu: u32, last: &AtomicU32| {
            last.fetch_add(1, Ordering::Relaxed);
            while answers && last.load(Ordering::Relaxed) < 2 {
                scene.fences().answer(cpu);
                yield_now();
            }
        };
        let their_last = Arc::clone(&last);
        let cpu1 = thread::spawn(move || {
            theirs.fences().fence(me(1), 0, &Polled).unwrap();
            through(&theirs, 1, &their_last);
        });
        fences.fence(me(0), 1, &Polled).unwrap();
        through(&scene, 0, &last);
        cpu1.join().unwrap();
    });
    eprintln!("mutual, answers {answers}: {interleavings} interleavings");
    interleavings
}

/// A thread waits on CPU 1 while another one runs a section there.
fn waiting_next_to_a_section(masks: bool) -> u64 {
    let interleavings = explore(Some(3), move || {
        let scene = Scene::new(FOR_EVER);
        scene.fences().up(1).unwrap();
        let (runs, waits) = (Arc::clone(&scene), Arc::clone(&scene));
        let runs = thread::spawn(move || {
            let _running = runs.cpu1.lock().unwrap();
            runs.section(true);
        });
        let waits = thread::spawn(move || waits.wait_on_cpu1(masks));
        scene.change();
        runs.join().unwrap();
        waits.join().unwrap();
    });
    eprintln!("waiting, masks {masks}: {interleavings} interleavings");
    interleavings
}

/// The other process. Without the variable it is no test.
#[test]
fn model_of_the_child() {
    let Some(canary) = interleavings::canary() else { return };
    if canary == "mute" {
        mutual(false);
    }
    if canary == "moved" {
        waiting_next_to_a_section(false);
    }
    if let Some(other) = CANARIES.into_iter().find(|other| format!("{other:?}") == canary) {
        fenced_while(other);
    }
}

#[test]
fn no_section_commits_behind_a_fence() {
    assert!(fenced_while(Other::Runs) > 50);
}

#[test]
fn no_section_of_a_cpu_that_comes_up_commits_behind_a_fence() {
    assert!(fenced_while(Other::ComesUp) > 50);
}

#[test]
fn a_fence_does_not_wait_for_a_cpu_that_goes_down() {
    assert!(fenced_while(Other::GoesDown) > 50);
    assert!(fenced_while(Other::ComesAndGoes) > 50);
}

#[test]
fn two_cpus_that_fence_each_other_both_get_through() {
    assert!(mutual(true) > 20);
}

#[test]
fn waiting_without_answering_is_found() {
    assert!(!is_found("nothing"));
    assert!(is_found("mute"));
}

#[test]
fn a_thread_that_waits_answers_for_the_cpu_that_it_is_on() {
    assert!(waiting_next_to_a_section(true) > 50);
}

#[test]
fn an_answer_for_a_cpu_that_the_thread_has_left_is_found() {
    assert!(is_found("moved"));
}

#[test]
fn every_rule_is_needed() {
    for canary in CANARIES {
        assert!(is_found(format!("{canary:?}")), "{canary:?}");
    }
}

#[test]
fn a_cpu_that_never_answers_is_silent_until_it_does() {
    let interleavings = explore(None, || {
        let scene = Scene::new(Patience { ns: u64::MAX, looks: 2 });
        let fences = scene.fences();
        fences.up(1).unwrap();
        assert_eq!(fences.fence(0, 1, &Polled), Err(FenceError::Silent(1)));
        assert!(fences.is_silent(1));
        // Nobody waits for it again: one request, no look in between.
        assert_eq!(fences.fence(0, 1, &Polled), Err(FenceError::Silent(1)));
        assert!(fences.answer(1) && !fences.answer(1));
        assert!(!fences.is_silent(1));
        fences.down(1).unwrap();
        assert_eq!(fences.fence(0, 1, &Polled), Ok(()));
        assert_eq!(fences.fence(0, 2, &Polled), Err(FenceError::NoSuchCpu(2, 2)));
    });
    assert_eq!(interleavings, 1);
}
