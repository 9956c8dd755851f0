/*
 * DPDK's mempool as a page allocator. Its fast path is inline functions in a header, so this file
 * compiles them; the Rust side calls zb_dpdk_get and zb_dpdk_put, one call per page.
 *
 * A mempool's own objects carry a header and are not aligned to pages. So the pool is created
 * with small objects, these are all taken out, and page pointers are put in their place: get and
 * put only move pointers between a per-lcore cache and a ring, so every page takes exactly the path
 * that an object would.
 */
#include <stddef.h>
#include <stdint.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_mempool.h>

static struct rte_mempool *pool;

/* Returns 0, or a negative errno. */
int zb_dpdk_init(char *pages, unsigned count)
{
	char *args[] = { "zonal-bench", "--no-huge", "--no-pci", "--no-telemetry", "--no-shconf",
			 "-m", "64", "--log-level=lib.eal:error", "-l", "0", NULL };
	int argc = (int)(sizeof(args) / sizeof(args[0])) - 1;

	if (rte_eal_init(argc, args) < 0)
		return -rte_errno;
	pool = rte_mempool_create("pages", count, 64, RTE_MEMPOOL_CACHE_MAX_SIZE, 0, NULL, NULL,
				  NULL, NULL, SOCKET_ID_ANY, 0);
	if (pool == NULL)
		return -rte_errno;
	for (unsigned i = 0; i < count; i++) {
		void *object;

		if (rte_mempool_generic_get(pool, &object, 1, NULL) != 0)
			return -12;
	}
	for (unsigned i = 0; i < count; i++) {
		void *page = pages + (size_t)i * 4096;

		rte_mempool_generic_put(pool, &page, 1, NULL);
	}
	return 0;
}

/* Gives the calling thread an lcore id, without which it has no cache. */
int zb_dpdk_thread_init(void)
{
	if (rte_lcore_id() != LCORE_ID_ANY)
		return 0;
	return rte_thread_register();
}

void *zb_dpdk_get(void)
{
	void *page;

	return rte_mempool_get(pool, &page) == 0 ? page : NULL;
}

void zb_dpdk_put(void *page)
{
	rte_mempool_put(pool, page);
}

/*
 * Pages in the ring, which all lcores share: all but those in the lcores' caches. Not every
 * release exports the ring's own count.
 */
unsigned zb_dpdk_in_ring(void)
{
	unsigned in_ring = rte_mempool_avail_count(pool);

	for (unsigned lcore = 0; pool->cache_size > 0 && lcore < RTE_MAX_LCORE; lcore++)
		in_ring -= pool->local_cache[lcore].len;
	return in_ring;
}

int zb_dpdk_get_bulk(void **pages, unsigned count)
{
	return rte_mempool_get_bulk(pool, pages, count);
}

void zb_dpdk_put_bulk(void *const *pages, unsigned count)
{
	rte_mempool_put_bulk(pool, pages, count);
}
