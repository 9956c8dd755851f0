/* A server with threads that hand requests to each other in pages of a pool: one thread reads, four
 * answer, and whoever has a page frees it. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "zonal.h"

#define REQUESTS 20000
#define WORKERS 4

/* glue: an owned buffer is a page; its owner passes it on, or gives it back. */
static zonal_pool *pool;
static char *buffer_get(void) { return zonal_alloc_page(pool); }
static void buffer_put(char *buffer) {
    if (zonal_free_page(pool, buffer) != ZONAL_OK) {
        fprintf(stderr, "%s\n", zonal_last_error());
    }
}
/* end of glue */

/* A queue of the usual kind. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    char *items[256];
    size_t first, len;
} queue = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, {0}, 0, 0};

static void queue_push(char *item) {
    pthread_mutex_lock(&queue.lock);
    while (queue.len == 256) {
        pthread_cond_wait(&queue.moved, &queue.lock);
    }
    queue.items[(queue.first + queue.len++) % 256] = item;
    pthread_cond_broadcast(&queue.moved);
    pthread_mutex_unlock(&queue.lock);
}

static char *queue_pop(void) {
    char *item;
    pthread_mutex_lock(&queue.lock);
    while (queue.len == 0) {
        pthread_cond_wait(&queue.moved, &queue.lock);
    }
    item = queue.items[queue.first];
    queue.first = (queue.first + 1) % 256;
    queue.len--;
    pthread_cond_broadcast(&queue.moved);
    pthread_mutex_unlock(&queue.lock);
    return item;
}

static void *worker(void *answered) {
    char *request;
    while ((request = queue_pop()) != NULL) {
        *(size_t *)answered += strncmp(request, "request ", 8) == 0;
        buffer_put(request);
    }
    return NULL;
}

int main(void) {
    pthread_t workers[WORKERS];
    size_t answered[WORKERS] = {0}, all = 0;
    zonal_options options;
    int i;
    zonal_options_init(&options);
    options.bytes = 64 << 20;
    pool = zonal_pool_create(&options);
    if (pool == NULL) {
        fprintf(stderr, "%s\n", zonal_last_error());
        return 1;
    }
    for (i = 0; i < WORKERS; i++) {
        pthread_create(&workers[i], NULL, worker, &answered[i]);
    }
    for (i = 0; i < REQUESTS; i++) {
        char *request = buffer_get();
        if (request == NULL) {
            fprintf(stderr, "%s\n", zonal_last_error());
            return 1;
        }
        snprintf(request, 4096, "request %d", i);
        queue_push(request);
    }
    for (i = 0; i < WORKERS; i++) {
        queue_push(NULL);
    }
    for (i = 0; i < WORKERS; i++) {
        pthread_join(workers[i], NULL);
        all += answered[i];
    }
    /* Refuses, with a sentence, while a page is still in use. */
    if (all != REQUESTS || zonal_pool_destroy(pool) != ZONAL_OK) {
        fprintf(stderr, "%zu answered; %s\n", all, zonal_last_error());
        return 1;
    }
    puts("ok");
    return 0;
}
