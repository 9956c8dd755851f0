/* What the tests share: a check that names its line, and pools. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "zonal.h"

/* Stops at the first thing that is not as it should be, with the library's last words. */
#define CHECK(what)                                                                               \
    do {                                                                                          \
        if (!(what)) {                                                                            \
            fprintf(stderr, "%s:%d: %s does not hold; last error %d: %s\n", __FILE__, __LINE__,   \
                    #what, zonal_last_error_code(), zonal_last_error());                          \
            exit(1);                                                                              \
        }                                                                                         \
    } while (0)

/* The call fails with this code, and the last error says these words. */
#define REFUSED(call, expected, words)                                                            \
    do {                                                                                          \
        CHECK((call) == (expected));                                                              \
        SAYS(expected, words);                                                                    \
    } while (0)

#define SAYS(expected, words)                                                                     \
    do {                                                                                          \
        CHECK(zonal_last_error_code() == (int32_t)(expected));                                    \
        CHECK(strstr(zonal_last_error(), words) != NULL);                                         \
    } while (0)

#define MIB ((uint64_t)1 << 20)

static inline zonal_pool *pool_of(uint64_t bytes) {
    zonal_options options;
    zonal_pool *pool;
    zonal_options_init(&options);
    options.bytes = bytes;
    pool = zonal_pool_create(&options);
    CHECK(pool != NULL);
    return pool;
}

static inline uint64_t free_pages(zonal_pool *pool) {
    zonal_pool_info info;
    zonal_pool_info_init(&info);
    CHECK(zonal_pool_get_info(pool, &info) == ZONAL_OK);
    return info.free_pages;
}

#endif
