//! The rows.

use super::counter::Counter;
use crate::layout::Layout::{Linux6_1, Linux6_12, Linux6_14, Linux7};

/// These stand in two groups: of the whole machine up to 6.14, of each node since.
const STEAL_KSWAPD: &str = "pages freed by background reclaim";
const STEAL_DIRECT: &str = "pages freed by requests themselves";
const STEAL_FILE: &str = "pages freed by either";
const SCAN_KSWAPD: &str = "pages looked at by background reclaim";
const SCAN_DIRECT: &str = "pages looked at by requests themselves";
const SCAN_FILE: &str = "pages looked at by either";

/// See [`Group::ZonePages`](super::Group::ZonePages).
pub(super) const ZONE_PAGES: &[Counter] = &[
    Counter::level("free").means("pages free in the buddy"),
    Counter::level("boost")
        .means("pages added to all watermarks while fragmentation is worked off"),
    Counter::level("min").means("min watermark, with the boost"),
    Counter::level("low").means("low watermark, with the boost"),
    Counter::level("high").means("high watermark, with the boost"),
    Counter::level("promo").since(Linux6_12).means("promo watermark, with the boost"),
    Counter::level("spanned").means("pages from the first to the last, holes included"),
    Counter::level("present").means("pages without holes"),
    Counter::level("managed").means("pages given to the allocator"),
    Counter::level("cma"),
];

/// See [`Group::Pageset`](super::Group::Pageset).
pub(super) const PAGESET: &[Counter] = &[
    Counter::level("count").means("pages on the CPU's lists"),
    Counter::level("high").means("pages on the lists above which some go back"),
    Counter::level("batch").means("pages per refill, at first"),
    Counter::level("high_min").since(Linux6_14).means("least value of high"),
    Counter::level("high_max").since(Linux6_14).means("greatest value of high"),
];

/// See [`Group::ZoneTail`](super::Group::ZoneTail).
pub(super) const ZONE_TAIL: &[Counter] = &[
    Counter::level("node_unreclaimable"),
    Counter::level("start_pfn").means("first page frame"),
    Counter::level("reserved_highatomic")
        .since(Linux7)
        .means("pages in pageblocks kept for atomic requests"),
    Counter::level("free_highatomic")
        .since(Linux7)
        .means("free pages in pageblocks kept for atomic requests"),
];

/// See [`Group::Zone`](super::Group::Zone).
pub(super) const ZONE: &[Counter] = &[
    Counter::level("nr_free_pages").means("pages free in the buddy"),
    Counter::level("nr_free_pages_blocks")
        .since(Linux6_14)
        .means("pages free in blocks of a pageblock or more"),
    Counter::level("nr_zone_inactive_anon"),
    Counter::level("nr_zone_active_anon"),
    Counter::level("nr_zone_inactive_file"),
    Counter::level("nr_zone_active_file"),
    Counter::level("nr_zone_unevictable"),
    Counter::level("nr_zone_write_pending"),
    Counter::level("nr_mlock"),
    Counter::level("nr_bounce").until(Linux6_12),
    Counter::level("nr_zspages"),
    Counter::level("nr_free_cma"),
    Counter::level("nr_unaccepted").since(Linux6_12),
];

/// See [`Group::Numa`](super::Group::Numa).
pub(super) const NUMA: &[Counter] = &[
    Counter::total("numa_hit")
        .means("allocations from the zone's node, which was the preferred one"),
    Counter::total("numa_miss")
        .means("allocations from the zone's node, where another was preferred"),
    Counter::total("numa_foreign")
        .means("allocations that preferred the zone's node and got another"),
    Counter::total("numa_interleave"),
    Counter::total("numa_local").means("allocations by a CPU of the zone's node"),
    Counter::total("numa_other").means("allocations by a CPU of another node"),
];

/// See [`Group::Node`](super::Group::Node).
pub(super) const NODE: &[Counter] = &[
    Counter::level("nr_inactive_anon"),
    Counter::level("nr_active_anon"),
    Counter::level("nr_inactive_file").means("pages of caches not used lately"),
    Counter::level("nr_active_file").means("pages of caches used lately"),
    Counter::level("nr_unevictable"),
    Counter::level("nr_slab_reclaimable").means("pages of reclaimable objects"),
    Counter::level("nr_slab_unreclaimable"),
    Counter::level("nr_isolated_anon"),
    Counter::level("nr_isolated_file"),
    Counter::level("workingset_nodes"),
    Counter::total("workingset_refault_anon"),
    Counter::total("workingset_refault_file"),
    Counter::total("workingset_activate_anon"),
    Counter::total("workingset_activate_file"),
    Counter::total("workingset_restore_anon"),
    Counter::total("workingset_restore_file"),
    Counter::total("workingset_nodereclaim"),
    Counter::level("nr_anon_pages"),
    Counter::level("nr_mapped").means("pages of caches that are mapped"),
    Counter::level("nr_file_pages").means("pages of caches"),
    Counter::level("nr_dirty").means("pages of caches to be written first"),
    Counter::level("nr_writeback"),
    Counter::level("nr_writeback_temp").until(Linux6_12),
    Counter::level("nr_shmem"),
    Counter::level("nr_shmem_hugepages"),
    Counter::level("nr_shmem_pmdmapped"),
    Counter::level("nr_file_hugepages"),
    Counter::level("nr_file_pmdmapped"),
    Counter::level("nr_anon_transparent_hugepages"),
    Counter::total("nr_vmscan_write"),
    Counter::total("nr_vmscan_immediate_reclaim"),
    Counter::total("nr_dirtied"),
    Counter::total("nr_written"),
    Counter::total("nr_throttled_written"),
    Counter::level("nr_kernel_misc_reclaimable"),
    Counter::total("nr_foll_pin_acquired"),
    Counter::total("nr_foll_pin_released"),
    Counter::level("nr_vmalloc").since(Linux7),
    Counter::level("nr_kernel_stack"),
    Counter::level("nr_page_table_pages"),
    Counter::level("nr_sec_page_table_pages"),
    Counter::level("nr_iommu_pages").since(Linux6_12),
    Counter::level("nr_swapcached"),
    Counter::total("pgpromote_success"),
    Counter::total("pgpromote_candidate"),
    Counter::total("pgpromote_candidate_nrl").since(Linux6_14),
    Counter::total("pgdemote_kswapd").since(Linux6_12),
    Counter::total("pgdemote_direct").since(Linux6_12),
    Counter::total("pgdemote_khugepaged").since(Linux6_12),
    Counter::total("pgdemote_proactive").since(Linux6_14),
    Counter::total("pgsteal_kswapd").since(Linux7).means(STEAL_KSWAPD),
    Counter::total("pgsteal_direct").since(Linux7).means(STEAL_DIRECT),
    Counter::total("pgsteal_khugepaged").since(Linux7),
    Counter::total("pgsteal_proactive").since(Linux7),
    Counter::total("pgsteal_anon").since(Linux7),
    Counter::total("pgsteal_file").since(Linux7).means(STEAL_FILE),
    Counter::total("pgscan_kswapd").since(Linux7).means(SCAN_KSWAPD),
    Counter::total("pgscan_direct").since(Linux7).means(SCAN_DIRECT),
    Counter::total("pgscan_khugepaged").since(Linux7),
    Counter::total("pgscan_proactive").since(Linux7),
    Counter::total("pgscan_anon").since(Linux7),
    Counter::total("pgscan_file").since(Linux7).means(SCAN_FILE),
    Counter::total("pgrefill").since(Linux7),
    Counter::level("nr_hugetlb").since(Linux6_14),
    Counter::level("nr_balloon_pages").since(Linux6_14),
    Counter::level("nr_kernel_file_pages").since(Linux6_14),
    Counter::level("nr_gpu_active").since(Linux7),
    Counter::level("nr_gpu_reclaim").since(Linux7),
];

/// See [`Group::Limit`](super::Group::Limit).
pub(super) const LIMIT: &[Counter] = &[
    Counter::level("nr_dirty_threshold"),
    Counter::level("nr_dirty_background_threshold"),
    Counter::level("nr_memmap_pages").since(Linux6_12),
    Counter::level("nr_memmap_boot_pages").since(Linux6_12),
];

/// See [`Group::Event`](super::Group::Event).
pub(super) const EVENT: &[Counter] = &[
    Counter::total("pgpgin"),
    Counter::total("pgpgout"),
    Counter::total("pswpin"),
    Counter::total("pswpout"),
    Counter::total("pgalloc_dma").means("pages allocated from DMA zones"),
    Counter::total("pgalloc_dma32").means("pages allocated from DMA32 zones"),
    Counter::total("pgalloc_normal").means("pages allocated from Normal zones"),
    Counter::total("pgalloc_movable").means("pages allocated from Movable zones"),
    Counter::total("pgalloc_device").means("pages allocated from Device zones"),
    Counter::total("allocstall_dma").means("direct reclaims for DMA memory"),
    Counter::total("allocstall_dma32").means("direct reclaims for DMA32 memory"),
    Counter::total("allocstall_normal").means("direct reclaims for Normal memory"),
    Counter::total("allocstall_movable").means("direct reclaims for Movable memory"),
    Counter::total("allocstall_device").means("direct reclaims for Device memory"),
    Counter::total("pgskip_dma"),
    Counter::total("pgskip_dma32"),
    Counter::total("pgskip_normal"),
    Counter::total("pgskip_movable"),
    Counter::total("pgskip_device"),
    Counter::total("pgfree").means("pages freed"),
    Counter::total("pgactivate"),
    Counter::total("pgdeactivate"),
    Counter::total("pglazyfree"),
    Counter::total("pgfault"),
    Counter::total("pgmajfault"),
    Counter::total("pglazyfreed"),
    Counter::total("pgrefill").until(Linux6_14),
    Counter::total("pgreuse"),
    Counter::total("pgsteal_kswapd").until(Linux6_14).means(STEAL_KSWAPD),
    Counter::total("pgsteal_direct").until(Linux6_14).means(STEAL_DIRECT),
    Counter::total("pgdemote_kswapd").until(Linux6_1),
    Counter::total("pgdemote_direct").until(Linux6_1),
    Counter::total("pgsteal_khugepaged").since(Linux6_12).until(Linux6_14),
    Counter::total("pgsteal_proactive").since(Linux6_14).until(Linux6_14),
    Counter::total("pgscan_kswapd").until(Linux6_14).means(SCAN_KSWAPD),
    Counter::total("pgscan_direct").until(Linux6_14).means(SCAN_DIRECT),
    Counter::total("pgscan_khugepaged").since(Linux6_12).until(Linux6_14),
    Counter::total("pgscan_proactive").since(Linux6_14).until(Linux6_14),
    Counter::total("pgscan_direct_throttle")
        .means("requests that waited for background reclaim first"),
    Counter::total("pgscan_anon").until(Linux6_14),
    Counter::total("pgscan_file").until(Linux6_14).means(SCAN_FILE),
    Counter::total("pgsteal_anon").until(Linux6_14),
    Counter::total("pgsteal_file").until(Linux6_14).means(STEAL_FILE),
    Counter::total("zone_reclaim_success")
        .since(Linux6_12)
        .means("node reclaims that freed enough"),
    Counter::total("zone_reclaim_failed").means("node reclaims that freed too little"),
    Counter::total("pginodesteal"),
    Counter::total("slabs_scanned").means("objects of caches looked at"),
    Counter::total("kswapd_inodesteal"),
    Counter::total("kswapd_low_wmark_hit_quickly")
        .means("first naps of background reclaim that a request ended"),
    Counter::total("kswapd_high_wmark_hit_quickly")
        .means("sleeps of background reclaim that did not come"),
    Counter::total("pageoutrun").means("runs of background reclaim"),
    Counter::total("pgrotated"),
    Counter::total("drop_pagecache"),
    Counter::total("drop_slab"),
    Counter::total("oom_kill").means("calls of the last resort"),
    Counter::total("numa_pte_updates"),
    Counter::total("numa_huge_pte_updates"),
    Counter::total("numa_hint_faults"),
    Counter::total("numa_hint_faults_local"),
    Counter::total("numa_pages_migrated"),
    Counter::total("pgmigrate_success"),
    Counter::total("pgmigrate_fail"),
    Counter::total("thp_migration_success"),
    Counter::total("thp_migration_fail"),
    Counter::total("thp_migration_split"),
    Counter::total("compact_migrate_scanned"),
    Counter::total("compact_free_scanned"),
    Counter::total("compact_isolated"),
    Counter::total("compact_stall"),
    Counter::total("compact_fail"),
    Counter::total("compact_success"),
    Counter::total("compact_daemon_wake"),
    Counter::total("compact_daemon_migrate_scanned"),
    Counter::total("compact_daemon_free_scanned"),
    Counter::total("htlb_buddy_alloc_success"),
    Counter::total("htlb_buddy_alloc_fail"),
    Counter::total("cma_alloc_success").since(Linux7),
    Counter::total("cma_alloc_fail").since(Linux7),
    Counter::total("unevictable_pgs_culled"),
    Counter::total("unevictable_pgs_scanned"),
    Counter::total("unevictable_pgs_rescued"),
    Counter::total("unevictable_pgs_mlocked"),
    Counter::total("unevictable_pgs_munlocked"),
    Counter::total("unevictable_pgs_cleared"),
    Counter::total("unevictable_pgs_stranded"),
    Counter::total("thp_fault_alloc"),
    Counter::total("thp_fault_fallback"),
    Counter::total("thp_fault_fallback_charge"),
    Counter::total("thp_collapse_alloc"),
    Counter::total("thp_collapse_alloc_failed"),
    Counter::total("thp_file_alloc"),
    Counter::total("thp_file_fallback"),
    Counter::total("thp_file_fallback_charge"),
    Counter::total("thp_file_mapped"),
    Counter::total("thp_split_page"),
    Counter::total("thp_split_page_failed"),
    Counter::total("thp_deferred_split_page"),
    Counter::total("thp_underused_split_page").since(Linux6_12),
    Counter::total("thp_split_pmd"),
    Counter::total("thp_scan_exceed_none_pte"),
    Counter::total("thp_scan_exceed_swap_pte"),
    Counter::total("thp_scan_exceed_share_pte"),
    Counter::total("thp_split_pud"),
    Counter::total("thp_zero_page_alloc"),
    Counter::total("thp_zero_page_alloc_failed"),
    Counter::total("thp_swpout"),
    Counter::total("thp_swpout_fallback"),
    Counter::total("balloon_inflate"),
    Counter::total("balloon_deflate"),
    Counter::total("balloon_migrate"),
    Counter::total("swap_ra"),
    Counter::total("swap_ra_hit"),
    Counter::total("swpin_zero").since(Linux6_12),
    Counter::total("swpout_zero").since(Linux6_12),
    Counter::total("ksm_swpin_copy"),
    Counter::total("cow_ksm"),
    Counter::total("zswpin"),
    Counter::total("zswpout"),
    Counter::total("zswpwb").since(Linux6_12),
    Counter::total("direct_map_level2_splits"),
    Counter::total("direct_map_level3_splits"),
    Counter::total("direct_map_level2_collapses").since(Linux6_14),
    Counter::total("direct_map_level3_collapses").since(Linux6_14),
];

/// See [`Group::Memory`](super::Group::Memory).
pub(super) const MEMORY: &[Counter] = &[
    Counter::level("MemTotal").means("memory given to the allocator, in KiB"),
    Counter::level("MemFree").means("memory free in the buddy, in KiB"),
    Counter::level("MemUsed").means("the difference of the two, in KiB"),
    Counter::level("SwapCached"),
    Counter::level("Active"),
    Counter::level("Inactive"),
    Counter::level("Active(anon)"),
    Counter::level("Inactive(anon)"),
    Counter::level("Active(file)"),
    Counter::level("Inactive(file)"),
    Counter::level("Unevictable"),
    Counter::level("Mlocked"),
    Counter::level("Dirty"),
    Counter::level("Writeback"),
    Counter::level("FilePages"),
    Counter::level("Mapped"),
    Counter::level("AnonPages"),
    Counter::level("Shmem"),
    Counter::level("KernelStack"),
    Counter::level("PageTables"),
    Counter::level("SecPageTables"),
    Counter::level("NFS_Unstable"),
    Counter::level("Bounce"),
    Counter::level("WritebackTmp"),
    Counter::level("KReclaimable"),
    Counter::level("Slab"),
    Counter::level("SReclaimable"),
    Counter::level("SUnreclaim"),
    Counter::level("AnonHugePages"),
    Counter::level("ShmemHugePages"),
    Counter::level("ShmemPmdMapped"),
    Counter::level("FileHugePages"),
    Counter::level("FilePmdMapped"),
    Counter::level("Unaccepted").since(Linux6_12),
    Counter::level("Balloon").since(Linux7),
    Counter::level("GPUActive").since(Linux7),
    Counter::level("GPUReclaim").since(Linux7),
    Counter::level("HugePages_Total"),
    Counter::level("HugePages_Free"),
    Counter::level("HugePages_Surp"),
];

/// See [`Group::Own`](super::Group::Own).
pub(super) const OWN: &[Counter] = &[
    Counter::level("cached_pages").means("pages on the lists of all CPUs"),
    Counter::level("stat_threshold")
        .means("pages by which a CPU's delta may differ from the counter"),
    Counter::total("allocs").means("allocations"),
    Counter::total("allocated_pages").means("pages allocated"),
    Counter::total("freed_pages").means("pages freed"),
    Counter::total("refilled_pages").means("pages moved from the buddy to lists"),
    Counter::total("refills").means("zone-lock holds that refilled lists"),
    Counter::total("drained_pages").means("pages moved from lists to the buddy"),
    Counter::total("drains").means("zone-lock holds that drained lists"),
    Counter::total("direct_pages").means("pages allocated from the buddy past the lists"),
    Counter::total("direct_allocs").means("blocks allocated from the buddy past the lists"),
    Counter::total("double_frees")
        .means("copies of blocks dropped because they were freed twice at once"),
    Counter::total("overflows").means("drains because a list was full before its limit"),
    Counter::total("lock_holds").means("times the zone lock was taken"),
    Counter::total("lock_contended").means("times the zone lock was found taken"),
];

/// See [`Group::Whole`](super::Group::Whole).
pub(super) const WHOLE: &[Counter] = &[
    Counter::total("slow_paths").means("requests that the first walk of the zones did not serve"),
    Counter::total("failures").means("requests refused"),
    Counter::total("whole_drains").means("times the lists of all CPUs were emptied"),
    Counter::total("claims").means("pageblocks claimed from another migratetype"),
    Counter::total("steals").means("blocks stolen from another migratetype"),
    Counter::total("misuses").means("blocks that could not be freed where no caller can be told"),
];

/// See [`Group::Order`](super::Group::Order).
pub(super) const ORDER: &[Counter] =
    &[Counter::level("free_blocks").means("blocks free in the buddy")];
