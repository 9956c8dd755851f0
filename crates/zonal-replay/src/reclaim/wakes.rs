//! For blocks of which order reclaim was asked.
//!
//! A request for a large block may find none while pages are free. It wakes background reclaim for
//! its order once no zone of the node has such a block above its low watermark and reserve (LB D.5,
//! H.2). A boost wakes it, too, but for single pages.
//!
//! A file is read ahead in blocks as large as what is read ahead allows, so a disk that is set to
//! read ahead more than the kernel's own asks for larger ones.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use zonal_core::types::PageRules;
use zonal_trace::{Event, EventKind, MachineFiles, Notice, ORDER_MAX};

/// Orders that blocks have.
const ORDERS: usize = ORDER_MAX as usize + 1;

/// By how many KiB the kernel reads ahead where nobody says otherwise.
const OWN_READ_AHEAD_KIB: u64 = 128;

/// Collects that while a trace is read.
#[derive(Clone, Debug, Default)]
pub struct Wakes {
    background: [u64; ORDERS],
    direct: [u64; ORDERS],
    /// Nodes whose background reclaim was woken for a block of more than a page.
    nodes: BTreeSet<u32>,
}

impl Wakes {
    /// Takes note of the next event.
    pub fn see(&mut self, event: &Event) {
        let EventKind::Notice(notice) = event.kind else { return };
        let (counts, order) = match notice {
            Notice::KswapdWake { node, order } => {
                if order > 0 {
                    self.nodes.insert(node);
                }
                (&mut self.background, order)
            }
            Notice::ReclaimBegin { order, .. } => (&mut self.direct, order),
            _ => return,
        };
        if let Some(count) = counts.get_mut(usize::from(order)) {
            *count += 1;
        }
    }

    /// Whether no zone of the node had a block that was asked for, at some time.
    pub fn is_short_of_blocks(&self, node: u32) -> bool {
        self.nodes.contains(&node)
    }

    /// What most of them were for; `None`: nobody asked.
    pub fn asked(&self, files: &MachineFiles, page: PageRules) -> Option<AskedFor> {
        let [background, direct] = [self.background, self.direct].map(|all| all.iter().sum());
        let of = |order: usize| self.background[order] + self.direct[order];
        let order = (1..ORDERS).max_by_key(|order| of(*order)).filter(|order| of(*order) > 0);
        let order = order.unwrap_or(0);
        let block_kib = page.kbytes() << order;
        let mut read_ahead_kib = read_ahead_kib(files);
        read_ahead_kib.retain(|_, kib| order > 0 && *kib > OWN_READ_AHEAD_KIB && *kib >= block_kib);
        let of_order = of(order);
        let order = order as u8;
        let asked = AskedFor { background, direct, order, of_order, read_ahead_kib, page };
        (background + direct > 0).then_some(asked)
    }
}

/// What reclaim was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AskedFor {
    /// Wakes of background reclaim.
    pub background: u64,
    /// Runs of direct reclaim.
    pub direct: u64,
    /// The order of blocks of more than a page that most of them were for; 0: all for pages.
    pub order: u8,
    /// How many of both were for this order.
    pub of_order: u64,
    /// Disks whose files are read ahead by at least such a block and by more than the kernel's own,
    /// with KiB; none where the recording does not say.
    pub read_ahead_kib: BTreeMap<String, u64>,
    /// The size of a page.
    #[serde(skip)]
    pub(crate) page: PageRules,
}

impl AskedFor {
    /// Whether most of it was for blocks of one order, and not for pages.
    pub fn is_of_blocks(&self) -> bool {
        self.order > 0 && self.of_order * 2 > self.background + self.direct
    }

    /// That in words, with what may be the cause; `None`: it was for pages.
    pub fn words(&self) -> Option<String> {
        let AskedFor { background, direct, order, of_order, .. } = self;
        let mut words = format!(
            "reclaim was for blocks of {}, not for pages: {of_order} of {} times (background \
             {background}, direct {direct})",
            size(self.page.kbytes() << order),
            background + direct
        );
        for (disk, kib) in &self.read_ahead_kib {
            words.push_str(&format!(
                "; files of {disk} are read ahead by {}, in blocks up to that size; the kernel's \
                 own is {}: a smaller /sys/block/{disk}/queue/read_ahead_kb asks for smaller \
                 blocks, which neither `advise` nor `verify` can try",
                size(*kib),
                size(OWN_READ_AHEAD_KIB)
            ));
        }
        self.is_of_blocks().then_some(words)
    }
}

fn size(kib: u64) -> String {
    match kib.is_multiple_of(1024) {
        true => format!("{} MiB", kib / 1024),
        false => format!("{kib} KiB"),
    }
}

/// By disk, as the recording has it.
fn read_ahead_kib(files: &MachineFiles) -> BTreeMap<String, u64> {
    let text = files.get("read-ahead.txt").map(String::from_utf8_lossy).unwrap_or_default();
    let line = |line: &str| {
        let (disk, kib) = line.split_once(' ')?;
        Some((disk.to_owned(), kib.trim().parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(notices: &[Notice]) -> Wakes {
        let mut wakes = Wakes::default();
        for notice in notices {
            let kind = EventKind::Notice(*notice);
            wakes.see(&Event { time_ns: 0, cpu: 0, pid: 45, kind });
        }
        wakes
    }

    #[test]
    fn a_node_is_short_of_blocks_where_reclaim_was_woken_for_one() {
        let wakes = of(&[
            Notice::KswapdWake { node: 0, order: 0 },
            Notice::KswapdWake { node: 1, order: 9 },
            Notice::ReclaimBegin { order: 9, gfp: 0 },
        ]);
        assert!(!wakes.is_short_of_blocks(0) && wakes.is_short_of_blocks(1));
        let asked = wakes.asked(&MachineFiles::default(), PageRules::OWN).unwrap();
        assert_eq!((asked.background, asked.direct), (2, 1));
        assert_eq!((asked.order, asked.of_order), (9, 2));
        let words = asked.words().unwrap();
        assert_eq!(
            words,
            "reclaim was for blocks of 2 MiB, not for pages: 2 of 3 times (background 2, direct 1)"
        );
    }

    #[test]
    fn reading_ahead_is_a_cause_where_its_blocks_are_as_large_as_those_that_were_missing() {
        let asked = |order, text: &str| {
            let mut files = MachineFiles::default();
            files.set("read-ahead.txt", text.as_bytes().to_vec());
            of(&[Notice::KswapdWake { node: 0, order }]).asked(&files, PageRules::OWN).unwrap()
        };
        let text = "loop0 128\nsda 1024\nvda 8192\nx\ny z\n";
        let large = asked(9, text);
        assert_eq!(large.read_ahead_kib, BTreeMap::from([("vda".to_owned(), 8192)]));
        let words = large.words().unwrap();
        assert!(words.contains("vda are read ahead by 8 MiB"), "{words}");
        assert!(words.contains("own is 128 KiB: a smaller /sys/block/vda/queue/"), "{words}");
        assert_eq!(asked(8, text).read_ahead_kib.len(), 2);
        // Of single pages it is no cause.
        assert_eq!((asked(0, text).read_ahead_kib.len(), asked(0, text).words()), (0, None));
        assert_eq!(asked(4, "sda 128\n").read_ahead_kib.len(), 0, "the kernel's own");
    }

    #[test]
    fn blocks_are_as_large_as_the_recorded_pages_make_them() {
        let page = PageRules { shift: 14, ..PageRules::OWN };
        let wakes = of(&[Notice::KswapdWake { node: 0, order: 9 }]);
        let words = wakes.asked(&MachineFiles::default(), page).unwrap().words().unwrap();
        assert!(words.starts_with("reclaim was for blocks of 8 MiB"), "{words}");
    }

    #[test]
    fn pages_are_no_blocks_and_an_order_that_no_kernel_has_is_no_panic() {
        let files = MachineFiles::default();
        let wake = Notice::KswapdWake { node: 0, order: 0 };
        let direct = |order| Notice::ReclaimBegin { order, gfp: 0 };
        let asked = of(&[wake, wake, direct(3)]).asked(&files, PageRules::OWN).unwrap();
        assert_eq!((asked.order, asked.of_order, asked.is_of_blocks()), (3, 1, false));
        let asked = of(&[wake]).asked(&files, PageRules::OWN).unwrap();
        assert_eq!((asked.background, asked.order, asked.words()), (1, 0, None));
        assert_eq!(of(&[]).asked(&files, PageRules::OWN), None);
        assert_eq!(of(&[direct(99)]).asked(&files, PageRules::OWN), None);
    }
}
