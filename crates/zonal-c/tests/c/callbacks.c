/* Callbacks: consumers, the last resort, brought memory, prefault; and callbacks that re-enter. */
#define _DEFAULT_SOURCE
#include <pthread.h>
#include <sys/mman.h>

#include "check.h"

#define ROOM 4096

/* A cache of single pages. */
struct cache {
    pthread_mutex_t lock;
    zonal_pool *pool;
    zonal_consumer *self;
    void *pages[ROOM];
    size_t len;
    uint64_t calls;
    int32_t reentered[3];
};

static uint64_t count(void *data, int32_t node) {
    struct cache *cache = data;
    uint64_t len = 0;
    (void)node;
    if (pthread_mutex_trylock(&cache->lock) == 0) {
        len = cache->len;
        pthread_mutex_unlock(&cache->lock);
    }
    return len;
}

static uint64_t scan(void *data, uint64_t objects, int32_t node, uint32_t by, uint64_t *scanned) {
    struct cache *cache = data;
    uint64_t freed = 0;
    void *page;
    CHECK(node == 0 && by <= 2 && *scanned == objects);
    if (pthread_mutex_trylock(&cache->lock) != 0) {
        return ZONAL_SCAN_STOP;
    }
    cache->calls++;
    /* What would wait for this very call is refused; anything else may be called. */
    cache->reentered[0] = zonal_consumer_remove(cache->self);
    cache->reentered[1] = zonal_pool_destroy(cache->pool);
    cache->reentered[2] = zonal_pool_discard(cache->pool);
    page = zonal_alloc_page(cache->pool);
    if (page != NULL) {
        CHECK(zonal_free_page(cache->pool, page) == ZONAL_OK);
    }
    CHECK(free_pages(cache->pool) <= ROOM);
    while (freed < objects && cache->len > 0) {
        CHECK(zonal_free_page(cache->pool, cache->pages[--cache->len]) == ZONAL_OK);
        freed++;
    }
    pthread_mutex_unlock(&cache->lock);
    *scanned = freed;
    return freed;
}

static void a_cache_gives_its_pages_up(void) {
    static struct cache cache;
    static void *mine[ROOM];
    zonal_shrinker shrinker;
    size_t got = 0, refusals = 0;
    char text[4096];
    cache.pool = pool_of(16 * MIB);
    CHECK(pthread_mutex_init(&cache.lock, NULL) == 0);
    zonal_shrinker_init(&shrinker);
    shrinker.name = "pages of the test";
    shrinker.count = count;
    shrinker.scan = scan;
    shrinker.data = &cache;
    cache.self = zonal_shrinker_register(cache.pool, &shrinker);
    CHECK(cache.self != NULL);
    pthread_mutex_lock(&cache.lock);
    while (cache.len < 3000) {
        cache.pages[cache.len] = zonal_alloc_page(cache.pool);
        CHECK(cache.pages[cache.len++] != NULL);
    }
    pthread_mutex_unlock(&cache.lock);
    /* More than is free: the rest is the cache's. */
    while (got < 2500) {
        mine[got] = zonal_alloc_page(cache.pool);
        if (mine[got] != NULL) {
            got++;
            refusals = 0;
            continue;
        }
        /* The background thread has the cache, which then has nothing for others: wait for it. */
        CHECK(++refusals < 100);
        pthread_mutex_lock(&cache.lock);
        pthread_mutex_unlock(&cache.lock);
    }
    CHECK(cache.calls > 0);
    CHECK(cache.reentered[0] == ZONAL_E_INSIDE && cache.reentered[1] == ZONAL_E_BUSY + 1);
    CHECK(cache.reentered[2] == ZONAL_E_INSIDE);
    CHECK(zonal_text(cache.pool, ZONAL_TEXT_CONSUMERS, 0, 0, text, sizeof text) > 0);
    CHECK(strstr(text, "pages of the test: ") == text && strchr(text, '{') == NULL);
    CHECK(zonal_consumer_remove(cache.self) == ZONAL_OK);
    CHECK(zonal_free_bulk(cache.pool, mine, got, 0) == got);
    CHECK(zonal_free_bulk(cache.pool, cache.pages, cache.len, 0) == cache.len);
    CHECK(zonal_validate(cache.pool) == ZONAL_OK);
    CHECK(zonal_pool_destroy(cache.pool) == ZONAL_OK);
}

struct reserve {
    zonal_pool *pool;
    void *block;
    int calls;
    int inside;
};

static int32_t last_resort(void *data, uint32_t order, uint32_t gfp, int32_t node) {
    struct reserve *reserve = data;
    CHECK(order == 0 && (gfp & ZONAL_GFP_KERNEL) == ZONAL_GFP_KERNEL && node == 0);
    reserve->calls++;
    reserve->inside = zonal_pool_destroy(reserve->pool);
    if (reserve->block == NULL) {
        return 0;
    }
    CHECK(zonal_free(reserve->pool, reserve->block, 10) == ZONAL_OK);
    reserve->block = NULL;
    return 1;
}

static void the_last_resort_is_asked(void) {
    static struct reserve reserve;
    zonal_options options;
    zonal_options_init(&options);
    options.bytes = 16 * MIB;
    options.out_of_memory = last_resort;
    options.out_of_memory_data = &reserve;
    reserve.pool = zonal_pool_create(&options);
    CHECK(reserve.pool != NULL);
    reserve.block = zonal_alloc(reserve.pool, 10, ZONAL_GFP_KERNEL);
    CHECK(reserve.block != NULL);
    while (zonal_alloc_page(reserve.pool) != NULL) {
    }
    SAYS(ZONAL_E_NO_MEMORY, "watermark");
    CHECK(reserve.calls == 2 && reserve.block == NULL && reserve.inside == ZONAL_E_INSIDE);
    CHECK(zonal_pool_discard(reserve.pool) == ZONAL_OK);
}

struct brought {
    void *map;
    size_t bytes;
    int released;
};

static void release(void *data) {
    struct brought *brought = data;
    CHECK(munmap(brought->map, brought->bytes) == 0);
    brought->released++;
}

static void count_release(void *data) { ++*(int *)data; }

/* Whatever is refused, the memory is the program's again; unless nobody could read whose it is. */
static void refused_memory_is_let_go_of(void) {
    static const char *const policies[] = {"nonsense", "zonal,no.such=1", "zonal,word"};
    zonal_zone_size zone = {0, 9, 4096};
    zonal_memory range = {NULL, 16 * MIB, 0, 0};
    zonal_options options;
    int released = 0;
    size_t index;
    zonal_options_init(&options);
    options.memory = &range;
    options.memory_len = 1;
    options.release = count_release;
    options.release_data = &released;
    for (index = 0; index < 3; index++) {
        options.policy = policies[index];
        CHECK(zonal_pool_create(&options) == NULL && released == (int)index + 1);
    }
    options.policy = NULL;
    options.flags = 1u << 31;
    CHECK(zonal_pool_create(&options) == NULL && released == 4);
    options.flags = 0;
    options.backing = 3;
    CHECK(zonal_pool_create(&options) == NULL && released == 5);
    options.backing = 0;
    options.zones = &zone;
    options.zones_len = 1;
    CHECK(zonal_pool_create(&options) == NULL && released == 6);
    options.zones_len = 0;
    CHECK(zonal_pool_create(&options) == NULL && released == 7); /* null */
    range.start = (void *)(size_t)4096;
    CHECK(zonal_pool_create(&options) == NULL && released == 8); /* no multiple of 4 MiB */
    options.size = 3;
    CHECK(zonal_pool_create(&options) == NULL && released == 8);
    SAYS(ZONAL_E_STRUCT, "zonal_options");
    options.size = (uint32_t)sizeof options;
    options.memory_len = 0; /* nothing brought, so nothing to let go of */
    CHECK(zonal_pool_create(&options) == NULL && released == 8);
}

/* Whatever a second pool of the same memory is refused for, the first one keeps it. */
static void memory_of_another_pool_is_not_released(void) {
    char *map = mmap(NULL, 24 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    zonal_memory ranges[] = {{NULL, 8 * MIB, 0, 0}, {NULL, 8 * MIB, 0, 0}};
    zonal_zone_size zone = {0, 9, 4096};
    struct brought brought = {map, 24 * MIB, 0};
    zonal_options options;
    zonal_pool *pool;
    char *page;
    CHECK(map != MAP_FAILED);
    ranges[0].start = map + (4 * MIB - (size_t)map % (4 * MIB)) % (4 * MIB);
    zonal_options_init(&options);
    options.memory = ranges;
    options.memory_len = 1;
    pool = zonal_pool_create(&options);
    CHECK(pool != NULL);
    options.release = release;
    options.release_data = &brought;
    CHECK(zonal_pool_create(&options) == NULL && brought.released == 0);
    SAYS(ZONAL_E_ARGUMENT, "another pool");
    options.policy = "nonsense";
    CHECK(zonal_pool_create(&options) == NULL && brought.released == 0);
    options.policy = NULL;
    options.zones = &zone;
    options.zones_len = 1;
    CHECK(zonal_pool_create(&options) == NULL && brought.released == 0);
    SAYS(ZONAL_E_ARGUMENT, "zones and memory: the memory of a pool is given once");
    options.zones_len = 0;
    options.bytes = 8 * MIB;
    CHECK(zonal_pool_create(&options) == NULL && brought.released == 0);
    SAYS(ZONAL_E_ARGUMENT, "bytes and memory: the memory of a pool is given once");
    options.bytes = 0;
    options.memory_len = 2;
    CHECK(zonal_pool_create(&options) == NULL && brought.released == 0); /* the second is null */
    options.memory_len = 1;
    ranges[0].bytes = UINT64_MAX;
    CHECK(zonal_pool_create(&options) == NULL && brought.released == 0);
    ranges[0].bytes = 8 * MIB;
    page = zonal_alloc(pool, 0, ZONAL_GFP_KERNEL);
    CHECK(page != NULL);
    page[0] = 1;
    CHECK(zonal_free(pool, page, 0) == ZONAL_OK && zonal_pool_destroy(pool) == ZONAL_OK);
    pool = zonal_pool_create(&options);
    CHECK(pool != NULL && zonal_pool_destroy(pool) == ZONAL_OK && brought.released == 1);
}

static void progress(void *data, uint64_t done, uint64_t total) {
    uint64_t *last = data;
    CHECK(done > *last && done <= total);
    *last = done;
}

static void brought_memory_is_let_go_of(void) {
    struct brought brought = {NULL, 24 * MIB, 0};
    zonal_memory range = {NULL, 16 * MIB, 0, 0};
    uint64_t done = 0;
    zonal_options options;
    zonal_pool_info info;
    zonal_pool *pool;
    void *page;
    brought.map = mmap(NULL, brought.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                       -1, 0);
    CHECK(brought.map != MAP_FAILED);
    range.start = (void *)(((size_t)brought.map + 4 * MIB - 1) / (4 * MIB) * (4 * MIB));
    zonal_options_init(&options);
    options.memory = &range;
    options.memory_len = 1;
    options.flags = ZONAL_PREFAULT;
    options.prefaulted = progress;
    options.prefaulted_data = &done;
    range.bytes = 4095;
    CHECK(zonal_pool_create(&options) == NULL);
    SAYS(ZONAL_E_ARGUMENT, "brought memory, range 0");
    range.bytes = 16 * MIB;
    range.reserved = 1;
    CHECK(zonal_pool_create(&options) == NULL);
    SAYS(ZONAL_E_ARGUMENT, "reserved must be zero");
    range.reserved = 0;
    options.release = release;
    options.release_data = &brought;
    pool = zonal_pool_create(&options);
    CHECK(pool != NULL && done == 16 * MIB);
    zonal_pool_info_init(&info);
    CHECK(zonal_pool_get_info(pool, &info) == ZONAL_OK && info.base == range.start);
    page = zonal_alloc_page(pool);
    CHECK(page >= range.start && (char *)page < (char *)range.start + range.bytes);
    CHECK(zonal_free_page(pool, page) == ZONAL_OK);
    options.release = NULL;
    CHECK(zonal_pool_create(&options) == NULL);
    SAYS(ZONAL_E_ARGUMENT, "another pool is made of it");
    CHECK(zonal_validate(pool) == ZONAL_OK);
    CHECK(mprotect(range.start, 4096, PROT_READ) == 0);
    REFUSED(zonal_validate(pool), ZONAL_E_SYSTEM, "may not be read and written");
    CHECK(mprotect(range.start, 4096, PROT_READ | PROT_WRITE) == 0);
    CHECK(zonal_validate(pool) == ZONAL_OK);
    CHECK(brought.released == 0);
    CHECK(zonal_pool_destroy(pool) == ZONAL_OK);
    CHECK(brought.released == 1);
}

int main(void) {
    a_cache_gives_its_pages_up();
    the_last_resort_is_asked();
    brought_memory_is_let_go_of();
    refused_memory_is_let_go_of();
    memory_of_another_pool_is_not_released();
    puts("ok");
    return 0;
}
