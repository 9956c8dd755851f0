//! One reading of an allocator, by the kernel's own texts.

use anyhow::{Context, anyhow};
use serde::Serialize;
use zonal_text::{buddyinfo, meminfo, vmstat, zoneinfo};

/// Order of a huge page.
pub const HUGE: usize = 9;

/// The lists of one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Pcp {
    /// The CPU.
    pub cpu: u32,
    /// Pages on its lists.
    pub count: u64,
    /// The number at which they drain.
    pub high: u64,
    /// Pages of a refill, at first.
    pub batch: u64,
}

/// A zone that has pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Zone {
    /// The node.
    pub node: u32,
    /// The zone's kind.
    pub name: String,
    /// Pages free in the buddy.
    pub free: u64,
    /// The watermarks: min, low, high.
    pub marks: [u64; 3],
    /// Pages that the allocator manages.
    pub managed: u64,
    /// By CPU.
    pub pcps: Vec<Pcp>,
    /// Free blocks, by order.
    pub orders: Vec<u64>,
}

impl Zone {
    /// Pages on all lists.
    pub fn listed(&self) -> u64 {
        self.pcps.iter().map(|pcp| pcp.count).sum()
    }

    /// The share of free pages in blocks that are smaller than `order`, from 0 to 1: what a request
    /// of that order cannot use. `None`: nothing is free.
    pub fn unusable(&self, order: usize) -> Option<f64> {
        let pages =
            |(order, blocks): (usize, &u64)| blocks.saturating_mul(1 << order.min(63)) as f64;
        let all: f64 = self.orders.iter().enumerate().map(pages).sum();
        let small: f64 = self.orders.iter().enumerate().take(order).map(pages).sum();
        (all > 0.0).then(|| small / all)
    }

    /// As it is called on screens.
    pub fn title(&self) -> String {
        format!("node {} {}", self.node, self.name)
    }
}

/// One reading.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// What was read, for people.
    pub of: String,
    /// When, in seconds on a clock that only goes forward.
    pub at_s: f64,
    /// The zones, by node, then by kind.
    pub zones: Vec<Zone>,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Counters of `vmstat`, and of the source itself.
    pub counters: Vec<(String, u64)>,
    /// What is wrong with it, for people.
    pub remark: Option<String>,
    /// All counters as OpenMetrics text: a pool has them, a kernel has not.
    pub metrics: Option<String>,
    /// Seconds since it was written, where another program writes it.
    pub age_s: Option<f64>,
    /// The program that wrote it is gone, and it is no reading of now.
    pub is_over: bool,
}

impl Default for Reading {
    fn default() -> Reading {
        Reading {
            of: String::new(),
            at_s: 0.0,
            zones: Vec::new(),
            page_bytes: zonal::PAGE_SIZE as u64,
            counters: Vec::new(),
            remark: None,
            metrics: None,
            age_s: None,
            is_over: false,
        }
    }
}

/// A text of somebody else as a terminal can show it: without what would control it.
pub fn shown(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

impl Reading {
    /// Whether it is of a pool, not of a kernel.
    pub fn is_of_pool(&self) -> bool {
        self.metrics.is_some()
    }

    /// Reads the three texts.
    ///
    /// # Errors
    /// A text that is none of a kernel, with its line.
    pub fn parse(zoneinfo: &str, buddyinfo: &str, vmstat: &str) -> anyhow::Result<Reading> {
        let info = zoneinfo::parse(zoneinfo).map_err(|error| anyhow!("{error}"))?;
        let buddies = buddyinfo::parse(buddyinfo).map_err(|error| anyhow!("{error}"))?;
        let stats = vmstat::parse(vmstat).map_err(|error| anyhow!("{error}"))?;
        let populated = info.zones.iter().filter(|zone| zone.is_populated());
        let zones: anyhow::Result<Vec<Zone>> = populated
            .map(|zone| {
                let page = |name: &str| {
                    let of = || format!("zoneinfo: node {} {}: no `{name}`", zone.node, zone.name);
                    zone.page_count(name).with_context(of)
                };
                let free =
                    buddies.zones.iter().find(|b| b.node == zone.node && b.zone == zone.name);
                let pcps = zone.pagesets.iter().flatten().map(|set| {
                    let values = set.values();
                    let (count, high, batch) = (values.count, values.high, values.batch);
                    Pcp { cpu: set.cpu, count, high, batch }
                });
                Ok(Zone {
                    node: zone.node,
                    name: shown(&zone.name),
                    free: page("free")?,
                    marks: [page("min")?, page("low")?, page("high")?],
                    managed: page("managed")?,
                    pcps: pcps.collect(),
                    orders: free.map(|free| free.free_blocks.clone()).unwrap_or_default(),
                })
            })
            .collect();
        let counters = stats.stats.into_iter().map(|stat| (stat.name, stat.value)).collect();
        Ok(Reading { zones: zones?, counters, ..Reading::default() })
    }

    /// Bytes of a page of the machine whose `/proc/meminfo` this is: its memory by the pages that
    /// the zones manage. `None`: it does not tell.
    pub fn page_bytes_by(&self, text: &str) -> Option<u64> {
        let kib = meminfo::parse(text).ok()?.value("MemTotal")?;
        let pages: u64 = self.zones.iter().map(|zone| zone.managed).sum();
        // A power of two from 4 KiB: what is handed out between two reads changes little.
        let each = kib.checked_mul(1024)?.checked_div(pages)?;
        let below = each.checked_ilog2()?;
        let bytes = 1_u64.checked_shl(below)?;
        let nearest = if each - bytes > bytes / 2 { bytes * 2 } else { bytes };
        (4096..=1 << 20).contains(&nearest).then_some(nearest)
    }

    /// The sum of all counters whose names begin with one of `prefixes`; `None`: there are none.
    pub fn sum(&self, prefixes: &[&str]) -> Option<u64> {
        let found = self.counters.iter().filter(|(name, _)| {
            prefixes.iter().any(|prefix| match prefix.strip_suffix('*') {
                Some(prefix) => name.starts_with(prefix),
                None => name == prefix,
            })
        });
        found.map(|(_, value)| *value).reduce(u64::saturating_add)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A machine of one node with two zones.
    pub(crate) const ZONEINFO: &str = "\
Node 0, zone      DMA
  per-node stats
      nr_inactive_anon 96871
  pages free     3840
        boost    0
        min      10
        low      12
        high     14
        spanned  4095
        present  3998
        managed  3840
        protection: (0, 3019)
      nr_free_pages 3840
  pagesets
    cpu: 0
              count:    0
              high:     0
              batch:    1
  vm stats threshold: 4
  node_unreclaimable:  0
  start_pfn:           1
Node 0, zone   Normal
  pages free     100000
        boost    0
        min      8000
        low      10000
        high     12000
        spanned  500000
        present  500000
        managed  480000
        protection: (0, 0)
      nr_free_pages 100000
  pagesets
    cpu: 0
              count:    700
              high:     1400
              batch:    63
  vm stats threshold: 36
    cpu: 1
              count:    35
              high:     1400
              batch:    63
  vm stats threshold: 36
  node_unreclaimable:  0
  start_pfn:           4096
";
    pub(crate) const BUDDYINFO: &str = concat!(
        "Node 0, zone      DMA      0      0      0      0      0      0      0      0      0",
        "      1      3 \n",
        "Node 0, zone   Normal    100     50     25      0      0      0      0      0      0",
        "      0     97 \n",
    );
    pub(crate) const VMSTAT: &str = "\
nr_free_pages 103840
pgalloc_dma 0
pgalloc_normal 5000
pgfree 4000
pgscan_kswapd 30
pgsteal_kswapd 20
pgsteal_direct 5
allocstall_normal 2
compact_stall 1
";

    #[test]
    fn the_texts_of_a_kernel_are_read() {
        let reading = Reading::parse(ZONEINFO, BUDDYINFO, VMSTAT).unwrap();
        let [dma, normal] = &reading.zones[..] else { panic!("{reading:?}") };
        assert_eq!((dma.title().as_str(), dma.free, dma.orders[10]), ("node 0 DMA", 3840, 3));
        assert_eq!((normal.marks, normal.managed), ([8000, 10000, 12000], 480000));
        assert_eq!((normal.pcps.len(), normal.listed()), (2, 735));
        assert_eq!(normal.unusable(0), Some(0.0));
        let share = normal.unusable(9).unwrap();
        assert!((share - 300.0 / (300.0 + 97.0 * 1024.0)).abs() < 1e-9, "{share}");
        assert_eq!(Zone::default().unusable(9), None);
        assert_eq!(reading.sum(&["pgalloc_*"]), Some(5000));
        assert_eq!(reading.sum(&["pgsteal_kswapd", "pgsteal_direct"]), Some(25));
        assert_eq!(reading.sum(&["nowhere", "pg"]), None);
    }

    #[test]
    fn the_size_of_pages_is_found_by_the_memory_of_the_machine() {
        let reading = Reading::parse(ZONEINFO, BUDDYINFO, VMSTAT).unwrap();
        let managed = 3840 + 480_000;
        for (kib, bytes) in [(4, Some(4096)), (16, Some(16384)), (64, Some(65536)), (2, None)] {
            for more in [0, 3000] {
                let text = format!("MemTotal:       {} kB\nMemFree: 1 kB\n", managed * kib + more);
                assert_eq!(reading.page_bytes_by(&text), bytes, "{text}");
            }
        }
        for bad in ["", "MemTotal: x kB\n", "MemTotal: 99999999999999999999 kB\n"] {
            assert_eq!(reading.page_bytes_by(bad), None, "{bad}");
        }
        assert_eq!(Reading::default().page_bytes_by("MemTotal: 5 kB\n"), None);
    }

    #[test]
    fn what_is_no_text_of_a_kernel_is_refused_by_its_line() {
        let error = |z: &str, b: &str, v: &str| Reading::parse(z, b, v).unwrap_err().to_string();
        assert!(error("x\n", BUDDYINFO, VMSTAT).contains("line 1"));
        assert!(error(ZONEINFO, "Node 0\n", VMSTAT).contains("buddyinfo"));
        assert!(error(ZONEINFO, BUDDYINFO, "a\n").contains("vmstat: line 1"));
        let without = ZONEINFO.replace("        low      10000\n", "");
        assert!(error(&without, BUDDYINFO, VMSTAT).contains("node 0 Normal: no `low`"));
        // A zone that buddyinfo lacks has no orders.
        let first = BUDDYINFO.lines().next().unwrap().to_owned() + "\n";
        let reading = Reading::parse(ZONEINFO, &first, VMSTAT).unwrap();
        assert!(reading.zones[1].orders.is_empty());
    }
}
