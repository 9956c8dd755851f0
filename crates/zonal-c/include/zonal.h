/* Zonal: pages of 4 KiB to 4 MiB, and ranges of any size, from the NUMA node of the caller.
 * Made from the library's sources by cbindgen; zonal(3) is the introduction. */

#ifndef ZONAL_H
#define ZONAL_H

/* With ZONAL_DECLARATIONS there are types and functions only, no includes and nothing inline, for
 * languages that read declarations of C: cc -E -P -DZONAL_DECLARATIONS zonal.h */
#ifndef ZONAL_DECLARATIONS
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#endif

/* Contract, by number. Each function names the numbers that it has under "Safety". What a check of
 * O(1) can find is refused with a code and a sentence (zonal_last_error) instead.
 * C-1  A handle is null, or came from the function that makes it; while a call with it runs, no
 *      other thread destroys it. A destroyed handle is found as such.
 * C-2  A pointer to a struct, a buffer or an array is null, or valid for the length that its size
 *      field or the next argument names, and no other thread writes to it.
 * C-3  What is freed is not in use any more.
 * C-4  A string is null, or ends with a zero byte.
 * C-5  A callback may run on any thread, with its data, until the pool is destroyed or the consumer
 *      is removed. It returns: it does not end by longjmp or an exception.
 * C-6  Memory that the program brings is mapped, readable, writable and used by nobody else, from
 *      zonal_pool_create to its release; a file behind it does not shrink. Another process uses
 *      only blocks that were handed to it. A forked child that shares it does not use the pool.
 *      A pool that is refused because another one has the memory does not release it. */

// No node of its own: the running CPU's.
#define ZONAL_ANY_NODE -1

// Memory is faulted in at once, by one thread.
#define ZONAL_PREFAULT 1

// Memory is faulted in at once, by a thread on each CPU of each node.
#define ZONAL_PREFAULT_PARALLEL 2

// Freed pages are filled with a pattern, which is looked for when they are handed out. Slow.
#define ZONAL_POISON 4

// No restartable sequences: a lock per CPU.
#define ZONAL_NO_RSEQ 8

// No threads that reclaim in the background.
#define ZONAL_NO_BACKGROUND 16

// No refresh thread: call zonal_refresh.
#define ZONAL_NO_REFRESH 32

// Memory comes online while the pool is used already, by a thread per node.
#define ZONAL_DEFERRED 64

// Misuse that no call can report ends the process, after a message.
#define ZONAL_ABORT_ON_MISUSE 128

// Base pages, or the system's default.
#define ZONAL_BACKING_BASE 0

// Transparent huge pages where the kernel can.
#define ZONAL_BACKING_TRANSPARENT 1

// Reserved pages of 2 MiB, or transparent ones, with a notice.
#define ZONAL_BACKING_HUGE_2M 2

// The kernel prefers the node, but may use another.
#define ZONAL_BIND_ADVISORY 0

// Memory is not bound to nodes.
#define ZONAL_BIND_NONE 1

// The node or nothing: a pool that cannot be bound is not made.
#define ZONAL_BIND_STRICT 2

// Ordinary use: may wait and reclaim.
#define ZONAL_GFP_KERNEL 3264

// Cannot wait; may use part of the reserve.
#define ZONAL_GFP_ATOMIC 2080

// Cannot wait.
#define ZONAL_GFP_NOWAIT 10240

// Added: the bytes are zero.
#define ZONAL_GFP_ZERO 256

// Added: the pages can be moved, for zones and pageblocks of such pages.
#define ZONAL_GFP_MOVABLE 8

// Added: the pages can be dropped under pressure.
#define ZONAL_GFP_RECLAIMABLE 16

// Added: one attempt at reclaim.
#define ZONAL_GFP_NORETRY 65536

// Added: tries hard, but fails rather than call the last resort.
#define ZONAL_GFP_RETRY_MAYFAIL 16384

// Added: waits for memory until there is some.
#define ZONAL_GFP_NOFAIL 32768

// Added: from the node that is asked for, or not at all.
#define ZONAL_GFP_THISNODE 2097152

// Added: only memory of a DMA zone, in a pool that has one.
#define ZONAL_GFP_DMA 1

// Added: only memory of a DMA32 zone, or below, in a pool that has one.
#define ZONAL_GFP_DMA32 4

// Returned by scan: it can do nothing now, for instance because its lock is taken.
#define ZONAL_SCAN_STOP UINT64_MAX

// Objects that cost nothing to make again.
#define ZONAL_SEEKS_NONE UINT32_MAX

// Orders that a block has: 0 to 10.
#define ZONAL_ORDERS 11

// The layout of the kernel that the pool's policy is of.
#define ZONAL_LAYOUT_OF_POLICY 0

// Linux 6.1 to 6.11.
#define ZONAL_LAYOUT_6_1 1

// Linux 6.12 and 6.13.
#define ZONAL_LAYOUT_6_12 2

// Linux 6.14 to 6.19.
#define ZONAL_LAYOUT_6_14 3

// Linux 7.0 and later.
#define ZONAL_LAYOUT_7_0 4

// What a call returns, or leaves in zonal_last_error_code. 0 is success.
typedef enum zonal_error {
    // Success.
    ZONAL_OK = 0,
    // The handle is null, destroyed, or no handle of this kind.
    ZONAL_E_HANDLE = 1,
    // An argument or an option has a value that cannot be.
    ZONAL_E_ARGUMENT = 2,
    // A struct's size field is not that of any version of the struct.
    ZONAL_E_STRUCT = 3,
    // No zone may serve the request: a watermark, or no free block that large.
    ZONAL_E_NO_MEMORY = 4,
    // The operating system refused.
    ZONAL_E_SYSTEM = 5,
    // An address that is not at the start of a page.
    ZONAL_E_UNALIGNED = 6,
    // An address outside of the pool's memory, such as another pool's block.
    ZONAL_E_FOREIGN = 7,
    // The block is free already.
    ZONAL_E_DOUBLE_FREE = 8,
    // The block was handed out with another order.
    ZONAL_E_WRONG_ORDER = 9,
    // No block that can be freed like this starts there.
    ZONAL_E_NOT_A_BLOCK = 10,
    // A page of the range that was asked for is not free.
    ZONAL_E_IN_THE_WAY = 11,
    // Blocks are handed out, a consumer is registered, or another thread changes the same thing.
    ZONAL_E_BUSY = 12,
    // Not from inside a callback.
    ZONAL_E_INSIDE = 13,
    // The request failed because the program asked for it (zonal_fail_alloc).
    ZONAL_E_INJECTED = 14,
    // A page's metadata was overwritten, or the pool breaks an invariant.
    ZONAL_E_CORRUPT = 15,
    // A defect of the library: it panicked, and the panic ended here.
    ZONAL_E_INTERNAL = 16
} zonal_error;

// What zonal_text writes.
typedef enum zonal_text_kind {
    // /proc/zoneinfo.
    ZONAL_TEXT_ZONEINFO = 0,
    // /proc/buddyinfo.
    ZONAL_TEXT_BUDDYINFO = 1,
    // /proc/pagetypeinfo.
    ZONAL_TEXT_PAGETYPEINFO = 2,
    // /proc/vmstat.
    ZONAL_TEXT_VMSTAT = 3,
    // numastat of a node.
    ZONAL_TEXT_NUMASTAT = 4,
    // meminfo of a node.
    ZONAL_TEXT_NODE_MEMINFO = 5,
    // vmstat of a node.
    ZONAL_TEXT_NODE_VMSTAT = 6,
    // All figures, for Prometheus and the like (OpenMetrics 1.0).
    ZONAL_TEXT_OPENMETRICS = 7,
    // Where the pool's bytes are, a line for each reason.
    ZONAL_TEXT_HELD = 8,
    // What the operating system did not grant, a line each.
    ZONAL_TEXT_NOTICES = 9,
    // "rseq", or "lock" with the reason.
    ZONAL_TEXT_MODE = 10,
    // What each registered consumer did, a line each: its name, a colon, and figures.
    ZONAL_TEXT_CONSUMERS = 11
} zonal_text_kind;

// A consumer that is registered.
typedef struct zonal_consumer zonal_consumer;

// A pool of pages, shared by all threads of the process.
typedef struct zonal_pool zonal_pool;

// A zone of a pool that is to have others than one Normal zone per node.
typedef struct zonal_zone_size {
    // Node.
    uint32_t node;
    // 0 DMA, 1 DMA32, 2 Normal, 3 Movable, 4 Device.
    uint32_t kind;
    // Bytes, a multiple of 4096.
    uint64_t bytes;
} zonal_zone_size;

// A stretch of memory that the program brings. The first begins at a multiple of 4 MiB, each
// other where the one before it ends; nodes ascend.
typedef struct zonal_memory {
    // First byte.
    void *start;
    // Bytes, a multiple of 4096.
    uint64_t bytes;
    // The node that the bytes are on, by position.
    uint32_t node;
    // Zero.
    uint32_t reserved;
} zonal_memory;

// Called when nobody uses brought memory any more: the program may unmap it. Also called where
// zonal_pool_create fails, unless it could not read the options: null, or of a wrong size.
typedef void (*zonal_release_fn)(void *data);

// Called when pages cannot be freed and no call can report it.
typedef void (*zonal_misuse_fn)(void *data, void *start, const char *text);

// Called by a request that would not give up, when everything was reclaimed: frees memory by any
// means. Not zero: the request is tried again. 0: it is refused.
typedef int32_t (*zonal_out_of_memory_fn)(void *data, uint32_t order, uint32_t gfp, int32_t node);

// Called each time that another stretch of memory is faulted in, one call at a time.
typedef void (*zonal_prefault_fn)(void *data, uint64_t done, uint64_t total);

// What a pool is to be. Begin with zonal_options_init, which sets the size and zeroes the rest:
// zero is the default of each field. Only the memory is asked for: one of bytes, zones and memory.
typedef struct zonal_options {
    // sizeof(zonal_options).
    uint32_t size;
    // ZONAL_PREFAULT and so on.
    uint32_t flags;
    // Bytes of the pool, rounded up so that each node gets whole 4 MiB blocks.
    uint64_t bytes;
    // Bytes that may be in use at once. 0: all.
    uint64_t budget;
    // ZONAL_BACKING_*.
    uint32_t backing;
    // ZONAL_BIND_*.
    uint32_t binding;
    // Pretends that the machine has this many nodes, 1 to 256. 0: as it is.
    uint32_t fake_nodes;
    // With fake_nodes. 0: the first CPUs to the first node. 1: CPU n to node n modulo the nodes.
    uint32_t fake_cpus;
    // Zones in place of bytes, ascending by node, then kind; zones_len of them.
    const struct zonal_zone_size *zones;
    // Number of zones.
    size_t zones_len;
    // Memory that the program brings, in place of bytes and zones; memory_len ranges (C-6).
    const struct zonal_memory *memory;
    // Number of ranges.
    size_t memory_len;
    // Called when brought memory may be unmapped. Never where another pool still has a part of it.
    zonal_release_fn release;
    // For release.
    void *release_data;
    // Name of a policy ("zonal", "linux-6.18"), with changed values behind it:
    // "linux-6.18,watermark.boost_factor=0". Null: "zonal".
    const char *policy;
    // Milliseconds between two runs of the refresh thread. 0: 1000.
    uint64_t refresh_ms;
    // Bytes a second that the refresh thread returns to the operating system. 0: none.
    uint64_t trim_rate;
    // Called about misuse that no call can report. Null: a line on stderr.
    zonal_misuse_fn misuse;
    // For misuse.
    void *misuse_data;
    // Called when a request finds nothing.
    zonal_out_of_memory_fn out_of_memory;
    // For out_of_memory.
    void *out_of_memory_data;
    // Called with the progress of prefault.
    zonal_prefault_fn prefaulted;
    // For prefaulted.
    void *prefaulted_data;
    // Each request of this number fails on purpose, for tests; zonal_fail_alloc changes it later.
    // 0: the pool has no such requests, and all of its speed. UINT64_MAX: none yet.
    uint64_t fail_every;
} zonal_options;

// A request for pages in a row. Begin with zonal_range_request_init.
typedef struct zonal_range_request {
    // sizeof(zonal_range_request).
    uint32_t size;
    // ZONAL_GFP_KERNEL and so on.
    uint32_t gfp;
    // Pages, exactly as many as are handed out.
    uint64_t pages;
    // The first page is at a multiple of this power of two, in pages: its address up to 1024
    // (4 MiB), and above that its place in the pool. 0 or 1: anywhere.
    uint64_t align;
    // Node to prefer, or ZONAL_ANY_NODE.
    int32_t node;
    // Zero.
    uint32_t reserved;
} zonal_range_request;

// Returns how many objects could be freed now. Called often.
typedef uint64_t (*zonal_count_fn)(void *data, int32_t node);

// Looks at as many objects as it is asked to, and frees what it can. Returns how many it freed, or
// ZONAL_SCAN_STOP; it may write to scanned how many it looked at, if those are others than it was
// asked to. by: 0 in the background, 1 a request that found nothing, 2 one that avoids a far node.
typedef uint64_t (*zonal_scan_fn)(void *data,
                                  uint64_t objects,
                                  int32_t node,
                                  uint32_t by,
                                  uint64_t *scanned);

// A cache of objects. Begin with zonal_shrinker_init.
typedef struct zonal_shrinker {
    // sizeof(zonal_shrinker).
    uint32_t size;
    // How costly it is to make an object again: a pass looks at 4 / seeks of what it would of
    // pages. 0: 2. ZONAL_SEEKS_NONE: nothing, and a pass takes half.
    uint32_t seeks;
    // Its name in reports; copied.
    const char *name;
    // Counts.
    zonal_count_fn count;
    // Frees.
    zonal_scan_fn scan;
    // For both.
    void *data;
    // Objects to ask for at a time. 0: 128.
    uint64_t batch;
    // Bytes of the pool that an object takes. 0: a page.
    uint64_t object_bytes;
    // 1: count and scan know which node an object is on. 0: they are asked as node 0.
    uint32_t node_aware;
    // Zero.
    uint32_t reserved;
} zonal_shrinker;

// A pool.
typedef struct zonal_pool_info {
    // sizeof(zonal_pool_info).
    uint32_t size;
    // 1: restartable sequences; 0: a lock per CPU (zonal_text(ZONAL_TEXT_MODE) says why).
    uint32_t uses_rseq;
    // First byte. The place of a page is its address minus this.
    const void *base;
    // Bytes of memory.
    uint64_t bytes;
    // Bytes of metadata, as reserved.
    uint64_t metadata_bytes;
    // Bytes that may be in use at once.
    uint64_t budget;
    // Pages not handed out: free ones and those on per-CPU lists.
    uint64_t free_pages;
    // Bytes returned to the operating system so far.
    uint64_t trimmed_bytes;
    // Writes to freed pages found so far (ZONAL_POISON).
    uint64_t poison_hits;
    // Blocks that could not be freed where no call can report it.
    uint64_t misuses;
    // Requests that could have failed on purpose, and those that did.
    uint64_t fail_asked;
    // Those that did.
    uint64_t failed;
    // Nodes.
    uint32_t nodes;
    // Zones.
    uint32_t zones;
    // CPUs that have lists.
    uint32_t cpus;
    // 1: memory is still coming online (ZONAL_DEFERRED).
    uint32_t is_growing;
} zonal_pool_info;

// NUMA events.
typedef struct zonal_numa_events {
    // Allocations from the preferred node.
    uint64_t hit;
    // Allocations from another node than preferred.
    uint64_t miss;
    // Allocations that preferred this node and were served by another.
    uint64_t foreign;
    // Allocations by a CPU of the node.
    uint64_t local;
    // Allocations by a CPU of another node.
    uint64_t other;
} zonal_numa_events;

// A node.
typedef struct zonal_node_stats {
    // sizeof(zonal_node_stats).
    uint32_t size;
    // CPUs of the node.
    uint32_t cpus;
    // 1 if it has memory.
    uint32_t has_memory;
    // Zero.
    uint32_t reserved;
    // Pages that its memory to come has.
    uint64_t left_to_grow;
    // Events.
    struct zonal_numa_events numa;
} zonal_node_stats;

// A zone.
typedef struct zonal_zone_stats {
    // sizeof(zonal_zone_stats).
    uint32_t size;
    // Node.
    uint32_t node;
    // 0 DMA, 1 DMA32, 2 Normal, 3 Movable, 4 Device.
    uint32_t kind;
    // Zero.
    uint32_t reserved;
    // Pages given to the allocator.
    uint64_t managed_pages;
    // Watermarks, in pages.
    uint64_t min;
    // Below it the background reclaimer is woken.
    uint64_t low;
    // Above it the background reclaimer sleeps.
    uint64_t high;
    // Free pages in the buddy, exact.
    uint64_t free_pages;
    // Free blocks of each order.
    uint64_t free_blocks[ZONAL_ORDERS];
    // Pages on per-CPU lists and in depots.
    uint64_t cached_pages;
    // Those in depots.
    uint64_t depot_pages;
    // Allocations.
    uint64_t allocs;
    // Pages allocated.
    uint64_t allocated_pages;
    // Pages freed.
    uint64_t freed_pages;
    // Pages moved to per-CPU lists.
    uint64_t refilled_pages;
    // Pages moved from per-CPU lists.
    uint64_t drained_pages;
    // Copies of blocks dropped because they were freed twice at the same time.
    uint64_t double_frees;
    // Times the zone lock was taken.
    uint64_t lock_holds;
    // Times the zone lock was found taken.
    uint64_t lock_contended;
    // Events.
    struct zonal_numa_events numa;
} zonal_zone_stats;

// Where a pool's bytes are; each has exactly one line.
typedef struct zonal_held {
    // sizeof(zonal_held).
    uint32_t size;
    // Zero.
    uint32_t reserved;
    // Handed out, to others than registered consumers.
    uint64_t users;
    // Handed out to registered consumers, as they say.
    uint64_t consumers;
    // On per-CPU lists.
    uint64_t lists;
    // In depots.
    uint64_t depots;
    // Free, and in memory.
    uint64_t free_resident;
    // Free, and not in memory.
    uint64_t free_absent;
    // Kept out of use by the budget.
    uint64_t withheld;
    // Not online yet, or in transit between lists.
    uint64_t elsewhere;
    // Metadata, as reserved.
    uint64_t metadata;
} zonal_held;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The code of the last call of this thread that failed; ZONAL_OK if none did. A call that
// succeeds does not change it.
int32_t zonal_last_error_code(void);

// What went wrong in the last call of this thread that failed: where, what was expected and what
// to do, in English. Never null; valid until the thread's next call of this library that fails.
const char *zonal_last_error(void);

// A code in words. Never null, and valid for ever.
const char *zonal_strerror(int32_t code);

// Makes a pool. Null, with the reason in zonal_last_error, if the options cannot be or the
// operating system refuses. What it did not grant, such as huge pages, is in
// zonal_text(ZONAL_TEXT_NOTICES).
//
// # Safety
// C-2, C-4, C-5, C-6.
struct zonal_pool *zonal_pool_create(const struct zonal_options *options);

// Ends a pool whose pages are all free, and returns its memory. ZONAL_E_BUSY, with nothing
// changed, while blocks are handed out or consumers are registered; ZONAL_E_INSIDE from inside a
// callback.
//
// # Safety
// C-1.
int32_t zonal_pool_destroy(struct zonal_pool *pool);

// Ends a pool with all blocks that are handed out: their memory is unmapped. ZONAL_E_BUSY while
// consumers are registered; ZONAL_E_INSIDE from inside a callback.
//
// # Safety
// C-1; C-3 for all blocks of the pool.
int32_t zonal_pool_discard(struct zonal_pool *pool);

// A page of 4 KiB for ordinary use, from the running CPU's node. Null if it is refused.
//
// # Safety
// C-1.
void *zonal_alloc_page(struct zonal_pool *pool);

// Frees a page. An address that is not that of a page in use is refused.
//
// # Safety
// C-1, C-3.
int32_t zonal_free_page(struct zonal_pool *pool, void *page);

// A block of 2^order pages, 4 KiB to 4 MiB (order 0 to 10), aligned to its size, with the rights
// in gfp: ZONAL_GFP_KERNEL and so on. Null if it is refused. Its bytes are the last owner's, or
// zero, unless gfp asks for zeroes.
//
// # Safety
// C-1.
void *zonal_alloc(struct zonal_pool *pool, uint32_t order, uint32_t gfp);

// As zonal_alloc, from a node of the caller's choice, or ZONAL_ANY_NODE.
//
// # Safety
// C-1.
void *zonal_alloc_on(struct zonal_pool *pool, uint32_t order, uint32_t gfp, int32_t node);

// Frees a block of 2^order pages. A block that is free already, another pool's, of another order,
// or no block at all is refused, and nothing is changed. Two threads that free one block within
// the same few nanoseconds may both succeed where restartable sequences are used; the block is
// then handed out once.
//
// # Safety
// C-1, C-3.
int32_t zonal_free(struct zonal_pool *pool, void *start, uint32_t order);

// A block from this CPU's list, or null, without a reason, if that would take a lock. For signal
// handlers.
//
// # Safety
// C-1.
void *zonal_try_alloc(struct zonal_pool *pool, uint32_t order);

// Frees a block if that needs no lock: 1. 0, and nothing done, otherwise. For signal handlers.
//
// # Safety
// C-1; C-3 if it returns 1.
int32_t zonal_try_free(struct zonal_pool *pool, void *start, uint32_t order);

// Fills pages[0] to pages[len - 1] from the front with pages of 4 KiB. Returns how many there are;
// fewer than len only if there are no more, 0 with the reason in zonal_last_error.
//
// # Safety
// C-1, C-2.
size_t zonal_alloc_bulk(struct zonal_pool *pool, uint32_t gfp, void **pages, size_t len);

// Frees len blocks of 2^order pages. Returns how many were freed, from the front; if fewer than
// len, zonal_last_error says why the next was not. The rest is still the caller's.
//
// # Safety
// C-1, C-2, C-3.
size_t zonal_free_bulk(struct zonal_pool *pool, void *const *pages, size_t len, uint32_t order);

// Exactly pages pages in a row for ordinary use, not rounded up. Null if they are refused.
//
// # Safety
// C-1.
void *zonal_range_alloc(struct zonal_pool *pool, uint64_t pages);

// As zonal_range_alloc, with alignment, rights and a node of the caller's choice, far above 4 MiB
// too.
//
// # Safety
// C-1, C-2.
void *zonal_range_alloc_with(struct zonal_pool *pool, const struct zonal_range_request *request);

// The pages pages from start on, an address in the pool's memory: ZONAL_OK, or ZONAL_E_IN_THE_WAY
// with the first page that cannot be had.
//
// # Safety
// C-1.
int32_t zonal_range_alloc_at(struct zonal_pool *pool, void *start, size_t pages, uint32_t gfp);

// Frees pages pages from start on: a range, any part of one, or whole blocks in a row. If one of
// them is not in use, nothing is changed.
//
// # Safety
// C-1, C-3.
int32_t zonal_range_free(struct zonal_pool *pool, void *start, size_t pages);

// Takes the more pages right behind a range of pages pages. If they cannot be had, the range is as
// before.
//
// # Safety
// C-1.
int32_t zonal_range_grow(struct zonal_pool *pool, void *start, size_t pages, size_t more);

// Frees all but the first keep pages of a range of pages pages.
//
// # Safety
// C-1; C-3 for the pages behind the first keep.
int32_t zonal_range_shrink(struct zonal_pool *pool, void *start, size_t pages, size_t keep);

// Pages of the longest run in a zone that a request could have now; 0 for a zone that the pool
// does not have. Looks at every block of the zone.
//
// # Safety
// C-1.
uint64_t zonal_range_longest(struct zonal_pool *pool, uint32_t zone);

// Changes the bytes that may be in use at once, in whole pages. To lower it, lists are drained and
// consumers are asked. ZONAL_E_BUSY if more stays in use: the budget is then what stays
// (zonal_pool_info), and a request finds nothing until pages are freed or it is set again.
//
// # Safety
// C-1.
int32_t zonal_set_budget(struct zonal_pool *pool, uint64_t bytes);

// Empties all per-CPU lists and depots. Returns the pages moved.
//
// # Safety
// C-1.
uint64_t zonal_drain(struct zonal_pool *pool);

// Returns bytes of resident memory to the operating system, if there are as many, in free blocks
// of 2 MiB and more. Returns the bytes, or -1.
//
// # Safety
// C-1.
int64_t zonal_trim(struct zonal_pool *pool, uint64_t bytes);

// Writes a setting by its name: "vm.min_free_kbytes", "vm.lowmem_reserve_ratio.DMA32". The
// watermarks follow as in a kernel.
//
// # Safety
// C-1, C-4.
int32_t zonal_set_sysctl(struct zonal_pool *pool, const char *name, int64_t value);

// Refreshes a CPU, as the refresh thread does: folds its counters, decays its lists. 1: there was
// something to do; 0: not, or the CPU has no lists.
//
// # Safety
// C-1.
uint64_t zonal_refresh(struct zonal_pool *pool, uint32_t cpu);

// Stops the refresh thread, if one runs, and starts one: to change its interval, 1 ms or more, and
// rate, and in a forked child.
//
// # Safety
// C-1.
int32_t zonal_restart_refresh(struct zonal_pool *pool, uint64_t milliseconds, uint64_t trim_rate);

// In a forked child: calls consumers again, and starts the threads that reclaim. Only if no other
// thread of the parent can have been inside a consumer.
//
// After fork() the child's pool is a complete copy (but for memory that the program brings as
// MAP_SHARED, which it must not use). Blocks that other threads of the parent had stay handed out.
// The child has no refresh thread (zonal_restart_refresh).
//
// # Safety
// C-1.
int32_t zonal_restart_reclaim(struct zonal_pool *pool);

// Waits until all memory of a pool with ZONAL_DEFERRED is online.
//
// # Safety
// C-1.
int32_t zonal_finish_growth(struct zonal_pool *pool);

// Requests fail on purpose from now on, in a pool made with fail_every: none (how 0), the n-th
// (1), each n-th (2).
//
// # Safety
// C-1.
int32_t zonal_fail_alloc(struct zonal_pool *pool, uint32_t how, uint64_t n);

// The node of a page; -1 if it is no page of this pool.
//
// # Safety
// C-1.
int64_t zonal_node_of(struct zonal_pool *pool, const void *page);

// Walks everything and changes nothing: ZONAL_OK, or ZONAL_E_CORRUPT with the first broken
// invariant. ZONAL_E_SYSTEM if memory that the program brought is not there any more: unmapped,
// read-only, or of a file that was cut. Call it while nothing else uses the pool.
//
// # Safety
// C-1.
int32_t zonal_validate(struct zonal_pool *pool);

// Registers a cache of objects, to be asked for some when the pool runs low. Null if it cannot be.
//
// # Safety
// C-1, C-2, C-4, C-5.
struct zonal_consumer *zonal_shrinker_register(struct zonal_pool *pool,
                                               const struct zonal_shrinker *shrinker);

// Removes a consumer. Its callbacks are not called any more when this returns: it waits for calls
// under way, so hold no lock that they take. ZONAL_E_INSIDE from inside a callback.
//
// # Safety
// C-1.
int32_t zonal_consumer_remove(struct zonal_consumer *consumer);

// Figures of the pool. Fields that this library does not know become zero.
//
// # Safety
// C-1, C-2.
int32_t zonal_pool_get_info(struct zonal_pool *pool, struct zonal_pool_info *info);

// Figures of a node.
//
// # Safety
// C-1, C-2.
int32_t zonal_node_get_stats(struct zonal_pool *pool, int32_t node, struct zonal_node_stats *stats);

// Figures of a zone, 0 to zones - 1.
//
// # Safety
// C-1, C-2.
int32_t zonal_zone_get_stats(struct zonal_pool *pool,
                             uint32_t zone,
                             struct zonal_zone_stats *stats);

// Where the pool's bytes are now. Some milliseconds for each GiB.
//
// # Safety
// C-1, C-2.
int32_t zonal_get_held(struct zonal_pool *pool, struct zonal_held *held);

// Writes a text of the pool into a buffer of len bytes, as snprintf does: cut to what fits, with a
// zero byte behind it. Returns the bytes of the whole text without the zero, or -1. kind is a
// zonal_text_kind, layout a ZONAL_LAYOUT_*; node is only looked at for texts of a node.
//
// # Safety
// C-1, C-2.
int64_t zonal_text(struct zonal_pool *pool,
                   uint32_t kind,
                   uint32_t layout,
                   int32_t node,
                   char *buffer,
                   size_t len);

// Why a request would get a block now, or be refused, as a text: see zonal_text for buffer, len
// and the result.
//
// # Safety
// C-1, C-2.
int64_t zonal_explain(struct zonal_pool *pool,
                      uint32_t order,
                      uint32_t gfp,
                      int32_t node,
                      char *buffer,
                      size_t len);

// The library's version, as in "0.1.0".
const char *zonal_version(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus


#ifndef ZONAL_DECLARATIONS
#ifdef __cplusplus
extern "C" {
#endif

/* Structs of their size, with every other field zero: the default. */
static inline void zonal_options_init(zonal_options *options) {
    memset(options, 0, sizeof *options);
    options->size = sizeof *options;
}

static inline void zonal_range_request_init(zonal_range_request *request, uint64_t pages) {
    memset(request, 0, sizeof *request);
    request->size = sizeof *request;
    request->gfp = ZONAL_GFP_KERNEL;
    request->pages = pages;
    request->node = ZONAL_ANY_NODE;
}

static inline void zonal_shrinker_init(zonal_shrinker *shrinker) {
    memset(shrinker, 0, sizeof *shrinker);
    shrinker->size = sizeof *shrinker;
}

static inline void zonal_pool_info_init(zonal_pool_info *info) {
    memset(info, 0, sizeof *info);
    info->size = sizeof *info;
}

static inline void zonal_node_stats_init(zonal_node_stats *stats) {
    memset(stats, 0, sizeof *stats);
    stats->size = sizeof *stats;
}

static inline void zonal_zone_stats_init(zonal_zone_stats *stats) {
    memset(stats, 0, sizeof *stats);
    stats->size = sizeof *stats;
}

static inline void zonal_held_init(zonal_held *held) {
    memset(held, 0, sizeof *held);
    held->size = sizeof *held;
}

/* A block for ordinary use whose bytes are zero. */
static inline void *zonal_alloc_zeroed(zonal_pool *pool, uint32_t order) {
    return zonal_alloc(pool, order, ZONAL_GFP_KERNEL | ZONAL_GFP_ZERO);
}

/* The smallest order whose blocks have so many bytes; 11, which is none, above 4 MiB. */
static inline uint32_t zonal_order_for(size_t bytes) {
    const size_t page = 4096;
    uint32_t order = 0;
    while (order < ZONAL_ORDERS && (page << order) < bytes) {
        order++;
    }
    return order;
}

#ifdef __cplusplus
}
#endif
#endif /* ZONAL_DECLARATIONS */

#endif /* ZONAL_H */
