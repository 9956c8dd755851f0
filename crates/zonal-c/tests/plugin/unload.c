/* A program that loads the library, uses a pool and unloads it. Argument: the library. */
#define _DEFAULT_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include "check.h"

static void *(*pool_create)(const zonal_options *);
static int32_t (*get_info)(void *, zonal_pool_info *);
static int32_t (*pool_destroy)(void *);
static void *(*alloc_page)(void *);
static int32_t (*free_page)(void *, void *);

static void *loaded(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        printf("%s\n", dlerror());
        exit(1);
    }
    *(void **)&pool_create = dlsym(library, "zonal_pool_create");
    *(void **)&get_info = dlsym(library, "zonal_pool_get_info");
    *(void **)&pool_destroy = dlsym(library, "zonal_pool_destroy");
    *(void **)&alloc_page = dlsym(library, "zonal_alloc_page");
    *(void **)&free_page = dlsym(library, "zonal_free_page");
    return library;
}

/* A thread of its own: what it leaves to be done at its end does not keep the library loaded. */
static void *create(void *made) {
    zonal_options options;
    zonal_options_init(&options);
    options.bytes = 16 * MIB;
    options.flags = ZONAL_NO_REFRESH | ZONAL_NO_BACKGROUND;
    *(void **)made = pool_create(&options);
    return NULL;
}

static void use_and_unload(const char *path) {
    void *library = loaded(path), *pool = NULL;
    zonal_pool_info info;
    pthread_t thread;
    int round;
    if (pthread_create(&thread, NULL, create, &pool) != 0 || pthread_join(thread, NULL) != 0 ||
        pool == NULL) {
        exit(2);
    }
    zonal_pool_info_init(&info);
    if (get_info(pool, &info) != ZONAL_OK) {
        exit(3);
    }
    printf("sequences: %u\n", info.uses_rseq);
    for (round = 0; round < 100; round++) {
        if (free_page(pool, alloc_page(pool)) != ZONAL_OK) {
            exit(4);
        }
    }
    if (pool_destroy(pool) != ZONAL_OK || dlclose(library) != 0) {
        exit(5);
    }
    /* The kernel looks at the thread's last sequence when it takes the CPU away. */
    for (round = 0; round < 200; round++) {
        struct timespec nap = {0, 100000};
        nanosleep(&nap, NULL);
        sched_yield();
    }
}

int main(int count, char **arguments) {
    if (count != 2) {
        return 6;
    }
    use_and_unload(arguments[1]);
    use_and_unload(arguments[1]);
    puts("ok");
    return 0;
}
