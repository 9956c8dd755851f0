//! What a kernel does around the page allocator, in nanoseconds of a CPU that has its core to
//! itself. The same on all machines: what differs between them goes into their other figures.

use crate::provenance::{Provenance, cells, given};

given! {
    /// A page fault that maps a new page, without the allocator and without zeroing it: entry, the
    /// search for the mapping, the charge, the page table, the LRU. An estimate: what lmbench's
    /// `lat_pagefault` gives on servers, 0.2 to 0.6 microseconds, is without charge and LRU.
    pub FAULT_NS: u64 = 420,
        Provenance::seen(
            "lmbench's lat_pagefault gives 200 to 600 ns on servers, without charge and LRU",
            cells!["deferred-init"],
        );
    /// Unmapping one page at exit, without the allocator.
    pub UNMAP_NS: u64 = 120,
        Provenance::seen("a quarter of a fault", cells!["deferred-init"]);
    /// A process' life around its pages: fork, exec, reading its files out of the page cache, exit
    /// and wait. An estimate; small processes take about this long in public benchmarks (lmbench).
    pub PROCESS_NS: u64 = 400_000,
        Provenance::seen(
            "small processes take about this long in public benchmarks (lmbench)",
            cells!["deferred-init"],
        );
    /// Queueing a work item on another CPU and waking its worker there. An estimate: half of the
    /// switch that it brings about.
    pub ITEM_QUEUE_NS: u64 = 1_000,
        Provenance::estimated("half of the switch that it brings about");
    /// What a work item takes from the CPU that runs it, beside the work: a switch to the worker
    /// and one back, each of which takes about a microsecond between small processes (lmbench,
    /// `lat_ctx`, servers of the last fifteen years).
    pub ITEM_RUN_NS: u64 = 2_000,
        Provenance::sourced(
            "lmbench, lat_ctx: about a microsecond for each of two switches between small \
             processes",
        );
    /// Copying a page into or out of the page cache, with the search for it and its file system: an
    /// estimate; a core of 2011 copies 4 to 5 GB/s through its caches.
    pub WRITE_PAGE_NS: u64 = 1000,
        Provenance::estimated("a core of 2011 copies 4 to 5 GB/s through its caches");
    /// A look of reclaim at one page of a list: isolating it, its lock, its references, putting it
    /// back. An estimate.
    pub LOOK_PAGE_NS: u64 = 60,
        Provenance::estimated("a few atomic operations on lines that are at hand");
    /// Taking a page out of its file, without the allocator. An estimate.
    pub EVICT_PAGE_NS: u64 = 150,
        Provenance::estimated("a search in the file's tree, and two looks");
    /// A switch from one task to the next. An estimate: lmbench's context switches between small
    /// processes of one core take one to two microseconds on servers of these years.
    pub SWITCH_NS: u64 = 1_200,
        Provenance::sourced(
            "lmbench, lat_ctx: one to two microseconds between small processes of one core, \
             servers of these years",
        );
    /// Until a CPU that was idle runs again after an interrupt. An estimate: the first idle state
    /// of Xeons has an exit latency of one to two microseconds.
    pub IDLE_EXIT_NS: u64 = 1_500,
        Provenance::sourced(
            "exit latency of the first idle state of Xeons (intel_idle): one to two microseconds",
        );
    /// How long a task runs while others wait for its CPU: the base slice of Linux 6.6 on machines
    /// with eight CPUs and more.
    pub SLICE_NS: u64 = 3_000_000,
        Provenance::sourced("sched_base_slice_ns of Linux 6.6 on machines of eight CPUs and more");
    /// Writing a page of a file into the page cache, without its content's way there. An estimate:
    /// copying at 10 GB/s, and the page cache's own work.
    pub FILE_PAGE_NS: u64 = 900,
        Provenance::estimated("copying at 10 GB/s, and the page cache's own work");
    /// Copying one page between a socket buffer and a program, beside waiting for its lines: 32
    /// bytes a cycle, at 2 to 3 GHz.
    pub COPY_PAGE_NS: u64 = 60,
        Provenance::estimated("32 bytes a cycle, at 2 to 3 GHz");
    /// What a page that is sent takes longer than one that is received, beside the copy and its
    /// lines. Messages of 64 KiB, 15 pages, between two cores of a virtual Xeon under 6.18, none
    /// recorded: the median call that sends takes 11.1 microseconds, the one that receives 8.65, of
    /// which [`RECEIVE_NS`] is 0.55 more. Copying alone takes programs on two such CPUs as long in
    /// either direction, and with both ends on one CPU sending takes no longer: it is the kernel's
    /// data about pages and charges that comes from the other CPU, of which the lab has no lines.
    pub SEND_PAGE_NS: u64 = 200,
        Provenance::measured(
            "messages of 64 KiB between two cores of a virtual Xeon, Linux 6.18, 2026",
        );
    /// A call that sends over a local socket, beside its pages: entry, locks, buffer heads.
    /// Measured with messages of 64 bytes under 6.18 on two CPUs of a virtual Xeon (2026), the
    /// other end being read on the other CPU by one that is awake.
    pub SEND_NS: u64 = 650,
        Provenance::measured(
            "messages of 64 bytes between two CPUs of a virtual Xeon, Linux 6.18, 2026",
        );
    /// The same for a call that receives. It is longer because the buffer's head comes from the
    /// other CPU, and goes back to that one's slab.
    pub RECEIVE_NS: u64 = 1_200,
        Provenance::measured(
            "messages of 64 bytes between two CPUs of a virtual Xeon, Linux 6.18, 2026",
        );
    /// Waking a task on another CPU, for the one that does it: the search for a CPU, its run
    /// queue's lock, the interrupt. An estimate: as [`ITEM_QUEUE_NS`], which is the same work.
    pub WAKE_NS: u64 = ITEM_QUEUE_NS,
        Provenance::estimated("as ITEM_QUEUE_NS, which is the same work");
}
