//! The report as text, for people.

use std::iter;

use super::{NodeEvents, PlacementReport, Report, TraceFacts, error};
use crate::replay::explain::Explained;
use crate::replay::latency::{self, Latency};

impl Report {
    /// The report as text.
    pub fn text(&self) -> String {
        let mut text = self.head();
        text.extend(self.explained.iter().map(Explained::text));
        text.push_str(&self.comparison());
        text.push_str(&self.by_place());
        text.extend(self.fidelity.as_ref().map(super::Fidelity::text));
        text.push_str(&self.tail());
        text
    }

    fn head(&self) -> String {
        let TraceFacts { name, kernel_release, cpus, nodes, recorded_seconds } = &self.trace;
        let release = kernel_release.as_deref().unwrap_or("of unknown release");
        let where_ = match self.memory {
            "real" => format!("on real memory, {} threads", self.threads),
            _ => "on no memory, one thread for all CPUs".to_owned(),
        };
        let set = self.policy_set.iter().map(|(key, value)| format!(" {key}={value}"));
        let policy = iter::once(self.policy.to_owned()).chain(set).collect::<String>();
        let latency = |l: &Latency| {
            format!("p50 {} ns, p99 {} ns, p99.9 {} ns", l.p50_ns, l.p99_ns, l.p999_ns)
        };
        format!(
            "trace     {name}: Linux {release}, {cpus} CPUs, {nodes} nodes; {} events in \
             {recorded_seconds:.1} s\n\
             replay    policy {policy}, {where_}: {:.3} s, {} events/s\n\
             alloc     {} (1 call in {} timed, clock included)\n\
             free      {}\n\n",
            grouped(self.events),
            self.seconds,
            grouped(self.events_per_s as u64),
            latency(&self.latency.alloc),
            latency::EVERY,
            latency(&self.latency.free),
        )
    }

    fn comparison(&self) -> String {
        let recorded = &self.recorded;
        let mut rows = vec![row("", ["model", "kernel", "error %"])];
        let mut line = |name: &str, model: Option<u64>, kernel: u64| {
            rows.push(compared(name, model, kernel));
        };
        line("allocations", Some(self.allocs), recorded.allocs);
        line("  pages", Some(self.pages.allocated), recorded.allocated_pages);
        line("frees", Some(self.frees), recorded.frees);
        line("  pages", Some(self.pages.freed), recorded.freed_pages);
        line("refused allocations", Some(self.failed), recorded.failed);
        line("refills, pages", Some(self.model.refill_pages), self.kernel.refill_pages);
        line("  zone-lock holds", Some(self.model.refill_holds), self.kernel.refill_holds);
        line("drains, pages", Some(self.model.drain_pages), self.kernel.drain_pages);
        line("  zone-lock holds", Some(self.model.drain_holds), self.kernel.drain_holds);
        line("  drains", self.model.drain_bursts, self.kernel.drain_bursts.unwrap_or(0));
        line("past the lists, pages", Some(self.model.direct_pages), self.kernel.direct_pages);
        let sum = |field: fn(&NodeEvents) -> u64| self.numa.model.iter().map(field).sum();
        line("numa local", Some(sum(|n| n.local)), self.numa.kernel.local);
        line("numa other", Some(sum(|n| n.other)), self.numa.kernel.other);
        for (node, n) in self.numa.model.iter().enumerate() {
            rows.push(format!(
                "node {node}: numa_hit {} numa_miss {} numa_foreign {} numa_local {} \
                 numa_other {}\n",
                n.hit, n.miss, n.foreign, n.local, n.other
            ));
        }
        rows.concat()
    }

    fn by_place(&self) -> String {
        let head = ["refill pages", "holds", "drain pages", "holds"];
        let mut text = format!("\n{:<24}{:<8}", "zone", "");
        head.iter().for_each(|name| text.push_str(&format!("{name:>14}")));
        text.push('\n');
        for place in &self.places {
            let name = match place.cpu {
                Some(cpu) => format!("{}, CPU {cpu}", place.zone),
                None => place.zone.clone(),
            };
            for (who, side) in [("model", &place.model), ("kernel", &place.kernel)] {
                let Some(side) = side else { continue };
                let pages = (side.refill_pages, side.drain_pages);
                let numbers = [pages.0, side.refill_holds, pages.1, side.drain_holds];
                text.push_str(&format!("{name:<24}{who:<8}"));
                numbers.iter().for_each(|n| text.push_str(&format!("{:>14}", grouped(*n))));
                text.push('\n');
            }
        }
        text
    }

    fn placement(&self) -> String {
        let PlacementReport { judged, same_pfn, lists, buddy, free_running } = &self.placement;
        let share = |part: u64, whole: u64| {
            format!("{} of {} ({})", grouped(part), grouped(whole), percent(part, whole))
        };
        let mut text = format!(
            "\nplacement, one step at a time from where the kernel was\n\
             lists     same page frame: {}; same page drained: {}\n",
            share(*same_pfn, *judged),
            share(lists.drained_same_pfn, lists.drained_judged),
        );
        for (count, why) in lists.reasons() {
            text.push_str(&format!("{:>12}  {why}\n", grouped(count)));
        }
        text.push_str(&format!(
            "buddies   same page frame: {}; where nothing of the start is in it: {}\n",
            share(buddy.same_pfn, buddy.judged),
            share(buddy.known_same_pfn, buddy.known_judged),
        ));
        for (count, why) in buddy.reasons() {
            text.push_str(&format!("{:>12}  {why}\n", grouped(count)));
        }
        text.push_str(&format!(
            "placement, running by itself\n\
             \x20         same page frame: {}; same block: {}\n\
             {:>12}  not judged: frames not seen before\n\
             {:>12}  not judged: in use here\n",
            share(free_running.same_pfn, free_running.judged),
            share(free_running.same_block, free_running.judged_block),
            grouped(free_running.unseen),
            grouped(free_running.held_in_model),
        ));
        text
    }

    fn limits(&self) -> String {
        let lines = self.limits.lines().into_iter().filter(|(count, _)| *count > 0);
        let lines: String =
            lines.map(|(count, what)| format!("{:>12}  {what}\n", grouped(count))).collect();
        let recorded = self.use_recorded.names().join(", ");
        let told = match recorded.as_str() {
            "" => "allocations, frees and zoneinfo alone",
            more => &format!("allocations, frees, zoneinfo and, as recorded: {more}"),
        };
        format!("\nthe model was told {told}; what limits it\n{lines}")
    }

    fn tail(&self) -> String {
        let mut text = String::new();
        if self.memory == "none" {
            text.push_str(&self.placement());
            text.push_str(&self.limits());
        }
        let counted = &self.counted;
        text.push_str("\ncounted, not hidden in a total\n");
        for (count, pages, what) in [
            (counted.before_start, 0, "events before the start, not replayed"),
            (counted.old_frees, counted.old_free_pages, "frees of blocks from before the trace"),
            (
                counted.hidden_allocs,
                counted.hidden_alloc_pages,
                "allocations without event (their frees are not replayed)",
            ),
            (
                counted.allocs_made_up,
                counted.alloc_pages_made_up,
                "allocations without event, made up",
            ),
            (counted.hidden_frees, counted.hidden_free_pages, "frees without event, made up"),
            (counted.part_frees, 0, "frees of a part of a block"),
            (counted.order_differs, 0, "frees with another order than the allocation's"),
            (self.recorded.failed, 0, "allocations that the kernel refused, not replayed"),
            (counted.skipped_frees, 0, "frees of what was refused here"),
            (counted.refreshes_made_up, 0, "runs of statistics workers made up, one each second"),
            (counted.unknown_events, 0, "events of unknown kinds"),
            (counted.lost_events, 0, "events that the recorder lost"),
        ] {
            if count > 0 {
                let pages =
                    if pages > 0 { format!(" ({} pages)", grouped(pages)) } else { String::new() };
                text.push_str(&format!("{:>12}  {what}{pages}\n", grouped(count)));
            }
        }
        text.push_str(if self.passed() { "PASS\n" } else { "FAIL\n" });
        text
    }
}

fn row(name: &str, cells: [&str; 3]) -> String {
    format!("{name:<24}{:>14}{:>14}{:>10}\n", cells[0], cells[1], cells[2])
}

fn compared(name: &str, model: Option<u64>, kernel: u64) -> String {
    let error = model.and_then(|model| error(model, kernel));
    let error = error.map_or("-".to_owned(), |percent| format!("{percent:+.2}"));
    let model = model.map_or("-".to_owned(), grouped);
    row(name, [&model, &grouped(kernel), &error])
}

fn percent(part: u64, whole: u64) -> String {
    match whole {
        0 => "-".to_owned(),
        whole => format!("{:.2} %", part as f64 * 100.0 / whole as f64),
    }
}

/// A number with a comma after each three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1000), "1,000");
        assert_eq!(grouped(520_208), "520,208");
        assert_eq!(grouped(1_234_567), "1,234,567");
    }
}
