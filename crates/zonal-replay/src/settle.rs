//! Which stretches with reclaim the model can be judged by after all: those where it does what the
//! kernel did.
//!
//! A stretch is looked at as a whole. Where the model is too far off, its parts of a second are
//! looked at one by one, and what is left is not judged.

use crate::moves::Moves;
use crate::report::error;
use crate::run::timeline::Timeline;
use crate::unjudged::{NotJudged, ReclaimJudged};

/// The model may be off by so many percent of refilled pages in a stretch that it is judged by.
const REFILL_MAX_PERCENT: f64 = 5.0;
/// The same of drained pages.
const DRAIN_MAX_PERCENT: f64 = 8.0;
/// Length of a part.
const PART_S: f64 = 1.0;

/// Parts the stretches: those that are not judged, and those that are.
pub(crate) fn settle(
    stretches: Vec<NotJudged>,
    model: &Timeline,
    kernel: &Timeline,
) -> (Vec<NotJudged>, Vec<ReclaimJudged>) {
    let (mut not_judged, mut judged) = (Vec::new(), Vec::new());
    let near = |stretch: &NotJudged| {
        let both = (model.moves_inside(stretch), kernel.moves_inside(stretch));
        near(&both.0, &both.1).map(|percent| told(stretch, percent))
    };
    for stretch in stretches {
        if let Some(whole) = near(&stretch) {
            judged.push(whole);
            continue;
        }
        for part in parts(&stretch) {
            match near(&part) {
                Some(part) => judged.push(part),
                None => join(&mut not_judged, part),
            }
        }
    }
    (not_judged, judged)
}

fn told(stretch: &NotJudged, (refill, drain): (Option<f64>, Option<f64>)) -> ReclaimJudged {
    let NotJudged { from_s, to_s, reason } = stretch.clone();
    ReclaimJudged { from_s, to_s, reason, refill_percent: refill, drain_percent: drain }
}

/// How far the model is off in percent, refills and drains; `None`: too far. Where the kernel moved
/// nothing in a direction, the model's pages count against the other one.
fn near(model: &Moves, kernel: &Moves) -> Option<(Option<f64>, Option<f64>)> {
    let moved = kernel.refill_pages.max(kernel.drain_pages);
    let off = |own: Option<f64>, model: u64| match own {
        None if model == 0 => 0.0,
        own => own.or(error(moved + model, moved)).map_or(f64::INFINITY, f64::abs),
    };
    let refill = error(model.refill_pages, kernel.refill_pages);
    let drain = error(model.drain_pages, kernel.drain_pages);
    let is_near = off(refill, model.refill_pages) <= REFILL_MAX_PERCENT
        && off(drain, model.drain_pages) <= DRAIN_MAX_PERCENT;
    is_near.then_some((refill, drain))
}

/// The stretch in parts of a second.
fn parts(stretch: &NotJudged) -> impl Iterator<Item = NotJudged> {
    let NotJudged { from_s, to_s, reason } = stretch.clone();
    let count = ((to_s - from_s) / PART_S).floor().max(1.0);
    (0..count as u64).map(move |part| {
        let at = |part: u64| from_s + (to_s - from_s) * part as f64 / count;
        NotJudged { from_s: at(part), to_s: at(part + 1), reason: reason.clone() }
    })
}

/// Adds a part to the stretch that it goes on, or after it.
fn join(all: &mut Vec<NotJudged>, part: NotJudged) {
    match all.last_mut() {
        Some(last) if last.to_s == part.from_s && last.reason == part.reason => {
            last.to_s = part.to_s;
        }
        _ => all.push(part),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moves(refill_pages: u64, drain_pages: u64) -> Moves {
        Moves { refill_pages, drain_pages, ..Moves::default() }
    }

    #[test]
    fn a_model_is_near_within_five_and_eight_percent() {
        let kernel = moves(1000, 1000);
        assert_eq!(near(&moves(1050, 921), &kernel), Some((Some(5.0), Some(-7.9))));
        assert_eq!(near(&moves(1051, 1000), &kernel), None);
        assert_eq!(near(&moves(1000, 919), &kernel), None);
    }

    #[test]
    fn what_the_kernel_did_not_do_counts_against_the_rest() {
        assert_eq!(near(&moves(0, 0), &moves(0, 0)), Some((None, None)));
        assert_eq!(near(&moves(1000, 40), &moves(1000, 0)), Some((Some(0.0), None)));
        assert_eq!(near(&moves(1000, 90), &moves(1000, 0)), None);
        assert_eq!(near(&moves(0, 1), &moves(0, 0)), None);
    }

    #[test]
    fn parts_cover_a_stretch_and_join_again() {
        let stretch = NotJudged { from_s: 1.0, to_s: 4.5, reason: "reclaim".to_owned() };
        let all: Vec<NotJudged> = parts(&stretch).collect();
        assert_eq!(all.len(), 3);
        let mut joined = Vec::new();
        all.into_iter().for_each(|part| join(&mut joined, part));
        assert_eq!(joined.as_slice(), std::slice::from_ref(&stretch));
        let short = NotJudged { to_s: 1.25, ..stretch };
        let all: Vec<NotJudged> = parts(&short).collect();
        assert_eq!(all, [short]);
    }
}
