/* Figures, texts, budget, trim, sysctls, requests that fail on purpose, poison. */
#include "check.h"

static void texts(zonal_pool *pool) {
    static const struct {
        uint32_t kind;
        const char *has;
    } kinds[] = {
        {ZONAL_TEXT_ZONEINFO, "Node 0, zone   Normal"},
        {ZONAL_TEXT_BUDDYINFO, "Node 0, zone   Normal"},
        {ZONAL_TEXT_PAGETYPEINFO, "Page block order: 9"},
        {ZONAL_TEXT_VMSTAT, "nr_free_pages "},
        {ZONAL_TEXT_NUMASTAT, "numa_hit "},
        {ZONAL_TEXT_NODE_MEMINFO, "Node 0 MemTotal:"},
        {ZONAL_TEXT_NODE_VMSTAT, "nr_free_pages "},
        {ZONAL_TEXT_OPENMETRICS, "# EOF"},
        {ZONAL_TEXT_HELD, "free, in memory"},
        {ZONAL_TEXT_NOTICES, ""},
        {ZONAL_TEXT_MODE, ""},
        {ZONAL_TEXT_CONSUMERS, ""},
    };
    static char text[1 << 16];
    char cut[10];
    size_t i;
    uint32_t layout;
    for (i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        for (layout = 0; layout <= ZONAL_LAYOUT_7_0; layout++) {
            int64_t len = zonal_text(pool, kinds[i].kind, layout, 0, text, sizeof text);
            CHECK(len >= 0 && (size_t)len < sizeof text && strlen(text) == (size_t)len);
            CHECK(strstr(text, kinds[i].has) != NULL);
        }
    }
    CHECK(zonal_text(pool, ZONAL_TEXT_BUDDYINFO, 0, 0, cut, sizeof cut) > 9);
    CHECK(strcmp(cut, "Node 0, z") == 0);
    CHECK(zonal_text(pool, ZONAL_TEXT_BUDDYINFO, 0, 0, NULL, 0) > 9);
    CHECK(zonal_text(pool, ZONAL_TEXT_BUDDYINFO, 0, 0, NULL, 5) == -1);
    SAYS(ZONAL_E_ARGUMENT, "buffer: null");
    CHECK(zonal_text(pool, 12, 0, 0, text, sizeof text) == -1);
    SAYS(ZONAL_E_ARGUMENT, "kind of text: 12; expected 0 to 11");
    CHECK(zonal_text(pool, 0, 5, 0, text, sizeof text) == -1);
    SAYS(ZONAL_E_ARGUMENT, "layout: 5");
    CHECK(zonal_text(pool, ZONAL_TEXT_NUMASTAT, 0, -1, text, sizeof text) == -1);
    SAYS(ZONAL_E_ARGUMENT, "node -1");
    CHECK(zonal_explain(pool, 3, ZONAL_GFP_KERNEL, ZONAL_ANY_NODE, text, sizeof text) > 0);
    CHECK(zonal_explain(pool, 33, ZONAL_GFP_KERNEL, ZONAL_ANY_NODE, text, sizeof text) == -1);
}

static void figures(zonal_pool *pool) {
    zonal_pool_info info;
    zonal_zone_stats zone;
    zonal_node_stats node;
    zonal_held held;
    void *block = zonal_alloc(pool, 5, ZONAL_GFP_KERNEL);
    CHECK(block != NULL);
    zonal_pool_info_init(&info);
    CHECK(zonal_pool_get_info(pool, &info) == ZONAL_OK);
    CHECK(info.size == sizeof info && info.bytes == 64 * MIB && info.nodes == 2);
    CHECK(info.zones == 2 && info.budget == info.bytes && info.free_pages == 16384 - 32);
    CHECK((char *)block >= (const char *)info.base);
    zonal_zone_stats_init(&zone);
    CHECK(zonal_zone_get_stats(pool, 1, &zone) == ZONAL_OK);
    CHECK(zone.node == 1 && zone.kind == 2 && zone.managed_pages == 8192);
    CHECK(zone.min < zone.low && zone.low < zone.high && zone.size == sizeof zone);
    REFUSED(zonal_zone_get_stats(pool, 2, &zone), ZONAL_E_ARGUMENT, "zones 0 to 1");
    REFUSED(zonal_zone_get_stats(pool, 1, NULL), ZONAL_E_ARGUMENT, "zonal_zone_stats is null");
    zonal_node_stats_init(&node);
    CHECK(zonal_node_get_stats(pool, 0, &node) == ZONAL_OK && node.has_memory == 1);
    REFUSED(zonal_node_get_stats(pool, 2, &node), ZONAL_E_ARGUMENT, "nodes 0 to 1");
    zonal_held_init(&held);
    CHECK(zonal_get_held(pool, &held) == ZONAL_OK && held.users == 32 * 4096);
    held.size = 3;
    REFUSED(zonal_get_held(pool, &held), ZONAL_E_STRUCT, "says 3");
    CHECK(zonal_free(pool, block, 5) == ZONAL_OK);
}

static void settings(zonal_pool *pool) {
    zonal_pool_info info;
    uint32_t cpu;
    void *block = zonal_alloc(pool, 10, ZONAL_GFP_KERNEL);
    CHECK(block != NULL);
    memset(block, 1, 4 * MIB); /* in memory, so that there is something to trim */
    CHECK(zonal_free(pool, block, 10) == ZONAL_OK);
    zonal_pool_info_init(&info);
    CHECK(zonal_set_sysctl(pool, "vm.min_free_kbytes", 1024) == ZONAL_OK);
    CHECK(zonal_set_sysctl(pool, "vm.lowmem_reserve_ratio.DMA32", 64) == ZONAL_OK);
    REFUSED(zonal_set_sysctl(pool, "vm.min_free", 1), ZONAL_E_ARGUMENT, "sysctl 'vm.min_free'");
    REFUSED(zonal_set_sysctl(pool, NULL, 1), ZONAL_E_ARGUMENT, "name is null");
    REFUSED(zonal_set_sysctl(pool, "vm.watermark_scale_factor", 9999), ZONAL_E_ARGUMENT, "3000");
    REFUSED(zonal_set_sysctl(pool, "\xff", 1), ZONAL_E_ARGUMENT, "not UTF-8");
    for (cpu = 0; cpu < 5000; cpu += 1000) {
        zonal_refresh(pool, cpu);
    }
    CHECK(zonal_restart_refresh(pool, 50, 0) == ZONAL_OK);
    REFUSED(zonal_restart_refresh(pool, 0, 0), ZONAL_E_ARGUMENT, "0 ms");
    CHECK(zonal_set_budget(pool, 32 * MIB) == ZONAL_OK);
    CHECK(zonal_pool_get_info(pool, &info) == ZONAL_OK && info.budget == 32 * MIB);
    CHECK(zonal_set_budget(pool, UINT64_MAX) == ZONAL_OK);
    zonal_drain(pool);
    CHECK(zonal_trim(pool, UINT64_MAX) > 0);
    CHECK(zonal_finish_growth(pool) == ZONAL_OK);
    REFUSED(zonal_fail_alloc(pool, 1, 1), ZONAL_E_ARGUMENT, "without fail_every");
}

static void requests_that_fail(void) {
    zonal_options options;
    zonal_pool *pool;
    void *page;
    zonal_options_init(&options);
    options.bytes = 16 * MIB;
    options.fail_every = UINT64_MAX;
    pool = zonal_pool_create(&options);
    CHECK(pool != NULL);
    CHECK(zonal_fail_alloc(pool, 1, 2) == ZONAL_OK);
    page = zonal_alloc_page(pool);
    CHECK(page != NULL && zonal_alloc_page(pool) == NULL);
    SAYS(ZONAL_E_INJECTED, "");
    CHECK(zonal_free_page(pool, page) == ZONAL_OK);
    REFUSED(zonal_fail_alloc(pool, 3, 1), ZONAL_E_ARGUMENT, "how: 3; expected 0 to 2");
    CHECK(zonal_fail_alloc(pool, 2, 1) == ZONAL_OK);
    CHECK(zonal_range_alloc(pool, 3) == NULL);
    SAYS(ZONAL_E_INJECTED, "");
    CHECK(zonal_pool_destroy(pool) == ZONAL_OK);
}

static void poison(void) {
    zonal_options options;
    zonal_pool_info info;
    zonal_pool *pool;
    char *page;
    zonal_options_init(&options);
    options.bytes = 8 * MIB;
    options.flags = ZONAL_POISON | ZONAL_NO_REFRESH | ZONAL_NO_BACKGROUND;
    pool = zonal_pool_create(&options);
    CHECK(pool != NULL);
    page = zonal_alloc_page(pool);
    CHECK(page != NULL && zonal_free_page(pool, page) == ZONAL_OK);
    page[100] = 1; /* after the free */
    while (zonal_alloc_page(pool) != NULL) {
    }
    zonal_pool_info_init(&info);
    CHECK(zonal_pool_get_info(pool, &info) == ZONAL_OK && info.poison_hits == 1);
    CHECK(zonal_pool_discard(pool) == ZONAL_OK);
}

/* What nobody was given is no reason to keep a pool, and is not named as something to free. */
static void what_is_nobodys(void) {
    zonal_options options;
    zonal_pool *pool;
    char *page, *other, text[64];
    zonal_options_init(&options);
    options.bytes = 16 * MIB;
    options.budget = 8 * MIB;
    options.flags = ZONAL_POISON;
    pool = zonal_pool_create(&options);
    CHECK(pool != NULL);
    page = zonal_alloc_page(pool);
    CHECK(page != NULL && zonal_free_page(pool, page) == ZONAL_OK);
    page[100] = 1; /* after the free: the page stays out of use */
    other = zonal_alloc_page(pool);
    CHECK(other != NULL && other != page);
    snprintf(text, sizeof text, "the block of order 0 at %p;", (void *)other);
    REFUSED(zonal_pool_destroy(pool), ZONAL_E_BUSY, text);
    CHECK(zonal_free_page(pool, other) == ZONAL_OK);
    CHECK(zonal_pool_destroy(pool) == ZONAL_OK);
}

int main(void) {
    zonal_options options;
    zonal_pool *pool;
    zonal_options_init(&options);
    options.bytes = 64 * MIB;
    options.fake_nodes = 2;
    options.policy = "linux-6.18, watermark.boost_factor=0";
    pool = zonal_pool_create(&options);
    CHECK(pool != NULL);
    figures(pool);
    texts(pool);
    settings(pool);
    CHECK(zonal_pool_destroy(pool) == ZONAL_OK);
    requests_that_fail();
    poison();
    what_is_nobodys();
    puts("ok");
    return 0;
}
