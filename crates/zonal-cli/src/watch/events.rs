//! Tracepoints that the kernel counts for us, CPU by CPU: nothing is written anywhere, nothing of
//! the host is changed, and the counters go when this program does.
//!
//! Each event costs the host what a counted tracepoint costs. `vmstat` has no counters of refills
//! and drains.

use std::collections::BTreeMap;

use anyhow::{Context, bail};

use super::counter::{Counter, start};
use super::rates::{DRAINED, LOCK_WAITS, REFILLED};

/// Tracepoints, and the counters they are shown as.
const EVENTS: [(&str, &str); 3] = [
    ("kmem:mm_page_alloc_zone_locked", REFILLED),
    ("kmem:mm_page_pcpu_drain", DRAINED),
    ("lock:contention_begin", LOCK_WAITS),
];

/// Where tracefs is mounted.
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Where the kernel lists the CPUs that are online.
const ONLINE: &str = "/sys/devices/system/cpu/online";

/// Counters of all CPUs.
#[derive(Default)]
pub struct Events {
    counted: Vec<Counted>,
    /// Why something is not counted, for people.
    pub remark: Option<String>,
}

/// A tracepoint that is counted.
struct Counted {
    tracepoint: &'static str,
    name: &'static str,
    /// The kernel's number of it.
    number: u64,
    by_cpu: BTreeMap<u32, Counter>,
    /// What was counted on CPUs that have gone since: their counters stand still for good.
    gone: u64,
}

impl Counted {
    /// Counts on these CPUs and on no others.
    fn follow(&mut self, online: &[u32]) -> anyhow::Result<()> {
        let gone = self.by_cpu.extract_if(.., |cpu, _| !online.contains(cpu));
        for (_, mut counter) in gone {
            self.gone += counter.read().unwrap_or_default();
        }
        for cpu in online {
            if !self.by_cpu.contains_key(cpu) {
                self.by_cpu.insert(*cpu, start(self.number, *cpu)?);
            }
        }
        Ok(())
    }

    fn read(&mut self) -> std::io::Result<u64> {
        let counts = self.by_cpu.values_mut().map(Counter::read);
        counts.sum::<std::io::Result<u64>>().map(|count| count + self.gone)
    }
}

impl Events {
    /// Counts what may be counted.
    pub fn start() -> Events {
        let mut events = Events::default();
        for (tracepoint, name) in EVENTS {
            let counted = number(tracepoint).and_then(|number| {
                let (by_cpu, gone) = (BTreeMap::new(), 0);
                let mut counted = Counted { tracepoint, name, number, by_cpu, gone };
                counted.follow(&online()?).map(|()| counted)
            });
            match counted {
                Ok(counted) => events.counted.push(counted),
                Err(error) => events.remark = Some(format!("{tracepoint}: {error:#}")),
            }
        }
        events
    }

    /// The counts so far, of CPUs that came meanwhile, too.
    pub fn read(&mut self) -> Vec<(String, u64)> {
        let online = online();
        let mut counts = Vec::new();
        for counted in &mut self.counted {
            if let Ok(online) = &online
                && let Err(error) = counted.follow(online)
            {
                self.remark = Some(format!("{}: {error:#}", counted.tracepoint));
            }
            counts.extend(counted.read().ok().map(|count| (counted.name.to_owned(), count)));
        }
        counts
    }
}

/// The CPUs that are online.
fn online() -> anyhow::Result<Vec<u32>> {
    let text = std::fs::read_to_string(ONLINE).context(ONLINE)?;
    let Ok(cpus) = zonal_text::cpulist::parse(&text) else {
        bail!("{ONLINE}: expected a list of CPUs")
    };
    Ok(cpus.ids)
}

/// The kernel's number of a tracepoint.
fn number(tracepoint: &str) -> anyhow::Result<u64> {
    let of = |root: &str| {
        let path = format!("{root}/events/{}/id", tracepoint.replace(':', "/"));
        std::fs::read_to_string(path).ok()?.trim().parse().ok()
    };
    let found = TRACEFS.iter().copied().find_map(of);
    found.context("not counted; expected root, a mounted tracefs, and a kernel that has it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refills_of_this_machine_are_counted() {
        let mut events = Events::start();
        if let Some(remark) = &events.remark {
            return eprintln!("SKIPPED: {remark}");
        }
        let value = |counts: &[(String, u64)]| {
            counts.iter().find(|(name, _)| name == REFILLED).map(|(_, count)| *count)
        };
        let before = value(&events.read()).unwrap();
        // More than the lists of a CPU hold at first; pages of others come on top.
        let begin = std::time::Instant::now();
        while value(&events.read()).unwrap() == before {
            std::hint::black_box(vec![1_u8; 256 << 20]);
            assert!(begin.elapsed().as_secs() < 120, "no refill was counted");
        }
    }

    #[test]
    fn cpus_that_come_are_counted_and_those_that_go_keep_their_count() {
        let mut events = Events::start();
        if let Some(remark) = &events.remark {
            return eprintln!("SKIPPED: {remark}");
        }
        let all = online().unwrap();
        let counted = &mut events.counted[0];
        counted.follow(&[]).unwrap();
        let (nothing, gone) = (counted.by_cpu.len(), counted.gone);
        assert_eq!((nothing, counted.read().unwrap()), (0, gone));
        counted.gone += 1_000_000;
        let read = events.read();
        assert!(read[0].1 >= 1_000_000 + gone, "{read:?}");
        assert_eq!(events.counted[0].by_cpu.keys().copied().collect::<Vec<_>>(), all);
    }

    #[test]
    fn a_tracepoint_that_is_not_there_is_named() {
        let error = number("kmem:nothing").map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("not counted"), "{error}");
    }
}
