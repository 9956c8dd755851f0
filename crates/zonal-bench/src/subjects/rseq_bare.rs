//! `rseq-bare`, the limit: per-CPU stacks of block pointers, one restartable sequence per
//! operation, and nothing else. No checks, no statistics, no tuning, no merging: an allocator that
//! does more cannot be faster than this in the same loop, which is what makes it the yardstick.
//!
//! ```text
//!   page 0     of a CPU's area: +0x540 order 0 | top capacity … slots …
//!   +0x11080   order 1, 17 pages and 128 bytes further, and so on to order 9
//! ```
//! - **BARE-1** a header lies at page offset 0x540 + 128 x order, never 0, and the fields that the
//!   fast path reads besides (this struct, page-aligned) lie at page offset 0 to 0x40: two hot
//!   words with equal low twelve address bits would cost up to ten times as much (4K aliasing).
//! - **BARE-2** blocks of each order are separate memory, moved between the CPUs' stacks by a
//!   locked depot per order, half a stack at a time at most.

#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
mod imp {
    use super::super::depot::Depot;
    use super::super::rseq_asm::{self, CPU_STRIDE};
    use crate::error::BenchError;
    use crate::region::Region;
    use crate::subject::{Sizing, Subject, Waiting, block_bytes};

    /// Orders 0 to 9.
    const ORDERS: usize = 10;
    /// Page offset of the header of order 0 (BARE-1).
    const HEADER_AT: usize = 0x540;
    /// Blocks that a stack of order 0 holds: two rounds of `singles4096`.
    const CAPACITY_MAX: usize = 8192;
    /// Distance between a CPU's stacks: slots, header, and a shift of two lines (BARE-1).
    const STACK_STRIDE: usize = CAPACITY_MAX * 8 + 4096 + 128;
    /// Largest number of blocks that move at once.
    const BATCH_MAX: usize = 512;

    const _: () = assert!(HEADER_AT + ORDERS * STACK_STRIDE <= CPU_STRIDE, "stacks overlap");
    const _: () = assert!((HEADER_AT | STACK_STRIDE).is_multiple_of(64), "headers are on lines");

    /// The per-CPU stacks; see the module's essay.
    #[repr(C, align(4096))]
    pub struct RseqBare {
        /// Stack of CPU 0, order 0.
        base: *mut u8,
        /// glibc's `__rseq_offset`, copied: as an extern static it costs two loads each time.
        offset: isize,
        /// Keeps the fields that the fast path reads off the lines below (BARE-1).
        _apart: [u64; 62],
        depots: Vec<Depot>,
        _stacks: Region,
        _blocks: Vec<Region>,
    }

    // SAFETY: `base` points into `_stacks`, whose words are reached by restartable sequences only,
    // on whichever CPU the calling thread runs; the rest is Sync by itself.
    unsafe impl Send for RseqBare {}
    // SAFETY: the same.
    unsafe impl Sync for RseqBare {}

    /// Blocks that a CPU's stack of `order` holds at most.
    const fn capacity(order: usize) -> usize {
        match order {
            0 => CAPACITY_MAX,
            1..=4 => 512,
            _ => 8,
        }
    }

    /// Blocks that move between a stack and the depot at once.
    const fn batch(order: usize) -> usize {
        let half = capacity(order) / 2;
        if half < BATCH_MAX { half } else { BATCH_MAX }
    }

    impl RseqBare {
        /// Stacks for the CPUs of this machine, blocks for `sizing`.
        ///
        /// # Errors
        /// Why it cannot run here.
        pub fn new(sizing: Sizing) -> Result<RseqBare, String> {
            let offset = rseq_asm::registered_offset()?;
            // cpu_id can be any CPU of the machine, also one that affinity excludes just now.
            let possible = rseq_asm::possible_cpus()?;
            let make = || -> Result<RseqBare, BenchError> {
                let stacks = Region::new(possible * CPU_STRIDE)?;
                let base = stacks.start().wrapping_add(HEADER_AT);
                let (mut depots, mut blocks) = (Vec::new(), Vec::new());
                for order in 0..ORDERS {
                    for cpu in 0..possible {
                        let top = base.wrapping_add(cpu * CPU_STRIDE + order * STACK_STRIDE);
                        let limit = top.wrapping_add(8).cast::<usize>();
                        // SAFETY: in `stacks` (the assertion above), 8-aligned, not yet shared.
                        unsafe { limit.write(capacity(order)) };
                    }
                    let held = Sizing::held_per_thread(order as u32) * sizing.threads;
                    let count = held + sizing.cpus * capacity(order) + 2 * batch(order);
                    let bytes = block_bytes(order as u32);
                    let region = Region::new(count.saturating_mul(bytes))?;
                    let start = region.start() as usize;
                    // Downwards: the depot hands out its end first.
                    depots.push(Depot::new((0..count).rev().map(|i| start + i * bytes).collect()));
                    blocks.push(region);
                }
                let _apart = [0; 62];
                Ok(RseqBare { base, offset, _apart, depots, _stacks: stacks, _blocks: blocks })
            };
            make().map_err(|error| error.to_string())
        }

        #[inline(always)]
        fn stack(&self, order: u32) -> *mut u8 {
            self.base.wrapping_add(order as usize * STACK_STRIDE)
        }

        /// The stack was empty: brings blocks from the depot and returns one, or null.
        #[cold]
        #[inline(never)]
        fn refill(&self, order: u32) -> *mut u8 {
            let (depot, mut blocks) = (&self.depots[order as usize], [0usize; BATCH_MAX]);
            let got = depot.take(&mut blocks[..batch(order as usize)]);
            let Some((&first, rest)) = blocks[..got].split_first() else {
                return std::ptr::null_mut();
            };
            let stack = self.stack(order);
            // SAFETY: (1), (2) as in `alloc`. (3) `rest` is as long as it says.
            let pushed =
                unsafe { rseq_asm::push_many(stack, self.offset, rest.as_ptr(), rest.len()) };
            depot.put(&rest[pushed..]);
            first as *mut u8
        }

        /// The stack was full: moves a batch to the depot, `block` with it.
        #[cold]
        #[inline(never)]
        fn drain(&self, block: usize, order: u32) {
            let (depot, mut blocks) = (&self.depots[order as usize], [0usize; BATCH_MAX]);
            let (stack, into) = (self.stack(order), blocks.as_mut_ptr());
            // SAFETY: (1), (2) as in `alloc`. (3) a batch is at most BATCH_MAX.
            let popped =
                unsafe { rseq_asm::pop_many(stack, self.offset, into, batch(order as usize)) };
            depot.put(&blocks[..popped]);
            depot.put(&[block]);
        }
    }

    // SAFETY: (1) blocks of the regions, which live as long as the subject. (2) BARE-2; RSEQ-2.
    unsafe impl Subject for RseqBare {
        fn name(&self) -> &str {
            crate::LIMIT
        }

        #[inline]
        unsafe fn alloc(&self, order: u32) -> *mut u8 {
            let stack = self.stack(order);
            // SAFETY: (1) `offset` is glibc's, and rseq is registered: checked in `new`, and of
            // this thread in `thread_init`, which is this function's contract (2). (2) a stack for
            // every possible CPU, all of one order, which exists by contract (1), at one distance.
            let block = unsafe { rseq_asm::pop(stack, self.offset) };
            if block == 0 { self.refill(order) } else { block as *mut u8 }
        }

        #[inline]
        unsafe fn free(&self, block: *mut u8, order: u32) {
            let stack = self.stack(order);
            // SAFETY: as in `alloc`.
            if !unsafe { rseq_asm::push(stack, self.offset, block as usize) } {
                self.drain(block as usize, order);
            }
        }

        fn has_bulk(&self) -> bool {
            true
        }

        fn waiting(&self) -> Option<Waiting> {
            Some(Depot::waiting(&self.depots))
        }

        /// A thread that the kernel keeps no CPU number for would find no stack.
        fn thread_init(&self) {
            let cpu = rseq_asm::current_cpu(self.offset);
            assert!(cpu >= 0, "this thread has no rseq registration (cpu_id {cpu})");
        }

        unsafe fn alloc_bulk(&self, order: u32, blocks: &mut [*mut u8]) -> usize {
            let (stack, into) = (self.stack(order), blocks.as_mut_ptr().cast::<usize>());
            // SAFETY: (1), (2) as in `alloc`. (3) `blocks` is as long as it says; a pointer and a
            // usize have the same layout.
            let popped = unsafe { rseq_asm::pop_many(stack, self.offset, into, blocks.len()) };
            if popped > 0 {
                return popped;
            }
            let Some(first) = blocks.first_mut() else { return 0 };
            *first = self.refill(order);
            usize::from(!first.is_null())
        }

        unsafe fn free_bulk(&self, blocks: &[*mut u8], order: u32) {
            let (stack, mut rest) = (self.stack(order), blocks);
            loop {
                let from = rest.as_ptr().cast::<usize>();
                // SAFETY: (1), (2) as in `alloc`. (3) `rest` is as long as it says.
                let pushed = unsafe { rseq_asm::push_many(stack, self.offset, from, rest.len()) };
                rest = &rest[pushed..];
                let Some((&block, others)) = rest.split_first() else { return };
                self.drain(block as usize, order);
                rest = others;
            }
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu")))]
mod imp {
    use crate::subject::{Sizing, Subject};

    /// The limit subject, which exists on x86-64 Linux with glibc only.
    pub enum RseqBare {}

    impl RseqBare {
        /// Never succeeds here.
        ///
        /// # Errors
        /// Always: the limit subject is written for another platform.
        pub fn new(_: Sizing) -> Result<RseqBare, String> {
            Err("it is written for x86-64 Linux with glibc".into())
        }
    }

    // SAFETY: (1) and (2) there is no value of the type.
    unsafe impl Subject for RseqBare {
        fn name(&self) -> &str {
            match *self {}
        }
        unsafe fn alloc(&self, _: u32) -> *mut u8 {
            match *self {}
        }
        unsafe fn free(&self, _: *mut u8, _: u32) {
            match *self {}
        }
    }
}

pub use imp::RseqBare;
