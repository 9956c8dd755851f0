/* Blocks travel between threads; errors belong to theirs; a forked child has a pool of its own. */
#define _DEFAULT_SOURCE
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define THREADS 4
#define ROUNDS 20000
#define SLOTS 64

static zonal_pool *pool;
static void *slots[SLOTS];

/* Puts a block where another thread takes it, and frees what was there. */
static void *trade(void *argument) {
    unsigned state = (unsigned)(size_t)argument * 2654435761u + 1;
    int round;
    for (round = 0; round < ROUNDS; round++) {
        void *page, *other;
        state = state * 1664525u + 1013904223u;
        page = zonal_alloc_page(pool);
        CHECK(page != NULL);
        *(void **)page = page;
        other = __atomic_exchange_n(&slots[(state >> 16) % SLOTS], page, __ATOMIC_ACQ_REL);
        if (other != NULL) {
            CHECK(*(void **)other == other);
            CHECK(zonal_free_page(pool, other) == ZONAL_OK);
        }
    }
    return NULL;
}

static void *fails(void *argument) {
    (void)argument;
    CHECK(zonal_last_error_code() == ZONAL_OK);
    CHECK(zonal_free_page(pool, NULL) == ZONAL_E_ARGUMENT);
    return NULL;
}

static void child(void *before) {
    void *page = zonal_alloc_page(pool);
    CHECK(page != NULL && zonal_free_page(pool, page) == ZONAL_OK);
    CHECK(zonal_free_page(pool, before) == ZONAL_OK);
    CHECK(zonal_restart_refresh(pool, 100, 0) == ZONAL_OK);
    CHECK(zonal_restart_reclaim(pool) == ZONAL_OK);
    CHECK(zonal_pool_destroy(pool) == ZONAL_OK);
    /* Without a look for leaks: what the parent's threads had on the heap is nobody's here. */
    _exit(0);
}

int main(void) {
    pthread_t threads[THREADS];
    size_t i;
    int status;
    pid_t pid;
    void *page;
    pool = pool_of(64 * MIB);
    for (i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, trade, (void *)i) == 0);
    }
    for (i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    for (i = 0; i < SLOTS; i++) {
        CHECK(slots[i] != NULL && zonal_free_page(pool, slots[i]) == ZONAL_OK);
    }
    CHECK(free_pages(pool) == 16384);
    CHECK(pthread_create(&threads[0], NULL, fails, NULL) == 0);
    CHECK(pthread_join(threads[0], NULL) == 0);
    CHECK(zonal_last_error_code() == ZONAL_OK);

    page = zonal_alloc_page(pool);
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        child(page);
    }
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
    CHECK(zonal_free_page(pool, page) == ZONAL_OK);
    CHECK(zonal_validate(pool) == ZONAL_OK);
    CHECK(zonal_pool_destroy(pool) == ZONAL_OK);
    puts("ok");
    return 0;
}
