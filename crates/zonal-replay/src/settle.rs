//! Which stretches with reclaim the model is judged by after all: those where it is near. They are
//! chosen by the outcome, so errors over them are small by construction; a report has those of the
//! whole run beside them.
//!
//! A stretch is looked at as a whole. Where the model is too far off, its parts of a second are
//! looked at one by one; not where no event tells when there was reclaim, as the model plays none
//! there. What is left is not judged, unless it is small beside the rest: the
//! differences of all stretches, each without its sign, are within the same percentages of all
//! that the kernel moved in them. Reclaim that comes for a moment every second moves too little at
//! a time to be compared.

use crate::moves::Moves;
use crate::report::{DRAIN_MAX_PERCENT, REFILL_MAX_PERCENT, error};
use crate::run::timeline::Timeline;
use crate::unjudged::{NotJudged, ReclaimJudged};

/// Length of a part.
const PART_S: f64 = 1.0;

/// Parts the stretches: those that are not judged, and those that are.
pub(crate) fn settle(
    stretches: Vec<NotJudged>,
    model: &Timeline,
    kernel: &Timeline,
) -> (Vec<NotJudged>, Vec<ReclaimJudged>) {
    settle_by(stretches, |stretch| Moved {
        model: model.moves_inside(stretch),
        kernel: kernel.moves_inside(stretch),
    })
}

fn settle_by(
    stretches: Vec<NotJudged>,
    moved: impl Fn(&NotJudged) -> Moved,
) -> (Vec<NotJudged>, Vec<ReclaimJudged>) {
    let (mut near, mut far) = (Vec::new(), Vec::new());
    let (lost, stretches): (Vec<NotJudged>, Vec<_>) =
        stretches.into_iter().partition(NotJudged::is_lost);
    for stretch in stretches {
        let whole = moved(&stretch);
        if whole.is_near() {
            near.push((stretch, whole));
            continue;
        }
        if !stretch.is_told() {
            far.push((stretch, whole));
            continue;
        }
        for part in parts(&stretch) {
            let moved = moved(&part);
            if moved.is_near() { near.push((part, moved)) } else { far.push((part, moved)) }
        }
    }
    let told = |is_near: bool| move |(stretch, moved)| told(stretch, moved, is_near);
    let are_small = are_near(near.iter().chain(&far).map(|(_, moved)| moved));
    let mut judged: Vec<ReclaimJudged> = near.into_iter().map(told(true)).collect();
    let mut not_judged = Vec::new();
    match are_small {
        true => judged.extend(far.into_iter().map(told(false))),
        false => far.into_iter().for_each(|(part, _)| join(&mut not_judged, part)),
    }
    // Near or not: the kernel's side is not whole.
    not_judged.extend(lost);
    not_judged.sort_by(|a, b| a.from_s.total_cmp(&b.from_s));
    judged.sort_by(|a, b| a.from_s.total_cmp(&b.from_s));
    (not_judged, judged)
}

/// What both sides moved in a stretch.
#[derive(Clone, Copy, Debug)]
struct Moved {
    model: Moves,
    kernel: Moves,
}

fn told(stretch: NotJudged, moved: Moved, is_near: bool) -> ReclaimJudged {
    let NotJudged { from_s, to_s, reason } = stretch;
    let (refill_percent, drain_percent) = moved.percent();
    ReclaimJudged { from_s, to_s, reason, refill_percent, drain_percent, is_near }
}

impl Moved {
    /// By how many percent the model's pages are more, refilled and drained.
    fn percent(&self) -> (Option<f64>, Option<f64>) {
        let Moved { model, kernel } = self;
        let refill = error(model.refill_pages, kernel.refill_pages);
        (refill, error(model.drain_pages, kernel.drain_pages))
    }

    fn is_near(&self) -> bool {
        are_near(std::iter::once(self))
    }
}

/// Whether the differences, each without its sign, are near. Where the kernel moved nothing in a
/// direction, the model's pages count against the other one.
fn are_near<'m>(all: impl Iterator<Item = &'m Moved>) -> bool {
    let (mut refills, mut drains) = ((0, 0), (0, 0));
    for Moved { model, kernel } in all {
        refills.0 += model.refill_pages.abs_diff(kernel.refill_pages);
        refills.1 += kernel.refill_pages;
        drains.0 += model.drain_pages.abs_diff(kernel.drain_pages);
        drains.1 += kernel.drain_pages;
    }
    let most = refills.1.max(drains.1);
    let within = |(differs, of): (u64, u64), percent: f64| {
        let of = if of == 0 { most } else { of };
        differs as f64 * 100.0 <= of as f64 * percent
    };
    within(refills, REFILL_MAX_PERCENT) && within(drains, DRAIN_MAX_PERCENT)
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
    use crate::unjudged;

    /// Refilled and drained pages of the model and of the kernel.
    fn moved(model: (u64, u64), kernel: (u64, u64)) -> Moved {
        let moves =
            |(refill_pages, drain_pages)| Moves { refill_pages, drain_pages, ..Moves::default() };
        Moved { model: moves(model), kernel: moves(kernel) }
    }

    #[test]
    fn a_model_is_near_within_five_and_eight_percent() {
        let kernel = (1000, 1000);
        assert!(moved((1050, 921), kernel).is_near());
        assert_eq!(moved((1050, 921), kernel).percent(), (Some(5.0), Some(-7.9)));
        assert!(!moved((1051, 1000), kernel).is_near());
        assert!(!moved((1000, 919), kernel).is_near());
    }

    #[test]
    fn what_the_kernel_did_not_do_counts_against_the_rest() {
        assert!(moved((0, 0), (0, 0)).is_near());
        assert!(moved((1000, 80), (1000, 0)).is_near());
        assert!(!moved((1000, 90), (1000, 0)).is_near());
        assert!(!moved((0, 1), (0, 0)).is_near());
    }

    #[test]
    fn differences_of_stretches_do_not_make_up_for_each_other() {
        let long = moved((10_000, 10_000), (10_000, 10_000));
        let short = moved((100, 100), (200, 200));
        assert!(!short.is_near());
        assert!(are_near([long, short].iter()), "small beside the rest");
        let more = moved((10_000, 10_000), (9000, 9000));
        let less = moved((9000, 9000), (10_000, 10_000));
        assert!(!are_near([more, less].iter()));
    }

    #[test]
    fn parts_are_chosen_only_where_events_tell_of_reclaim() {
        let of = |reason: &str| {
            let stretch = NotJudged { from_s: 0.0, to_s: 4.0, reason: reason.to_owned() };
            let at = |part: &NotJudged| match part.to_s <= 2.0 {
                true => moved((1000, 1000), (1000, 1000)),
                false => moved((500, 500), (1000, 1000)),
            };
            let (not_judged, judged) = settle_by(vec![stretch], at);
            let times = |one: &NotJudged| (one.from_s, one.to_s);
            (not_judged.iter().map(times).collect::<Vec<_>>(), judged.len())
        };
        assert_eq!(of("reclaim: background"), (vec![(2.0, 4.0)], 2));
        let unknown = unjudged::UNKNOWN;
        assert_eq!(of(unknown), (vec![(0.0, 4.0)], 0));
        assert_eq!(of(&format!("{unknown}; and more")), (vec![(0.0, 4.0)], 0));
    }

    #[test]
    fn where_events_were_lost_a_near_model_is_not_judged() {
        let stretch = |from_s: f64, reason: &str| NotJudged {
            from_s,
            to_s: from_s + 1.0,
            reason: reason.to_owned(),
        };
        let all = vec![stretch(1.0, "reclaim: direct; events were lost"), stretch(5.0, "reclaim")];
        let (not_judged, judged) = settle_by(all, |_| moved((1000, 1000), (1000, 1000)));
        assert_eq!((not_judged.len(), not_judged[0].from_s), (1, 1.0));
        assert_eq!((judged.len(), judged[0].from_s), (1, 5.0));
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
