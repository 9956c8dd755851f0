//! What a kernel does around the page allocator, in nanoseconds of a CPU that has its core to
//! itself. The same on all machines: what differs between them goes into their other figures.

/// A page fault that maps a new page, without the allocator and without zeroing it: entry, the
/// search for the mapping, the charge, the page table, the LRU. An estimate: what lmbench's
/// `lat_pagefault` gives on servers, 0.2 to 0.6 microseconds, is without charge and LRU.
pub const FAULT_NS: u64 = 420;
/// Unmapping one page at exit, without the allocator.
pub const UNMAP_NS: u64 = 120;
/// A process' life around its pages: fork, exec, reading its files out of the page cache, exit and
/// wait. An estimate; small processes take about this long in public benchmarks (lmbench).
pub const PROCESS_NS: u64 = 400_000;
/// Queueing a work item on another CPU and waking its worker there. An estimate: half of the switch
/// that it brings about.
pub const ITEM_QUEUE_NS: u64 = 1_000;
/// What a work item takes from the CPU that runs it, beside the work: a switch to the worker and
/// one back, each of which takes about a microsecond between small processes (lmbench, `lat_ctx`,
/// servers of the last fifteen years).
pub const ITEM_RUN_NS: u64 = 2_000;
/// Copying a page into or out of the page cache, with the search for it and its file system: an
/// estimate; a core of 2011 copies 4 to 5 GB/s through its caches.
pub const WRITE_PAGE_NS: u64 = 1000;
/// A look of reclaim at one page of a list: isolating it, its lock, its references, putting it
/// back. An estimate.
pub const LOOK_PAGE_NS: u64 = 60;
/// Taking a page out of its file, without the allocator. An estimate.
pub const EVICT_PAGE_NS: u64 = 150;
/// A switch from one task to the next. An estimate: lmbench's context switches between small
/// processes of one core take one to two microseconds on servers of these years.
pub const SWITCH_NS: u64 = 1_200;
/// Until a CPU that was idle runs again after an interrupt. An estimate: the first idle state of
/// Xeons has an exit latency of one to two microseconds.
pub const IDLE_EXIT_NS: u64 = 1_500;
/// How long a task runs while others wait for its CPU: the base slice of Linux 6.6 on machines with
/// eight CPUs and more.
pub const SLICE_NS: u64 = 3_000_000;
/// Writing a page of a file into the page cache, without its content's way there. An estimate:
/// copying at 10 GB/s, and the page cache's own work.
pub const FILE_PAGE_NS: u64 = 900;
/// Copying one page between a socket buffer and a program, beside waiting for its lines: 32 bytes a
/// cycle, at 2 to 3 GHz.
pub const COPY_PAGE_NS: u64 = 60;
/// What a page that is sent takes longer than one that is received, beside the copy and its lines.
/// Messages of 64 KiB, 15 pages, between two cores of a virtual Xeon under 6.18, none recorded: the
/// median call that sends takes 11.1 microseconds, the one that receives 8.65, of which
/// [`RECEIVE_NS`] is 0.55 more. Copying alone takes programs on two such CPUs as long in either
/// direction, and with both ends on one CPU sending takes no longer: it is the kernel's data about
/// pages and charges that comes from the other CPU, of which the lab has no lines.
pub const SEND_PAGE_NS: u64 = 200;
/// A call that sends over a local socket, beside its pages: entry, locks, buffer heads. Measured
/// with messages of 64 bytes under 6.18 on two CPUs of a virtual Xeon (2026), the other
/// end being read on the other CPU by one that is awake.
pub const SEND_NS: u64 = 650;
/// The same for a call that receives. It is longer because the buffer's head comes from the other
/// CPU, and goes back to that one's slab.
pub const RECEIVE_NS: u64 = 1_200;
/// Waking a task on another CPU, for the one that does it: the search for a CPU, its run queue's
/// lock, the interrupt. An estimate: as [`ITEM_QUEUE_NS`], which is the same work.
pub const WAKE_NS: u64 = ITEM_QUEUE_NS;
