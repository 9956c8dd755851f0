// Goroutines take and free pages of a pool, beside a cache of Go that gives pages up.
//
//	CGO_CFLAGS="$(pkg-config --cflags zonal)" CGO_LDFLAGS="$(pkg-config --libs zonal)" go run .
package main

/*
#include <zonal.h>

// The sentence is kept for the thread, and a goroutine may be on another one at its next call: call
// and sentence are one call of C.
static void *take(zonal_pool *pool, const char **why) {
	void *page = zonal_alloc_page(pool);
	*why = page == NULL ? zonal_last_error() : NULL;
	return page;
}

static const char *put(zonal_pool *pool, void *page) {
	return zonal_free_page(pool, page) == ZONAL_OK ? NULL : zonal_last_error();
}

uint64_t goCount(void *data, int32_t node);
uint64_t goScan(void *data, uint64_t objects, int32_t node, uint32_t by, uint64_t *scanned);
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"unsafe"
)

var (
	pool  *C.zonal_pool
	mutex sync.Mutex
	cache []unsafe.Pointer
)

func take() (unsafe.Pointer, error) {
	var why *C.char
	page := C.take(pool, &why)
	if page == nil {
		return nil, errors.New(C.GoString(why))
	}
	return page, nil
}

func put(page unsafe.Pointer) {
	if why := C.put(pool, page); why != nil {
		panic(C.GoString(why))
	}
}

// The pool calls these in the middle of an allocation, on any thread: they wait for no lock.

//export goCount
func goCount(data unsafe.Pointer, node C.int32_t) C.uint64_t {
	if !mutex.TryLock() {
		return 0
	}
	defer mutex.Unlock()
	return C.uint64_t(len(cache))
}

//export goScan
func goScan(data unsafe.Pointer, objects C.uint64_t, node C.int32_t, by C.uint32_t,
	scanned *C.uint64_t) C.uint64_t {
	if !mutex.TryLock() {
		return C.ZONAL_SCAN_STOP
	}
	defer mutex.Unlock()
	freed := C.uint64_t(0)
	for ; freed < objects && len(cache) > 0; freed++ {
		put(cache[len(cache)-1])
		cache = cache[:len(cache)-1]
	}
	return freed
}

func work(id byte) error {
	for turn := 0; turn < 100; turn++ {
		var held []unsafe.Pointer
		for len(held) < 40 {
			page, err := take()
			if err != nil {
				return err
			}
			unsafe.Slice((*byte)(page), 4096)[0] = id
			held = append(held, page)
		}
		for _, page := range held {
			if *(*byte)(page) != id {
				return errors.New("a page has two owners")
			}
			put(page)
		}
	}
	return nil
}

func run() error {
	var options C.zonal_options
	C.zonal_options_init(&options)
	options.bytes = 32 << 20
	if pool = C.zonal_pool_create(&options); pool == nil {
		return errors.New(C.GoString(C.zonal_last_error()))
	}
	var shrinker C.zonal_shrinker
	C.zonal_shrinker_init(&shrinker)
	shrinker.count = C.zonal_count_fn(C.goCount)
	shrinker.scan = C.zonal_scan_fn(C.goScan)
	consumer := C.zonal_shrinker_register(pool, &shrinker)
	if consumer == nil {
		return errors.New(C.GoString(C.zonal_last_error()))
	}
	for i := 0; i < 7000; i++ {
		page, err := take()
		if err != nil {
			return err
		}
		mutex.Lock()
		cache = append(cache, page)
		mutex.Unlock()
	}
	results := make(chan error)
	for id := byte(0); id < 50; id++ {
		go func(id byte) { results <- work(id) }(id)
	}
	for id := 0; id < 50; id++ {
		if err := <-results; err != nil {
			return err
		}
	}
	C.zonal_consumer_remove(consumer)
	for _, page := range cache {
		put(page)
	}
	if C.zonal_pool_destroy(pool) != C.ZONAL_OK {
		return errors.New("pages are left")
	}
	return nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("ok")
}
