//! What `explain` tells is what happens next, and telling it changes nothing.

use std::format;
use std::string::{String, ToString};
use std::vec::Vec;

use super::platform::{Script, Shape, distances, on_cpu, zone};
use crate::alloc::explain::{Explained, Note, Outcome, Source, Verdict};
use crate::alloc::{AllocError, Allocator, Refusal, Request};
use crate::gfp::Gfp;
use crate::policy::Policy;
use crate::types::{NodeId, Order, Pfn, ZoneKind};

/// The explanation of a request, held against what then became of it.
pub struct Foretold(Explained, Vec<Note>);

impl Foretold {
    /// Asks twice: the first answer must not change the second.
    pub fn ask(pool: &Allocator<'_, Script>, request: &Request) -> Foretold {
        let (told, notes) = explain(pool, request);
        let holds = |zones: &[crate::zone::state::Zone]| -> Vec<_> {
            zones.iter().map(|zone| zone.lock_holds()).collect()
        };
        let before = holds(pool.zones());
        assert_eq!(explain(pool, request), (told, notes.clone()));
        assert_eq!(holds(pool.zones()), before, "a lock was taken");
        Foretold(told, notes)
    }

    /// Panics unless it came as told.
    pub fn check(self, pool: &Allocator<'_, Script>, got: &Result<Pfn, AllocError>) {
        let Foretold(told, notes) = self;
        if !told.certain {
            return;
        }
        let zone_of = |pfn: Pfn| pool.zones().iter().find(|zone| zone.contains(pfn)).unwrap().id();
        match (told.outcome, got) {
            (Outcome::Served(place, _), Ok(pfn)) if place.zone == zone_of(*pfn) => {}
            (Outcome::Refused(foretold), Err(error)) if foretold == *error => {}
            // Only trying tells.
            (Outcome::Drains { .. } | Outcome::Reclaims | Outcome::Waits, _) => {}
            _ => panic!("told {told}, got {got:?}, after {notes:#?}"),
        }
    }
}

fn explain(pool: &Allocator<'_, Script>, request: &Request) -> (Explained, Vec<Note>) {
    let mut notes = Vec::new();
    let told = pool.explain(request, &mut |note| notes.push(note));
    (told, notes)
}

fn text(pool: &Allocator<'_, Script>, request: &Request) -> String {
    let (told, notes) = explain(pool, request);
    notes.iter().map(|note| format!("{note}\n")).collect::<String>() + &told.to_string()
}

/// Two nodes of one Normal zone each; the first is used up to its low watermark.
#[test]
fn the_walk_past_a_full_zone_is_told_zone_by_zone() {
    let zones = [zone(0, ZoneKind::Normal, 0, 4096), zone(1, ZoneKind::Normal, 4096, 4096)];
    let shape = Shape {
        distances: distances(2),
        zones: zones.to_vec(),
        cpus: [NodeId(0)].to_vec(),
        cache_slice_bytes: 0,
        caches: Vec::new(),
    };
    shape.scoped(Policy::LINUX_6_18, 0, |pool| {
        on_cpu(0);
        let request = Request::new(Order::ZERO);
        let (told, notes) = explain(pool, &request);
        let Outcome::Served(place, Source::OtherType) = told.outcome else { panic!("{told}") };
        assert_eq!((place.node, notes.len()), (NodeId(0), 2), "{notes:?}");
        while pool.tables.zone_of(pool.alloc(request).unwrap()).unwrap().id()
            == pool.zones()[0].id()
        {}
        let (told, notes) = explain(pool, &request);
        let Outcome::Served(place, _) = told.outcome else { panic!("{told}") };
        assert_eq!(place.node, NodeId(1), "{notes:?}");
        let Note::Zone(first) = notes[1] else { panic!("{notes:?}") };
        assert_eq!(first.verdict, Verdict::BelowWatermark);
        assert!(first.free - first.unusable <= first.needed);
        let text = text(pool, &request);
        assert!(text.contains("walk, down to the low watermark [LB D.4]"), "{text}");
        assert!(text.contains("refuses, it would fall below its watermark [LB C.5]"), "{text}");
        assert!(text.contains("served from node 1, zone Normal: "), "{text}");
    });
}

#[test]
fn a_refusal_is_told_with_the_walks_that_led_to_it() {
    let pool = Shape::uniform(1, 2048, 1).boot(Policy::ZONAL);
    on_cpu(0);
    let request = Request::new(Order::ZERO).gfp(Gfp::NOWAIT);
    while pool.alloc(request).is_ok() {}
    let (told, notes) = explain(&pool, &request);
    let Outcome::Refused(error) = told.outcome else { panic!("{told}") };
    assert_eq!(pool.alloc(request), Err(error));
    assert!(matches!(error.why, Refusal::Watermark { .. }));
    let walks = notes.iter().filter(|note| matches!(note, Note::Walk { .. })).count();
    let woken = notes.iter().filter(|note| matches!(note, Note::Wakes(_))).count();
    assert_eq!((walks, woken), (2, 1), "{notes:?}");
    assert!(text(&pool, &request).ends_with(&format!("refused: {error} [LB D.5]")));
}

#[test]
fn a_request_that_means_nothing_is_refused_without_a_walk() {
    let pool = Shape::uniform(1, 2048, 1).boot(Policy::ZONAL);
    let (told, notes) = explain(&pool, &Request::new(Order::ZERO).on(NodeId(7)));
    assert!(matches!(told.outcome, Outcome::Refused(_)) && notes.is_empty());
}
