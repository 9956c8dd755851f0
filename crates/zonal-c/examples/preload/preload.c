/* The memory of a program that nobody changed, out of a pool: preloaded, this library gives
 * jemalloc extent hooks, or mimalloc a range to manage.
 *
 *     cc -shared -fPIC -o preload.so preload.c libzonal.a -lgcc_s -lpthread -ldl -lm
 *     ZONAL_BYTES=1073741824 ZONAL_STATS=stats.txt LD_PRELOAD=./preload.so redis-server
 *
 * ZONAL_BYTES   bytes of the pool: no more is ever in use. Without it: 1 GiB.
 * ZONAL_STATS   a file that gets the pool's OpenMetrics each second.
 *
 * jemalloc: an arena of its own with the hooks, which the main thread and all threads started later
 * use. Arena 0 keeps jemalloc's own hooks: what this library itself allocates inside a hook comes
 * from there (jemalloc does so while a hook runs), so that a hook never waits for itself. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "zonal.h"

#define PAGE 4096u

static zonal_pool *pool;
/* A copy: programs that change their title write over their environment. */
static char *stats;
/* 0 until the arena is there, so that the pool's own threads stay with arena 0. */
static unsigned arena;

/* jemalloc's interface, as its manual has it. */
typedef struct extent_hooks_s extent_hooks_t;
struct extent_hooks_s {
    void *(*alloc)(extent_hooks_t *, void *, size_t, size_t, bool *, bool *, unsigned);
    bool (*dalloc)(extent_hooks_t *, void *, size_t, bool, unsigned);
    void (*destroy)(extent_hooks_t *, void *, size_t, bool, unsigned);
    bool (*commit)(extent_hooks_t *, void *, size_t, size_t, size_t, unsigned);
    bool (*decommit)(extent_hooks_t *, void *, size_t, size_t, size_t, unsigned);
    bool (*purge_lazy)(extent_hooks_t *, void *, size_t, size_t, size_t, unsigned);
    bool (*purge_forced)(extent_hooks_t *, void *, size_t, size_t, size_t, unsigned);
    bool (*split)(extent_hooks_t *, void *, size_t, size_t, size_t, bool, unsigned);
    bool (*merge)(extent_hooks_t *, void *, size_t, void *, size_t, bool, unsigned);
};
typedef int mallctl_fn(const char *, void *, size_t *, void *, size_t);
/* mimalloc's. */
typedef bool manage_fn(void *, size_t, bool, bool, bool, int, bool, int *);

static mallctl_fn *control;

static void *take(extent_hooks_t *hooks, void *at, size_t size, size_t align, bool *zero,
                  bool *commit, unsigned index) {
    zonal_range_request request;
    (void)hooks;
    (void)index;
    zonal_range_request_init(&request, size / PAGE);
    request.gfp |= *zero ? ZONAL_GFP_ZERO : 0;
    *commit = true;
    if (at != NULL) {
        return zonal_range_alloc_at(pool, at, size / PAGE, request.gfp) == ZONAL_OK ? at : NULL;
    }
    if (align > (size_t)1024 * PAGE) {
        return NULL;
    }
    request.align = align > PAGE ? align / PAGE : 1;
    return zonal_range_alloc_with(pool, &request);
}

/* Extents that jemalloc merged may be of several ranges: then each half by itself. True: not all of
 * it was the pool's, and jemalloc keeps it. */
static bool give(char *start, size_t pages) {
    bool front, back;
    if (zonal_range_free(pool, start, pages) == ZONAL_OK) {
        return false;
    }
    if (pages == 1 || zonal_last_error_code() != ZONAL_E_NOT_A_BLOCK) {
        return true;
    }
    front = give(start, pages / 2);
    back = give(start + pages / 2 * PAGE, pages - pages / 2);
    return front || back;
}

static bool drop(extent_hooks_t *hooks, void *start, size_t size, bool committed, unsigned index) {
    (void)hooks;
    (void)committed;
    (void)index;
    return give(start, size / PAGE);
}

static void destroy(extent_hooks_t *hooks, void *start, size_t size, bool committed,
                    unsigned index) {
    drop(hooks, start, size, committed, index);
}

static bool purge(char *start, size_t offset, size_t length, int advice) {
    return madvise(start + offset, length, advice) != 0;
}

static bool purge_lazy(extent_hooks_t *hooks, void *start, size_t size, size_t offset,
                       size_t length, unsigned index) {
    (void)hooks;
    (void)size;
    (void)index;
    return purge(start, offset, length, MADV_FREE);
}

static bool purge_forced(extent_hooks_t *hooks, void *start, size_t size, size_t offset,
                         size_t length, unsigned index) {
    (void)hooks;
    (void)size;
    (void)index;
    return purge(start, offset, length, MADV_DONTNEED);
}

/* Any part of a range can go back by itself. */
static bool split(extent_hooks_t *hooks, void *start, size_t size, size_t front, size_t back,
                  bool committed, unsigned index) {
    (void)hooks;
    (void)start;
    (void)size;
    (void)front;
    (void)back;
    (void)committed;
    (void)index;
    return false;
}

static bool merge(extent_hooks_t *hooks, void *front, size_t front_size, void *back,
                  size_t back_size, bool committed, unsigned index) {
    (void)hooks;
    (void)front_size;
    (void)back_size;
    (void)committed;
    (void)index;
    return zonal_node_of(pool, front) != zonal_node_of(pool, back);
}

static extent_hooks_t hooks = {take, drop, destroy, NULL, NULL, purge_lazy, purge_forced, split,
                               merge};

static void use_arena(void) {
    if (arena != 0) {
        control("thread.arena", NULL, NULL, &arena, sizeof arena);
    }
}

/* Threads of the program use the arena from their start. */
struct start {
    void *(*run)(void *);
    void *argument;
};

static void *started(void *argument) {
    struct start start = *(struct start *)argument;
    free(argument);
    use_arena();
    return start.run(start.argument);
}

typedef int create_fn(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                   void *argument) {
    create_fn *create;
    struct start *start;
    int error;
    *(void **)&create = dlsym(RTLD_NEXT, "pthread_create");
    if (arena == 0 || (start = malloc(sizeof *start)) == NULL) {
        return create(thread, attributes, run, argument);
    }
    start->run = run;
    start->argument = argument;
    error = create(thread, attributes, started, start);
    if (error != 0) {
        free(start);
    }
    return error;
}

/* Writes the figures beside the file first, so that a reader finds all of them. */
static void *write_stats(void *unused) {
    static char text[1 << 18];
    char beside[4096];
    (void)unused;
    snprintf(beside, sizeof beside, "%s.new", stats);
    for (;; sleep(1)) {
        FILE *file = fopen(beside, "w");
        if (file != NULL) {
            zonal_text(pool, ZONAL_TEXT_OPENMETRICS, 0, 0, text, sizeof text);
            fputs(text, file);
            if (fclose(file) == 0) {
                rename(beside, stats);
            }
        }
    }
    return NULL;
}

static int to_jemalloc(void) {
    extent_hooks_t *ours = &hooks;
    unsigned made = 0;
    size_t size = sizeof made;
    int error = control("arenas.create", &made, &size, &ours, sizeof ours);
    if (error == 0) {
        arena = made;
        use_arena();
    }
    return error;
}

/* mimalloc finds the segment of a block by its address: stretches of 64 MiB, at multiples of it. */
#define STRETCH ((uintptr_t)64 << 20)

static int to_mimalloc(manage_fn *manage) {
    zonal_pool_info info;
    uintptr_t start, end;
    zonal_pool_info_init(&info);
    zonal_pool_get_info(pool, &info);
    start = ((uintptr_t)info.base + STRETCH - 1) / STRETCH * STRETCH;
    /* Some is left above the watermarks. */
    end = ((uintptr_t)info.base + info.bytes / 16 * 15) / STRETCH * STRETCH;
    if (end <= start) {
        fprintf(stderr, "zonal preload: mimalloc needs a pool of 256 MiB and more\n");
        return -1;
    }
    if (zonal_range_alloc_at(pool, (void *)start, (end - start) / PAGE, ZONAL_GFP_KERNEL) != 0) {
        fprintf(stderr, "zonal preload: %s\n", zonal_last_error());
        return -1;
    }
    return manage((void *)start, end - start, true, false, false, -1, false, NULL) ? 0 : -1;
}

__attribute__((constructor)) static void begin(void) {
    const char *bytes = getenv("ZONAL_BYTES"), *path;
    manage_fn *manage;
    zonal_options options;
    pthread_t thread;
    int error;
    *(void **)&control = dlsym(RTLD_DEFAULT, "mallctl");
    *(void **)&manage = dlsym(RTLD_DEFAULT, "mi_manage_os_memory_ex");
    if (control == NULL && manage == NULL) {
        return; /* a program with another malloc, such as the shell that starts it */
    }
    zonal_options_init(&options);
    options.bytes = bytes != NULL ? strtoull(bytes, NULL, 10) : (uint64_t)1 << 30;
    pool = zonal_pool_create(&options);
    if (pool == NULL) {
        fprintf(stderr, "zonal preload: %s\n", zonal_last_error());
        return;
    }
    path = getenv("ZONAL_STATS");
    stats = path != NULL ? strdup(path) : NULL;
    if (stats != NULL && pthread_create(&thread, NULL, write_stats, NULL) != 0) {
        fprintf(stderr, "zonal preload: no thread for ZONAL_STATS\n");
    }
    error = control != NULL ? to_jemalloc() : to_mimalloc(manage);
    if (error != 0) {
        fprintf(stderr, "zonal preload: the allocator did not take the pool (%d)\n", error);
    }
}
