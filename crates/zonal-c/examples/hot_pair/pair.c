/* The loop of main.rs in C. */
#include <stddef.h>

#include "zonal.h"

size_t zonal_example_pairs(zonal_pool *pool, size_t pairs);

size_t zonal_example_pairs(zonal_pool *pool, size_t pairs) {
    size_t refused = 0;
    size_t i;
    for (i = 0; i < pairs; i++) {
        void *page = zonal_alloc_page(pool);
        refused += zonal_free_page(pool, page) != ZONAL_OK;
    }
    return refused;
}
