/* Handles that are null, destroyed, of another kind or busy; options that cannot be. */
#include "check.h"

static uint64_t no_objects(void *data, int32_t node) {
    (void)data;
    (void)node;
    return 0;
}

static uint64_t nothing_freed(void *data, uint64_t objects, int32_t node, uint32_t by,
                              uint64_t *scanned) {
    (void)data;
    (void)objects;
    (void)node;
    (void)by;
    *scanned = 0;
    return ZONAL_SCAN_STOP;
}

static void bad_handles(void) {
    zonal_pool *pool = pool_of(16 * MIB);
    uint64_t zeroes[32] = {0};
    zonal_pool_info info;
    char text[64];
    zonal_pool_info_init(&info);
    CHECK(zonal_pool_destroy(pool) == ZONAL_OK);
    REFUSED(zonal_pool_destroy(pool), ZONAL_E_HANDLE, "no live pool");
    CHECK(zonal_alloc_page(pool) == NULL);
    SAYS(ZONAL_E_HANDLE, "it was destroyed");
    REFUSED(zonal_free_page(pool, zeroes), ZONAL_E_HANDLE, "no live pool");
    CHECK(zonal_alloc(pool, 0, ZONAL_GFP_KERNEL) == NULL);
    SAYS(ZONAL_E_HANDLE, "no live pool");
    CHECK(zonal_alloc_page(NULL) == NULL);
    SAYS(ZONAL_E_HANDLE, "the pool is null");
    CHECK(zonal_alloc_page((zonal_pool *)zeroes) == NULL);
    SAYS(ZONAL_E_HANDLE, "never was one");
    CHECK(zonal_text(NULL, ZONAL_TEXT_BUDDYINFO, 0, 0, text, sizeof text) == -1);
    REFUSED(zonal_pool_get_info((zonal_pool *)((char *)zeroes + 1), &info), ZONAL_E_HANDLE, "no");
    REFUSED(zonal_consumer_remove((zonal_consumer *)zeroes), ZONAL_E_HANDLE, "no live consumer");
    REFUSED(zonal_consumer_remove(NULL), ZONAL_E_HANDLE, "the consumer is null");
    CHECK(zonal_drain(NULL) == 0 && zonal_trim(NULL, 1) == -1 && zonal_node_of(NULL, text) == -1);
}

static void other_kinds(void) {
    zonal_pool *pool = pool_of(16 * MIB);
    zonal_consumer *consumer;
    zonal_shrinker shrinker;
    zonal_shrinker_init(&shrinker);
    CHECK(zonal_shrinker_register(pool, &shrinker) == NULL);
    SAYS(ZONAL_E_ARGUMENT, "both functions");
    CHECK(zonal_shrinker_register(pool, NULL) == NULL);
    SAYS(ZONAL_E_ARGUMENT, "the zonal_shrinker is null");
    shrinker.count = no_objects;
    shrinker.scan = nothing_freed;
    shrinker.node_aware = 2;
    CHECK(zonal_shrinker_register(pool, &shrinker) == NULL);
    SAYS(ZONAL_E_ARGUMENT, "node_aware: 2");
    shrinker.node_aware = 1;
    shrinker.reserved = 1;
    CHECK(zonal_shrinker_register(pool, &shrinker) == NULL);
    SAYS(ZONAL_E_ARGUMENT, "zonal_shrinker: reserved must be zero, and is 1");
    shrinker.reserved = 0;
    consumer = zonal_shrinker_register(pool, &shrinker);
    CHECK(consumer != NULL);
    CHECK(zonal_alloc_page((zonal_pool *)consumer) == NULL);
    SAYS(ZONAL_E_HANDLE, "no live pool");
    REFUSED(zonal_consumer_remove((zonal_consumer *)pool), ZONAL_E_HANDLE, "no live consumer");
    REFUSED(zonal_pool_destroy(pool), ZONAL_E_BUSY, "a consumer is registered; remove it");
    REFUSED(zonal_pool_discard(pool), ZONAL_E_BUSY, "zonal_consumer_remove");
    CHECK(zonal_consumer_remove(consumer) == ZONAL_OK);
    REFUSED(zonal_consumer_remove(consumer), ZONAL_E_HANDLE, "no live consumer");
    CHECK(zonal_pool_destroy(pool) == ZONAL_OK);
}

static void busy_pools(void) {
    zonal_pool *pool = pool_of(16 * MIB);
    void *block = zonal_alloc(pool, 4, ZONAL_GFP_KERNEL);
    CHECK(block != NULL);
    REFUSED(zonal_pool_destroy(pool), ZONAL_E_BUSY, "16 pages are handed out");
    CHECK(strstr(zonal_last_error(), "order 4") != NULL);
    CHECK(zonal_set_budget(pool, 8 * MIB) == ZONAL_OK);
    REFUSED(zonal_pool_destroy(pool), ZONAL_E_BUSY, "16 pages are handed out");
    CHECK(zonal_free(pool, block, 4) == ZONAL_OK);
    block = zonal_alloc_page(pool);
    REFUSED(zonal_pool_destroy(pool), ZONAL_E_BUSY, "1 page is handed out");
    CHECK(zonal_free_page(pool, block) == ZONAL_OK);
    CHECK(zonal_pool_destroy(pool) == ZONAL_OK);
    pool = pool_of(16 * MIB);
    CHECK(zonal_alloc(pool, 4, ZONAL_GFP_KERNEL) != NULL);
    CHECK(zonal_pool_discard(pool) == ZONAL_OK);
    REFUSED(zonal_pool_discard(pool), ZONAL_E_HANDLE, "no live pool");
}

static void bad_options(void) {
    zonal_options options;
    zonal_zone_size zones[1] = {{0, 9, 4096}};
    struct {
        zonal_options options;
        uint64_t newer;
    } larger;
    CHECK(zonal_pool_create(NULL) == NULL);
    SAYS(ZONAL_E_ARGUMENT, "the zonal_options is null");
    zonal_options_init(&options);
    CHECK(zonal_pool_create(&options) == NULL);
    SAYS(ZONAL_E_ARGUMENT, "a pool of 0 bytes");
    options.bytes = 16 * MIB;
    options.size = 12;
    CHECK(zonal_pool_create(&options) == NULL);
    SAYS(ZONAL_E_STRUCT, "says 12; expected sizeof(zonal_options)");
    zonal_options_init(&options);
    options.bytes = UINT64_MAX;
    CHECK(zonal_pool_create(&options) == NULL);
    SAYS(ZONAL_E_ARGUMENT, "more than an address space has");
    options.bytes = 16 * MIB;
    options.flags = 1u << 31;
    CHECK(zonal_pool_create(&options) == NULL);
    SAYS(ZONAL_E_ARGUMENT, "flags: 0x80000000");
    options.flags = 0;
    options.backing = 3;
    CHECK(zonal_pool_create(&options) == NULL);
    SAYS(ZONAL_E_ARGUMENT, "backing: 3; expected 0 to 2");
    options.backing = 0;
    options.policy = "linux-9.9";
    CHECK(zonal_pool_create(&options) == NULL);
    SAYS(ZONAL_E_ARGUMENT, "no policy is called 'linux-9.9'");
    options.policy = "zonal,pcp.batch";
    CHECK(zonal_pool_create(&options) == NULL);
    SAYS(ZONAL_E_ARGUMENT, "'pcp.batch': expected KEY=VALUE");
    options.policy = NULL;
    options.zones = zones;
    options.zones_len = 1;
    CHECK(zonal_pool_create(&options) == NULL);
    SAYS(ZONAL_E_ARGUMENT, "bytes and zones: the memory of a pool is given once");
    options.bytes = 0;
    CHECK(zonal_pool_create(&options) == NULL);
    SAYS(ZONAL_E_ARGUMENT, "kind of a zone: 9");
    options.zones = NULL;
    CHECK(zonal_pool_create(&options) == NULL);
    SAYS(ZONAL_E_ARGUMENT, "zones: null, with a length of 1");
    memset(&larger, 0, sizeof larger);
    larger.options.size = (uint32_t)sizeof larger;
    larger.options.bytes = 16 * MIB;
    larger.newer = 5;
    CHECK(zonal_pool_create(&larger.options) == NULL);
    SAYS(ZONAL_E_STRUCT, "older than the header");
    larger.newer = 0;
    CHECK(zonal_pool_destroy(zonal_pool_create(&larger.options)) == ZONAL_OK);
}

int main(void) {
    int code;
    for (code = 0; code <= ZONAL_E_INTERNAL; code++) {
        CHECK(strlen(zonal_strerror(code)) > 3);
    }
    CHECK(strcmp(zonal_strerror(999), "no code of zonal") == 0);
    CHECK(zonal_last_error_code() == ZONAL_OK);
    CHECK(strcmp(zonal_version(), "0.1.0") == 0);
    bad_handles();
    other_kinds();
    busy_pools();
    bad_options();
    /* Destroyed handles rest, and later ones are used again: pools for ever take no memory. */
    for (code = 0; code < 40; code++) {
        CHECK(zonal_pool_destroy(pool_of(4 * MIB)) == ZONAL_OK);
    }
    puts("ok");
    return 0;
}
