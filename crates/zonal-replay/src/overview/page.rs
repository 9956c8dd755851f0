//! The page: one file, with its style and its plots inside and nothing from elsewhere.

use std::collections::BTreeMap;

use zonal_trace::PolledZone;

use super::gather::{BINS, Bin, LIVES, Overview};
use super::plot::{Curve, Scale, bars, curves, document, escape, grouped};
use crate::advise::Advice;

/// Rows of a table.
const ROWS: usize = 12;

/// The page of a recording.
pub fn html(advice: &Advice, seen: &Overview) -> String {
    let release = advice.kernel_release.as_deref().unwrap_or("of unknown release");
    let about = escape(&format!(
        "Linux {release}, {} CPU{}, {:.1} s, {} events, {} allocations. {}; only the verdict is of \
         the model.",
        advice.cpus,
        if advice.cpus == 1 { "" } else { "s" },
        seen.span_ns as f64 / 1e9,
        grouped(seen.events),
        grouped(advice.allocs),
        match advice.simulated {
            true => "Simulated, of no host, and counted in the recording",
            false => "Counted in the recording",
        }
    ));
    let parts =
        [zones(seen), moves(seen), waits(advice, seen), pressure(advice), who(seen), sizes(seen)];
    let body = format!(
        "<p class=\"verdict\"><b>{}</b>: {}</p><p>{about}</p>{}",
        advice.verdict.name(),
        escape(&advice.reason),
        parts.concat()
    );
    document(&format!("Recording {}", advice.trace), &body)
}

/// Free pages above the high watermark by this factor leave the watermarks on the axis of a linear
/// plot.
const FAR_ABOVE: f64 = 10.0;

/// Free pages between the watermarks and lists, of each zone that was sampled, the largest first.
fn zones(seen: &Overview) -> String {
    let mut zones: BTreeMap<(u32, &str), u64> = BTreeMap::new();
    for zone in seen.polls.iter().flat_map(|poll| &poll.zones) {
        let managed = zones.entry((zone.node, zone.kind.as_str())).or_default();
        *managed = zone.managed.max(*managed);
    }
    if zones.is_empty() {
        return "<p>No samples of /proc/zoneinfo: free pages, watermarks and lists are not known.\
                </p>"
            .to_owned();
    }
    let mut zones: Vec<((u32, &str), u64)> = zones.into_iter().collect();
    zones.sort_by_key(|(_, managed)| std::cmp::Reverse(*managed));
    zones.into_iter().map(|(zone, _)| zone_plots(seen, zone)).collect()
}

/// One zone. It may come or go: its place in the file is no name.
fn zone_plots(seen: &Overview, (node, kind): (u32, &str)) -> String {
    let name = format!("node {node} {kind}");
    let curve = |title: &'static str, of: &dyn Fn(&PolledZone) -> u64| Curve {
        name: title,
        points: (seen.polls.iter())
            .filter_map(|poll| {
                let from = poll.t_begin_ns.checked_sub(seen.start_ns)?;
                let same = |other: &&PolledZone| other.node == node && other.kind == kind;
                let zone = poll.zones.iter().find(same)?;
                (from <= seen.span_ns).then(|| (from as f64 / 1e9, of(zone) as f64))
            })
            .collect(),
    };
    let most = |curve: &Curve| curve.points.iter().map(|(_, pages)| *pages).fold(0.0, f64::max);
    let free = curve("free", &|zone| zone.free);
    let (high, low) = (curve("high", &|zone| zone.high), curve("low", &|zone| zone.low));
    let Some(sentence) = lowest(&free.points, &low.points) else { return String::new() };
    let scale = if most(&free) > FAR_ABOVE * most(&high) { Scale::Log } else { Scale::Linear };
    let marks = [free, high, low, curve("min", &|zone| zone.min)];
    let title = format!("Free pages between the watermarks, {name}");
    let seconds = seen.span_ns as f64 / 1e9;
    let listed = curve("on lists", &|zone| zone.pagesets.iter().map(|set| set.count).sum());
    let most = most(&listed);
    if most == 0.0 {
        let sentence = format!("{sentence} No CPU's lists held a page in any sample.");
        return curves((&title, "pages", &sentence), scale, seconds, &marks);
    }
    let plot = curves((&title, "pages", &sentence), scale, seconds, &marks);
    let sentence = format!(
        "Lists of all CPUs held up to {} pages ({:.1} MiB), which are not free for other CPUs.",
        grouped(most as u64),
        most * f64::from(seen.page_bytes) / f64::from(1 << 20)
    );
    let title = format!("Pages on per-CPU lists, {name}");
    plot + &curves((&title, "pages", &sentence), Scale::Linear, seconds, &[listed])
}

/// What samples of a zone's free pages and low watermark tell; `None`: there are none. Between two
/// samples there may have been less.
fn lowest(free: &[(f64, f64)], low: &[(f64, f64)]) -> Option<String> {
    let samples = || free.iter().zip(low).map(|((_, free), (_, low))| (*free, *low));
    let (least, mark) = samples().min_by(|a, b| (a.0 - a.1).total_cmp(&(b.0 - b.1)))?;
    let (all, below) = (samples().count(), samples().filter(|(free, low)| free < low).count());
    let (least, mark) = (grouped(least as u64), grouped(mark as u64));
    Some(match below {
        0 => format!(
            "Free pages were below the low watermark, at which background reclaim begins, in none \
             of {all} samples; the nearest had {least}, with a watermark of {mark}."
        ),
        _ => format!(
            "Free pages were below the low watermark, at which background reclaim begins, in \
             {below} of {all} samples; the lowest had {least}, with a watermark of {mark}."
        ),
    })
}

fn moves(seen: &Overview) -> String {
    let sum = |of: fn(&Bin) -> u64| seen.bins.iter().map(of).sum::<u64>();
    let (allocated, refilled) = (sum(|bin| bin.allocated), sum(|bin| bin.refilled));
    let direct = sum(|bin| bin.direct);
    let share = (refilled + direct) as f64 * 100.0 / allocated.max(1) as f64;
    let sentence = format!(
        "{} pages came from buddies to lists and {} went back; {} went to users past the lists. \
         Pages that left buddies, under a zone lock, are {share:.0} % of those that \
         were allocated.",
        grouped(refilled),
        grouped(sum(|bin| bin.drained)),
        grouped(direct)
    );
    let freed = grouped(sum(|bin| bin.freed));
    let users = format!("{} pages were allocated and {freed} freed.", grouped(allocated));
    let curve = |name, of| over(seen, name, of);
    let seconds = seen.span_ns as f64 / 1e9;
    curves(
        ("Allocated and freed", "pages a second", &users),
        Scale::Linear,
        seconds,
        &[curve("allocated", |bin| bin.allocated), curve("freed", |bin| bin.freed)],
    ) + &curves(
        ("Refills and drains", "pages a second", &sentence),
        Scale::Linear,
        seconds,
        &[curve("refilled", |bin| bin.refilled), curve("drained", |bin| bin.drained)],
    )
}

/// A figure of each bin, in a second.
fn over(seen: &Overview, name: &'static str, of: fn(&Bin) -> u64) -> Curve {
    let each = seen.bins.iter().enumerate().take(BINS);
    let points =
        each.map(|(at, bin)| ((at as f64 + 0.5) * seen.bin_s(), of(bin) as f64 / seen.bin_s()));
    Curve { name, points: points.collect() }
}

fn waits(advice: &Advice, seen: &Overview) -> String {
    let Some(waits) = &advice.lock_waits else {
        return "<p>Waits for locks are not in the recording.</p>".to_owned();
    };
    let all: u64 = seen.bins.iter().map(|bin| bin.waits).sum();
    let sentence = format!(
        "{} waits for spinlocks of the kernel, {} of them for locks of zones, {} µs in all.",
        grouped(all),
        grouped(waits.zones_contended),
        grouped(waits.zones_us as u64)
    );
    let curve = over(seen, "waits", |bin| bin.waits);
    let seconds = seen.span_ns as f64 / 1e9;
    let row = |row: &crate::LockRow| (format!("{}: {}", row.lock, row.caller), row.total_us as u64);
    let rows: Vec<(String, u64)> = waits.rows.iter().take(ROWS).map(row).collect();
    curves(("Waits for spinlocks", "waits a second", &sentence), Scale::Linear, seconds, &[curve])
        + &bars(("Waited, by lock and caller", "µs", "Zone locks are told by what follows."), &rows)
}

/// How long tasks waited for disks and memory, by the kernel's own count of its pressure.
fn pressure(advice: &Advice) -> String {
    let waited = advice.reclaim.as_ref().and_then(|reclaim| {
        let (disk, memory) = reclaim.disk_wait_percent.zip(reclaim.memory_wait_percent)?;
        Some((disk, memory, reclaim.read_gib.unwrap_or_default()))
    });
    let Some((disk, memory, read)) = waited else {
        return "<p>How long tasks waited for disks and memory is not in the recording.</p>"
            .to_owned();
    };
    let asked = advice.reclaim.as_ref().and_then(|reclaim| reclaim.asked_for.as_ref()?.words());
    let asked = asked.map_or(String::new(), |words| format!(" Here {words}."));
    let sentence = format!(
        "In {disk:.1} % of the time some task of the host waited for a disk, in {memory:.1} % for \
         memory, which may be a wait for a disk, too; {read:.2} GiB were read.{asked}"
    );
    let ms = |percent: f64| (percent / 100.0 * advice.seconds * 1000.0).round() as u64;
    let rows = [("for a disk".to_owned(), ms(disk)), ("for memory".to_owned(), ms(memory))];
    bars(("Some task waited", "ms", &sentence), &rows)
}

fn who(seen: &Overview) -> String {
    let threads = Overview::top(&seen.threads, ROWS, |pid: i32| seen.called(pid));
    let flags = Overview::top(&seen.flags, ROWS, Overview::words);
    let most = threads.first().map_or(String::new(), |(name, pages)| {
        let all: u64 = seen.threads.values().sum();
        format!(" The most, {:.0} %, by {name}.", *pages as f64 * 100.0 / all.max(1) as f64)
    });
    let commands = seen.commands(ROWS);
    let named = match commands {
        Some(_) => "",
        None => "; their names are not recorded",
    };
    let by_thread = format!("{} threads allocated{named}.{most}", seen.threads.len());
    let by_command = commands.map_or(String::new(), |rows| {
        let sentence = "Threads of one name together; the kernel keeps the last names only.";
        bars(("Who allocates, by command", "pages", sentence), &rows)
    });
    let by_flags = format!("{} kinds of requests, by their flags.", seen.flags.len());
    by_command
        + &bars(("Who allocates, by thread", "pages", &by_thread), &threads)
        + &bars(("Who allocates, by gfp", "pages", &by_flags), &flags)
}

fn sizes(seen: &Overview) -> String {
    let orders: Vec<(String, u64)> =
        seen.orders.iter().map(|(order, count)| (format!("order {order}"), *count)).collect();
    let all: u64 = seen.orders.values().sum();
    let single = seen.orders.get(&0).copied().unwrap_or(0);
    let share = single as f64 * 100.0 / all.max(1) as f64;
    let by_order = format!("{share:.1} % of the allocations are single pages.");
    let names: [&str; LIVES] = [
        "below 1 µs",
        "1 µs",
        "10 µs",
        "100 µs",
        "1 ms",
        "10 ms",
        "100 ms",
        "1 s",
        "10 s",
        "100 s and more",
    ];
    let lives: Vec<(String, u64)> =
        names.iter().zip(seen.lives).map(|(name, count)| ((*name).to_owned(), count)).collect();
    let ended: u64 = seen.lives.iter().sum();
    let by_life = format!(
        "From allocation to free, at least so long: {} blocks; {} were still in use at the \
         end{}.",
        grouped(ended),
        grouped(seen.kept),
        match seen.untold {
            0 => String::new(),
            more =>
                format!("; {more} more were allocated while as many were in use as are followed"),
        }
    );
    bars(("Orders", "allocations", &by_order), &orders)
        + &bars(("Lifetimes", "blocks", &by_life), &lives)
}

#[cfg(test)]
mod tests {
    use super::{lowest, pressure};

    #[test]
    fn free_pages_are_judged_by_the_watermark_of_their_own_sample() {
        // The watermark went down with the free pages.
        let free = [(0.0, 900.0), (0.1, 500.0), (0.2, 600.0)];
        let text = lowest(&free, &[(0.0, 800.0), (0.1, 400.0), (0.2, 400.0)]).unwrap();
        assert!(text.contains("in none of 3 samples; the nearest had 900"), "{text}");
        let text = lowest(&free, &[(0.0, 800.0), (0.1, 400.0), (0.2, 601.0)]).unwrap();
        assert!(text.contains("in 1 of 3 samples; the lowest had 600"), "{text}");
        assert_eq!(lowest(&[], &[]), None);
    }

    #[test]
    fn waits_are_a_plot_where_they_are_recorded_and_a_sentence_where_not() {
        let recording = zonal_trace::samples::zlib_make_j4().unwrap();
        let only = ["numa_stat".to_owned()];
        let options = crate::advise::Options { limit: Some(20_000), only: &only };
        let advice = crate::advise::advise(&recording, &options, &mut crate::unwatched);
        let mut advice = advice.unwrap();
        advice.reclaim = None;
        assert!(pressure(&advice).contains("is not in the recording"));
        advice.seconds = 10.0;
        advice.reclaim = Some(crate::ReclaimCost {
            disk_wait_percent: Some(25.0),
            memory_wait_percent: Some(0.0),
            asked_for: Some(crate::AskedFor {
                background: 7,
                order: 9,
                of_order: 7,
                ..crate::AskedFor::default()
            }),
            ..crate::ReclaimCost::default()
        });
        let text = pressure(&advice);
        assert!(text.contains("In 25.0 % of the time some task"), "{text}");
        assert!(text.contains("<td>2,500</td>"), "{text}");
        assert!(text.contains("reclaim was for blocks of 2 MiB, not for pages"), "{text}");
    }
}
