//! Programs of any calls, right and wrong: pages are taken and given back in parts, memory and CPUs
//! come and go, and what is freed or removed may be somebody else's. No page gets a second owner,
//! what is refused changes nothing, and all comes back.

mod support;

use std::collections::HashSet;
use std::ops::Range;

use support::{CPU, Machine2, Pages, TestKernel};
use zonal_core::gfp::Gfp;
use zonal_core::policy::Policy;
use zonal_core::types::Pfn;
use zonal_kernel::{hotplug, memory, pages};

const ALL: u64 = 0x6000;

/// What the program knows, and the numbers that it draws.
#[derive(Default)]
struct Program {
    drawn: u64,
    owned: HashSet<u64>,
    held: Vec<Range<u64>>,
    gone: Vec<Range<u64>>,
}

fn pfns(pages: &Range<u64>) -> Range<Pfn> {
    Pfn(pages.start)..Pfn(pages.end)
}

impl Program {
    fn below(&mut self, end: u64) -> u64 {
        self.drawn = self.drawn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.drawn >> 33) % end
    }
    /// In a zone or around it, or at a limit.
    fn spot(&mut self) -> u64 {
        match self.below(8) {
            0 => [0, 1 << 32, 1 << 52, u64::MAX][self.below(4) as usize],
            1 => 0xff0 + self.below(0x1020),
            _ => 0xf_fff0 + self.below(0x5020),
        }
    }
    fn some(&mut self) -> Range<u64> {
        let (start, other, pages) = (self.spot(), self.spot(), self.below(0x1001));
        start..if self.below(4) == 0 { other } else { start.wrapping_add(pages) }
    }
    fn take(&mut self, on: &Pages<'_>) {
        let pages = [self.below(40), 1 << self.below(12), self.below(3000)][self.below(3) as usize];
        let align = 1 << self.below(12);
        let Ok(Pfn(at)) = pages::alloc(on, pages, align, Gfp::KERNEL) else { return };
        assert!(at.is_multiple_of(align), "{at:#x} for {align}");
        for page in at..at + pages {
            assert!(self.owned.insert(page), "{page:#x} has two owners");
            assert!(!self.gone.iter().any(|gone| gone.contains(&page)), "{page:#x} has left");
        }
        self.held.push(at..at + pages);
    }
    /// All of something that was taken, or a part from its middle.
    fn give_back(&mut self, on: &Pages<'_>) {
        if self.held.is_empty() {
            return;
        }
        let at = self.below(self.held.len() as u64) as usize;
        let of = self.held.swap_remove(at);
        let from = of.start + self.below(of.end - of.start);
        let part = if self.below(2) == 0 { from..from + 1 } else { of.clone() };
        pages::free(on, pfns(&part)).unwrap();
        part.clone().for_each(|page| assert!(self.owned.remove(&page)));
        let rest = [of.start..part.start, part.end..of.end];
        self.held.extend(rest.into_iter().filter(|rest| !rest.is_empty()));
    }
    fn free_wrongly(&mut self, on: &Pages<'_>) {
        let pages = self.some();
        let is_own = |page: u64| self.owned.contains(&page);
        if pages.is_empty() || pages.end - pages.start > ALL || !pages.clone().all(is_own) {
            assert!(pages::free(on, pfns(&pages)).is_err(), "{pages:#x?}");
        }
    }
    fn come_or_go(&mut self, on: &Pages<'_>) {
        let pages = self.some();
        if memory::remove(on, pfns(&pages)).is_ok() {
            assert!(pages.clone().all(|page| !self.owned.contains(&page)));
            self.gone.push(pages);
        } else if !self.gone.is_empty() {
            let at = self.below(self.gone.len() as u64) as usize;
            let pages = self.gone.swap_remove(at);
            memory::add(on, pfns(&pages)).unwrap();
            assert!(memory::add(on, pfns(&pages)).is_err(), "twice");
        }
    }
    fn hotplug(&mut self, on: &Pages<'_>) {
        let cpu = [0, 1, 2, u32::MAX][self.below(4) as usize];
        // Some of these are refused: what comes afterwards says whether it mattered.
        let _ = match self.below(5) {
            0 => hotplug::starts(on),
            1 => hotplug::leaves(on),
            2 => hotplug::online(on, cpu),
            3 => hotplug::dead(on, cpu),
            _ => hotplug::lost(on, cpu),
        };
    }
    fn run(mut self, on: &Pages<'_>) {
        for _ in 0..1500 {
            CPU.set(self.below(2) as u32);
            match self.below(10) {
                0..=3 => self.take(on),
                4..=6 => self.give_back(on),
                7 => self.free_wrongly(on),
                8 => self.come_or_go(on),
                _ => self.hotplug(on),
            }
        }
        on.validate().unwrap();
        self.held.iter().for_each(|pages| self::pages::free(on, pfns(pages)).unwrap());
        self.gone.iter().for_each(|pages| memory::add(on, pfns(pages)).unwrap());
        assert_eq!(on.free_pages(), ALL);
    }
}

#[test]
fn no_program_gets_a_page_with_two_owners_or_loses_one() {
    for policy in [Policy::KERNEL, Policy::ZONAL, Policy::LINUX_6_18] {
        for seed in 0..12 {
            let program = Program { drawn: seed, ..Program::default() };
            Machine2::default().with_policy(TestKernel::default(), policy, |on| program.run(on));
        }
    }
}
