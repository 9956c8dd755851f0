/* Blocks of every order, bulk calls, nodes, and every bad free. */
#include "check.h"

static void every_order(zonal_pool *pool) {
    uint32_t order;
    for (order = 0; order < ZONAL_ORDERS; order++) {
        size_t bytes = (size_t)4096 << order;
        unsigned char *block = zonal_alloc(pool, order, ZONAL_GFP_KERNEL);
        CHECK(block != NULL);
        CHECK((size_t)block % bytes == 0);
        memset(block, 0xab, bytes);
        CHECK(zonal_free(pool, block, order) == ZONAL_OK);
        block = zonal_alloc_zeroed(pool, order);
        CHECK(block != NULL && block[0] == 0 && block[bytes - 1] == 0);
        CHECK(zonal_free(pool, block, order) == ZONAL_OK);
        block = zonal_alloc_on(pool, order, ZONAL_GFP_KERNEL | ZONAL_GFP_ZERO, 0);
        CHECK(block != NULL && zonal_node_of(pool, block) == 0);
        CHECK(block[0] == 0 && block[bytes - 1] == 0);
        CHECK(zonal_free(pool, block, order) == ZONAL_OK);
    }
    CHECK(zonal_alloc(pool, 11, ZONAL_GFP_KERNEL) == NULL);
    SAYS(ZONAL_E_ARGUMENT, "order 11: expected 0 (4 KiB) to 10 (4 MiB)");
    CHECK(zonal_alloc_on(pool, 0, ZONAL_GFP_KERNEL, 99) == NULL);
    SAYS(ZONAL_E_ARGUMENT, "node 99");
    CHECK(zonal_alloc(pool, 0, ZONAL_GFP_KERNEL | 0x18) == NULL); /* both mobilities */
    SAYS(ZONAL_E_ARGUMENT, "");
    CHECK(zonal_order_for(1) == 0 && zonal_order_for(4097) == 1 && zonal_order_for(4 * MIB) == 10);
    CHECK(zonal_order_for(4 * MIB + 1) == ZONAL_ORDERS);
}

static void single_pages(zonal_pool *pool) {
    static unsigned char *pages[3000];
    size_t i;
    for (i = 0; i < 3000; i++) {
        pages[i] = zonal_alloc_page(pool);
        CHECK(pages[i] != NULL);
        memcpy(pages[i], &i, sizeof i);
    }
    for (i = 0; i < 3000; i++) {
        CHECK(memcmp(pages[i], &i, sizeof i) == 0);
        CHECK(zonal_free_page(pool, pages[i]) == ZONAL_OK);
    }
}

static void bulk(zonal_pool *pool) {
    static void *pages[5000];
    size_t got = zonal_alloc_bulk(pool, ZONAL_GFP_KERNEL, pages, 1000);
    size_t i;
    CHECK(got == 1000);
    for (i = 0; i < got; i++) {
        memset(pages[i], (int)i, 4096);
    }
    CHECK(zonal_free_bulk(pool, pages, got, 0) == got);
    got = zonal_alloc_bulk(pool, ZONAL_GFP_KERNEL, pages, 5000); /* the pool has 4096 */
    CHECK(got > 3000 && got < 5000);
    CHECK(zonal_free_page(pool, pages[7]) == ZONAL_OK);
    CHECK(zonal_free_bulk(pool, pages, got, 0) == 7);
    SAYS(ZONAL_E_DOUBLE_FREE, "free already");
    CHECK(zonal_free_bulk(pool, pages + 8, got - 8, 0) == got - 8);
    CHECK(zonal_alloc_bulk(pool, ZONAL_GFP_KERNEL, NULL, 3) == 0);
    SAYS(ZONAL_E_ARGUMENT, "pages: null, with a length of 3");
    CHECK(zonal_alloc_bulk(pool, ZONAL_GFP_KERNEL, pages, SIZE_MAX) == 0);
    SAYS(ZONAL_E_ARGUMENT, "more than memory has");
    CHECK(zonal_free_bulk(pool, NULL, 0, 0) == 0);
    CHECK(zonal_free_bulk(pool, pages, 1, 77) == 0);
    SAYS(ZONAL_E_ARGUMENT, "order 77");
}

static void bad_frees(zonal_pool *pool) {
    zonal_pool *other = pool_of(16 * MIB);
    unsigned char *page = zonal_alloc_page(pool);
    unsigned char *block = zonal_alloc(pool, 3, ZONAL_GFP_KERNEL);
    char local = 0;
    CHECK(page != NULL && block != NULL);
    REFUSED(zonal_free_page(pool, page + 8), ZONAL_E_UNALIGNED, "8 bytes past the start");
    REFUSED(zonal_free_page(pool, &local), zonal_last_error_code(), "was not freed");
    REFUSED(zonal_free_page(other, page), ZONAL_E_FOREIGN, "outside this pool's memory");
    REFUSED(zonal_free_page(pool, NULL), ZONAL_E_ARGUMENT, "the address is null");
    REFUSED(zonal_free(pool, NULL, 0), ZONAL_E_ARGUMENT, "the address is null");
    REFUSED(zonal_free(pool, NULL, 3), ZONAL_E_ARGUMENT, "the address is null");
    REFUSED(zonal_free(pool, page + 8, 0), ZONAL_E_UNALIGNED, "8 bytes past the start");
    REFUSED(zonal_free(other, page, 0), ZONAL_E_FOREIGN, "outside this pool's memory");
    REFUSED(zonal_free(pool, block, 0), ZONAL_E_WRONG_ORDER, "order 3, not with order 0");
    REFUSED(zonal_free(pool, block, 2), ZONAL_E_WRONG_ORDER, "order 3, not with order 2");
    REFUSED(zonal_free_page(pool, block + 4096), ZONAL_E_NOT_A_BLOCK, "inside the block of");
    REFUSED(zonal_free(pool, block, 11), ZONAL_E_ARGUMENT, "order 11");
    CHECK(zonal_free(pool, block, 3) == ZONAL_OK);
    REFUSED(zonal_free(pool, block, 3), ZONAL_E_DOUBLE_FREE, "free already");
    CHECK(zonal_free_page(pool, page) == ZONAL_OK);
    REFUSED(zonal_free_page(pool, page), ZONAL_E_DOUBLE_FREE, "free already");
    CHECK(zonal_pool_destroy(other) == ZONAL_OK);
}

static void without_locks(zonal_pool *pool) {
    void *page = zonal_alloc_page(pool);
    CHECK(page != NULL);
    if (zonal_try_free(pool, page, 0) == 0) { /* lock mode, or the list is full */
        CHECK(zonal_free_page(pool, page) == ZONAL_OK);
    }
    page = zonal_try_alloc(pool, 0);
    if (page != NULL) {
        CHECK(zonal_free_page(pool, page) == ZONAL_OK);
    }
    CHECK(zonal_try_alloc(pool, 99) == NULL && zonal_try_alloc(NULL, 0) == NULL);
    CHECK(zonal_try_free(pool, NULL, 0) == 0 && zonal_try_free(NULL, pool, 0) == 0);
}

int main(void) {
    zonal_pool *pool = pool_of(16 * MIB);
    uint64_t all = free_pages(pool);
    CHECK(all == 4096);
    every_order(pool);
    single_pages(pool);
    bulk(pool);
    bad_frees(pool);
    without_locks(pool);
    CHECK(zonal_validate(pool) == ZONAL_OK);
    CHECK(free_pages(pool) == all);
    CHECK(zonal_pool_destroy(pool) == ZONAL_OK);
    puts("ok");
    return 0;
}
