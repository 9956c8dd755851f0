/* Ranges of any size, in parts, at an address, grown and shrunk. */
#include "check.h"

/* Above 4 MiB it is the place in the pool that is aligned. */
static void far_apart(zonal_pool *pool) {
    zonal_range_request request;
    zonal_pool_info info;
    char *first = zonal_range_alloc(pool, 3);
    char *range;
    zonal_pool_info_init(&info);
    zonal_range_request_init(&request, 3);
    request.align = 4096;
    range = zonal_range_alloc_with(pool, &request);
    CHECK(zonal_pool_get_info(pool, &info) == ZONAL_OK && first != NULL && range != NULL);
    CHECK(range != first && (size_t)(range - (const char *)info.base) % (16 * MIB) == 0);
    CHECK(zonal_range_free(pool, first, 3) == ZONAL_OK);
    CHECK(zonal_range_free(pool, range, 3) == ZONAL_OK);
}

int main(void) {
    zonal_pool *pool = pool_of(64 * MIB);
    uint64_t all = free_pages(pool);
    zonal_range_request request;
    char *range = zonal_range_alloc(pool, 1500); /* above 4 MiB, no power of two */
    char *part;
    uint64_t longest;
    CHECK(range != NULL && free_pages(pool) == all - 1500);
    memset(range, 1, 1500 * 4096);
    /* Any part goes back by itself. */
    CHECK(zonal_range_free(pool, range + 700 * 4096, 100) == ZONAL_OK);
    CHECK(free_pages(pool) == all - 1400);
    REFUSED(zonal_range_free(pool, range + 600 * 4096, 200), ZONAL_E_DOUBLE_FREE, "free already");
    CHECK(free_pages(pool) == all - 1400);
    part = range + 700 * 4096;
    CHECK(zonal_range_alloc_at(pool, part, 100, ZONAL_GFP_KERNEL | ZONAL_GFP_ZERO) == ZONAL_OK);
    CHECK(part[0] == 0 && part[100 * 4096 - 1] == 0 && part[-1] == 1 && part[100 * 4096] == 1);
    REFUSED(zonal_range_alloc_at(pool, part, 100, ZONAL_GFP_KERNEL), ZONAL_E_IN_THE_WAY, "in a");
    REFUSED(zonal_range_alloc_at(pool, (char *)4096, 1, ZONAL_GFP_KERNEL), ZONAL_E_FOREIGN, "zone");
    REFUSED(zonal_range_free(pool, range, 0), ZONAL_E_ARGUMENT, "at least one page");
    REFUSED(zonal_range_free(pool, range + 1, 3), ZONAL_E_UNALIGNED, "1 byte past");
    CHECK(zonal_range_free(pool, range, 700) == ZONAL_OK);
    CHECK(zonal_range_free(pool, part, 100) == ZONAL_OK);
    CHECK(zonal_range_free(pool, part + 100 * 4096, 700) == ZONAL_OK);
    CHECK(free_pages(pool) == all);

    far_apart(pool);
    zonal_range_request_init(&request, 5000);
    request.align = 1024;
    range = zonal_range_alloc_with(pool, &request);
    CHECK(range != NULL && (size_t)range % (1024 * 4096) == 0);
    CHECK(zonal_range_grow(pool, range, 5000, 11) == ZONAL_OK);
    CHECK(free_pages(pool) == all - 5011);
    CHECK(zonal_range_shrink(pool, range, 5011, 17) == ZONAL_OK);
    CHECK(free_pages(pool) == all - 17);
    REFUSED(zonal_range_shrink(pool, range, 17, 17), ZONAL_E_ARGUMENT, "expected 1 to 16");
    REFUSED(zonal_range_shrink(pool, range, 17, 0), ZONAL_E_ARGUMENT, "cannot shrink to 0");
    /* The bytes of so many pages overflow: the page in front of the address is not the tail. */
    part = range + 4 * 4096;
    REFUSED(zonal_range_shrink(pool, part, (size_t)1 << 52, ((size_t)1 << 52) - 1),
            ZONAL_E_ARGUMENT, "the pool has");
    REFUSED(zonal_range_shrink(pool, part, SIZE_MAX, 5), ZONAL_E_ARGUMENT, "the pool has");
    REFUSED(zonal_range_shrink(pool, part, (size_t)64 * MIB / 4096 + 1, 1), ZONAL_E_ARGUMENT,
            "the pool has");
    CHECK(free_pages(pool) == all - 17);
    CHECK(zonal_range_grow(pool, range, 17, (size_t)1 << 40) != ZONAL_OK);
    CHECK(zonal_range_grow(pool, range, 17, SIZE_MAX) != ZONAL_OK);
    CHECK(zonal_range_grow(pool, range + 4096, SIZE_MAX, 2) != ZONAL_OK);
    CHECK(zonal_range_free(pool, range, SIZE_MAX) != ZONAL_OK);
    CHECK(free_pages(pool) == all - 17);
    CHECK(zonal_range_free(pool, range, 17) == ZONAL_OK);
    CHECK(zonal_range_grow(pool, range, 17, 1) != ZONAL_OK); /* nobody's any more */

    request.align = 3;
    CHECK(zonal_range_alloc_with(pool, &request) == NULL);
    SAYS(ZONAL_E_ARGUMENT, "not a power of two");
    request.align = 1;
    request.reserved = 7;
    CHECK(zonal_range_alloc_with(pool, &request) == NULL);
    SAYS(ZONAL_E_ARGUMENT, "zonal_range_request: reserved must be zero, and is 7");
    request.reserved = 0;
    request.size = 5;
    CHECK(zonal_range_alloc_with(pool, &request) == NULL);
    SAYS(ZONAL_E_STRUCT, "zonal_range_request");
    CHECK(zonal_range_alloc(pool, 0) == NULL);
    SAYS(ZONAL_E_ARGUMENT, "at least one page");
    CHECK(zonal_range_alloc(pool, UINT64_MAX) == NULL);
    SAYS(ZONAL_E_NO_MEMORY, "the largest zone that may serve it has 16384");
    CHECK(zonal_range_alloc(pool, 16384) == NULL); /* as large as the pool: the watermark's */
    SAYS(ZONAL_E_NO_MEMORY, "has 16384 pages free for such a request and needs more than 16");
    zonal_range_request_init(&request, 1);
    request.align = (uint64_t)1 << 30;
    range = zonal_range_alloc_with(pool, &request); /* the pool's first page */
    CHECK(range != NULL && zonal_range_alloc_with(pool, &request) == NULL);
    SAYS(ZONAL_E_NO_MEMORY, "not that many in a row");
    REFUSED(zonal_range_alloc_at(pool, range + 4095, 2, ZONAL_GFP_KERNEL), ZONAL_E_UNALIGNED,
            "is 4095 bytes past the start of a page");
    REFUSED(zonal_range_grow(pool, range + 1, 1, 1), ZONAL_E_UNALIGNED,
            "is 1 byte past the start of a page");
    REFUSED(zonal_range_grow(pool, range + 4096, 1, 1), ZONAL_E_NOT_A_BLOCK, "is a free page");
    CHECK(zonal_range_free(pool, range, 1) == ZONAL_OK);
    zonal_drain(pool);
    longest = zonal_range_longest(pool, 0);
    CHECK(longest > 8192 && longest <= all && zonal_range_longest(pool, 4000000000u) == 0);
    CHECK(free_pages(pool) == all);
    CHECK(zonal_validate(pool) == ZONAL_OK);
    CHECK(zonal_pool_destroy(pool) == ZONAL_OK);
    puts("ok");
    return 0;
}
