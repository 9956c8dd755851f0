/* Every function of the header that takes a handle, with handles that are none: it returns what it
 * returns on failure, says why, and changes nothing. And consumers whose answers cannot be. */
#include "check.h"

/* A call with a handle in the place of a pool or a consumer: what it returns as a number. */
typedef int64_t call(zonal_pool *pool);

static char place[64];
static void *page_of_another;

#define CALL(name, expression)                                                                    \
    static int64_t name(zonal_pool *pool) { return (int64_t)(expression); }
#define GOT(pointer) ((pointer) == NULL ? 0 : 1)

static zonal_pool_info info;
static zonal_node_stats node_stats;
static zonal_zone_stats zone_stats;
static zonal_held held;
static zonal_range_request request;
static zonal_shrinker shrinker;
static void *several[2];

CALL(alloc_page, GOT(zonal_alloc_page(pool)))
CALL(alloc, GOT(zonal_alloc(pool, 0, ZONAL_GFP_KERNEL)))
CALL(alloc_on, GOT(zonal_alloc_on(pool, 0, ZONAL_GFP_KERNEL, 0)))
CALL(alloc_bulk, zonal_alloc_bulk(pool, ZONAL_GFP_KERNEL, several, 2))
CALL(free_bulk, zonal_free_bulk(pool, several, 2, 0))
CALL(range_alloc, GOT(zonal_range_alloc(pool, 3)))
CALL(range_alloc_with, GOT(zonal_range_alloc_with(pool, &request)))
CALL(range_longest, zonal_range_longest(pool, 0))
CALL(drain, zonal_drain(pool))
CALL(refresh, zonal_refresh(pool, 0))
CALL(shrinker_register, GOT(zonal_shrinker_register(pool, &shrinker)))
/* 0 is how these fail. */
static call *const nothing[] = {
    alloc_page,       alloc,         alloc_on, alloc_bulk, free_bulk,         range_alloc,
    range_alloc_with, range_longest, drain,    refresh,    shrinker_register,
};

CALL(trim, zonal_trim(pool, 4096))
CALL(node_of, zonal_node_of(pool, page_of_another))
CALL(text, zonal_text(pool, ZONAL_TEXT_MODE, 0, 0, place, sizeof place))
CALL(explain, zonal_explain(pool, 0, ZONAL_GFP_KERNEL, 0, place, sizeof place))
/* -1 is. */
static call *const minus_one[] = {trim, node_of, text, explain};

CALL(destroy, zonal_pool_destroy(pool))
CALL(discard, zonal_pool_discard(pool))
CALL(free_page, zonal_free_page(pool, page_of_another))
CALL(free_block, zonal_free(pool, page_of_another, 0))
CALL(range_alloc_at, zonal_range_alloc_at(pool, page_of_another, 1, ZONAL_GFP_KERNEL))
CALL(range_free, zonal_range_free(pool, page_of_another, 1))
CALL(range_grow, zonal_range_grow(pool, page_of_another, 1, 1))
CALL(range_shrink, zonal_range_shrink(pool, page_of_another, 2, 1))
CALL(set_budget, zonal_set_budget(pool, 4096))
CALL(set_sysctl, zonal_set_sysctl(pool, "vm.min_free_kbytes", 1))
CALL(restart_refresh, zonal_restart_refresh(pool, 1, 0))
CALL(restart_reclaim, zonal_restart_reclaim(pool))
CALL(finish_growth, zonal_finish_growth(pool))
CALL(fail_alloc, zonal_fail_alloc(pool, 1, 1))
CALL(validate, zonal_validate(pool))
CALL(get_info, zonal_pool_get_info(pool, &info))
CALL(get_node, zonal_node_get_stats(pool, 0, &node_stats))
CALL(get_zone, zonal_zone_get_stats(pool, 0, &zone_stats))
CALL(get_held, zonal_get_held(pool, &held))
/* The code is. */
static call *const code[] = {
    destroy,        discard,    free_page,       free_block,      range_alloc_at,
    range_free,     range_grow, range_shrink,    set_budget,      set_sysctl,
    finish_growth,  fail_alloc, restart_refresh, restart_reclaim, validate,
    get_info,       get_node,   get_zone,        get_held,
};

static uint64_t count_none(void *data, int32_t node) {
    (void)data;
    (void)node;
    return 0;
}

static uint64_t scan_none(void *data, uint64_t objects, int32_t node, uint32_t by,
                          uint64_t *scanned) {
    (void)data;
    (void)objects;
    (void)node;
    (void)by;
    (void)scanned;
    return 0;
}

/* The last call failed for its handle. */
static void for_its_handle(void) { SAYS(ZONAL_E_HANDLE, "pool"); }

#define EACH(calls, expected)                                                                     \
    for (index = 0; index < sizeof calls / sizeof *calls; index++) {                              \
        CHECK(calls[index](bad) == (expected));                                                   \
        for_its_handle();                                                                         \
    }

static void with(zonal_pool *bad) {
    size_t index;
    EACH(nothing, 0)
    EACH(minus_one, -1)
    EACH(code, ZONAL_E_HANDLE)
    /* For signal handlers: no reason is left. */
    CHECK(zonal_try_alloc(bad, 0) == NULL && zonal_try_free(bad, page_of_another, 0) == 0);
}

static void no_function_takes_what_is_no_pool(void) {
    zonal_pool *other = pool_of(16 * MIB), *destroyed = pool_of(16 * MIB);
    uint64_t zeroes[64] = {0}, before;
    zonal_consumer *consumer;
    zonal_pool_info_init(&info);
    zonal_node_stats_init(&node_stats);
    zonal_zone_stats_init(&zone_stats);
    zonal_held_init(&held);
    zonal_range_request_init(&request, 3);
    zonal_shrinker_init(&shrinker);
    shrinker.count = count_none;
    shrinker.scan = scan_none;
    page_of_another = zonal_alloc_page(other);
    several[0] = several[1] = page_of_another;
    consumer = zonal_shrinker_register(other, &shrinker);
    CHECK(page_of_another != NULL && consumer != NULL);
    CHECK(zonal_pool_destroy(destroyed) == ZONAL_OK);
    before = free_pages(other);
    with(NULL);
    with(destroyed);
    with((zonal_pool *)zeroes);
    with((zonal_pool *)consumer);
    CHECK(zonal_consumer_remove(NULL) == ZONAL_E_HANDLE);
    CHECK(zonal_consumer_remove((zonal_consumer *)other) == ZONAL_E_HANDLE);
    /* The other pool never noticed. */
    CHECK(free_pages(other) == before && zonal_validate(other) == ZONAL_OK);
    CHECK(zonal_consumer_remove(consumer) == ZONAL_OK);
    CHECK(zonal_free_page(other, page_of_another) == ZONAL_OK);
    CHECK(zonal_pool_destroy(other) == ZONAL_OK);
}

/* Structs that are null, or of a size that no version has. */
static void no_function_writes_to_what_is_no_struct(void) {
    zonal_pool *pool = pool_of(16 * MIB);
    uint32_t sizes[] = {0, 1, 3, UINT32_MAX};
    size_t index;
    REFUSED(zonal_pool_get_info(pool, NULL), ZONAL_E_ARGUMENT, "null");
    REFUSED(zonal_node_get_stats(pool, 0, NULL), ZONAL_E_ARGUMENT, "null");
    REFUSED(zonal_zone_get_stats(pool, 0, NULL), ZONAL_E_ARGUMENT, "null");
    REFUSED(zonal_get_held(pool, NULL), ZONAL_E_ARGUMENT, "null");
    CHECK(zonal_range_alloc_with(pool, NULL) == NULL);
    SAYS(ZONAL_E_ARGUMENT, "null");
    CHECK(zonal_pool_create(NULL) == NULL);
    SAYS(ZONAL_E_ARGUMENT, "null");
    REFUSED(zonal_set_sysctl(pool, NULL, 1), ZONAL_E_ARGUMENT, "null");
    for (index = 0; index < sizeof sizes / sizeof *sizes; index++) {
        zonal_held sized;
        memset(&sized, 0x5a, sizeof sized);
        sized.size = sizes[index];
        REFUSED(zonal_get_held(pool, &sized), ZONAL_E_STRUCT, "zonal_held");
        CHECK(sized.users == UINT64_C(0x5a5a5a5a5a5a5a5a));
    }
    CHECK(zonal_text(pool, ZONAL_TEXT_MODE, 0, 0, NULL, 5) == -1);
    SAYS(ZONAL_E_ARGUMENT, "null");
    CHECK(zonal_text(pool, 999, 0, 0, place, sizeof place) == -1);
    CHECK(zonal_text(pool, ZONAL_TEXT_ZONEINFO, 999, 0, place, sizeof place) == -1);
    CHECK(zonal_text(pool, ZONAL_TEXT_NUMASTAT, 0, -7, place, sizeof place) == -1);
    CHECK(zonal_pool_destroy(pool) == ZONAL_OK);
}

static uint64_t lies;

static uint64_t count_too_many(void *data, int32_t node) {
    (void)data;
    (void)node;
    lies++;
    return UINT64_MAX - lies % 3;
}

/* Says that it freed and looked at more than there is. */
static uint64_t scan_too_many(void *data, uint64_t objects, int32_t node, uint32_t by,
                              uint64_t *scanned) {
    (void)data;
    (void)objects;
    (void)node;
    (void)by;
    lies++;
    *scanned = lies % 2 == 0 ? UINT64_MAX : 0;
    return UINT64_MAX - 1 - lies % 2;
}

static void a_consumer_that_lies_loses_nothing(void) {
    static void *pages[8192];
    zonal_pool *pool = pool_of(16 * MIB);
    zonal_shrinker liar;
    zonal_consumer *consumer;
    size_t len = 0;
    zonal_shrinker_init(&liar);
    liar.count = count_too_many;
    liar.scan = scan_too_many;
    liar.batch = UINT64_MAX;
    liar.object_bytes = UINT64_MAX;
    consumer = zonal_shrinker_register(pool, &liar);
    if (consumer == NULL) {
        liar.batch = 1;
        liar.object_bytes = 4096;
        consumer = zonal_shrinker_register(pool, &liar);
    }
    CHECK(consumer != NULL);
    while (len < 8192 && (pages[len] = zonal_alloc(pool, 0, ZONAL_GFP_KERNEL |
                                                   ZONAL_GFP_NORETRY)) != NULL) {
        len++;
    }
    CHECK(len > 3000 && len < 8192 && lies > 0);
    CHECK(zonal_text(pool, ZONAL_TEXT_CONSUMERS, 0, 0, place, sizeof place) > 0);
    CHECK(zonal_get_held(pool, &held) == ZONAL_OK);
    CHECK(zonal_consumer_remove(consumer) == ZONAL_OK);
    CHECK(zonal_free_bulk(pool, pages, len, 0) == len);
    CHECK(zonal_validate(pool) == ZONAL_OK);
    CHECK(zonal_pool_destroy(pool) == ZONAL_OK);
}

int main(void) {
    no_function_takes_what_is_no_pool();
    no_function_writes_to_what_is_no_struct();
    a_consumer_that_lies_loses_nothing();
    puts("ok");
    return 0;
}
