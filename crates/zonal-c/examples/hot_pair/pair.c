/* The loop of main.rs in C, by the functions of pages and by those of blocks. */
#include <stddef.h>

#include "zonal.h"

size_t zonal_example_pairs(zonal_pool *pool, size_t pairs);
size_t zonal_example_block_pairs(zonal_pool *pool, size_t pairs);

size_t zonal_example_pairs(zonal_pool *pool, size_t pairs) {
    size_t refused = 0;
    size_t i;
    for (i = 0; i < pairs; i++) {
        void *page = zonal_alloc_page(pool);
        refused += zonal_free_page(pool, page) != ZONAL_OK;
    }
    return refused;
}

size_t zonal_example_block_pairs(zonal_pool *pool, size_t pairs) {
    size_t refused = 0;
    size_t i;
    for (i = 0; i < pairs; i++) {
        void *page = zonal_alloc(pool, 0, ZONAL_GFP_KERNEL);
        refused += zonal_free(pool, page, 0) != ZONAL_OK;
    }
    return refused;
}
