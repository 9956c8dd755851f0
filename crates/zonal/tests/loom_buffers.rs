//! The permits of a buffer pool under every interleaving (GATE-1 to GATE-4): the very file of the
//! library, `zonal::buffers::gate`, compiled a second time with loom's mutex. A lost wake-up is a
//! task that waits for ever, which loom reports as a deadlock.

/// Stands for the library's module of that name.
mod sync {
    pub use loom::sync::{Mutex, MutexGuard};
}

#[path = "../src/buffers/gate.rs"]
#[allow(dead_code, unreachable_pub, reason = "the library uses all of it")]
mod gate;
mod support;

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use gate::{Asked, Gate, Ticket};
use loom::future::block_on;
use loom::sync::Arc;
use support::interleavings::{self, is_found};

/// What is left out.
const SOUND: u32 = 0;
/// A task that is dropped keeps the permit that was granted to it.
const KEEPS_A_GRANT: u32 = 1;
/// A task waits without saying how to wake it.
const WAITS_WITHOUT_A_WAKER: u32 = 2;

/// As `Get` in the library, without the buffer.
struct Enter<'g> {
    gate: &'g Gate,
    ticket: Option<Ticket>,
    canary: u32,
}

fn enter(gate: &Gate, canary: u32) -> Enter<'_> {
    Enter { gate, ticket: None, canary }
}

impl Future for Enter<'_> {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let waker = match self.canary {
            WAITS_WITHOUT_A_WAKER => Waker::noop(),
            _ => context.waker(),
        };
        let entered = match self.ticket {
            Some(ticket) => self.gate.poll(ticket, waker),
            None => match self.gate.ask(waker) {
                Asked::Entered => true,
                Asked::Queued(ticket) => {
                    self.ticket = Some(ticket);
                    false
                }
            },
        };
        if entered {
            self.ticket = None;
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

impl Drop for Enter<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take()
            && self.canary != KEEPS_A_GRANT
        {
            self.gate.cancel(ticket);
        }
    }
}

/// Two tasks use one permit, one after the other, while a third comes, looks once and goes.
fn scene(canary: u32) {
    let gate = Arc::new(Gate::new(1, 0));
    let users: Vec<_> = (0..2)
        .map(|user| {
            let gate = Arc::clone(&gate);
            loom::thread::spawn(move || {
                if user == 1 {
                    let mut passing = Box::pin(enter(&gate, canary));
                    let waker = Waker::noop();
                    let mut context = Context::from_waker(waker);
                    if passing.as_mut().poll(&mut context).is_ready() {
                        gate.leave();
                    }
                    return;
                }
                block_on(enter(&gate, canary));
                gate.leave();
            })
        })
        .collect();
    block_on(enter(&gate, canary));
    gate.leave();
    users.into_iter().for_each(|user| user.join().unwrap());
    assert_eq!(gate.figures(), (0, 0), "GATE-1");
}

#[test]
fn every_task_gets_its_turn_and_every_permit_comes_back() {
    let seen = interleavings::explore(Some(3), || scene(SOUND));
    assert!(seen > 100, "{seen} interleavings");
}

#[test]
fn what_is_left_out_is_found() {
    assert!(is_found(KEEPS_A_GRANT), "a permit is lost with a task");
    assert!(is_found(WAITS_WITHOUT_A_WAKER), "a task waits for ever");
}

#[test]
fn model_of_the_child() {
    let Some(canary) = interleavings::canary() else { return };
    let canary = canary.parse().unwrap();
    interleavings::explore(Some(3), move || scene(canary));
}
