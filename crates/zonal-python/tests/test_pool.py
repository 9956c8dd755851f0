"""Pools, their buffers, and everything that may be done to them in the wrong order."""

from __future__ import annotations

import gc
import os
import threading
import time
import weakref
from typing import Any, Callable, List, Optional

import pytest

import zonal

np = pytest.importorskip("numpy")

MIB = 1 << 20
FreshCode = Callable[..., Any]


@pytest.fixture
def pool() -> zonal.Pool:
    return zonal.Pool(64 * MIB)


def used(pool: zonal.Pool) -> int:
    return pool.statistics().held.users_bytes


def test_sizes_are_exact_and_no_more_than_a_page_is_lost(pool: zonal.Pool) -> None:
    for nbytes in (1, 4096, 4097, 20_000, 3 * MIB, 5 * MIB, 17 * MIB + 1):
        before = used(pool)
        buffer = pool.alloc(nbytes)
        assert (buffer.nbytes, len(buffer)) == (nbytes, nbytes)
        assert buffer.capacity == -(-nbytes // 4096) * 4096
        assert buffer.address % 4096 == 0
        assert used(pool) - before == buffer.capacity
        buffer.release()
        assert used(pool) == before
    pool.validate()


def test_packed_buffers_leave_no_holes_that_the_same_size_cannot_fill() -> None:
    pool = zonal.Pool(32 * MIB)
    held: List[Any] = []
    try:
        while True:
            held.append(pool.alloc(384 * 4096, packed=True))
    except zonal.OutOfMemoryError:
        pass
    assert len(held) * 384 > 8192 * 0.9
    for at in range(0, 500):
        held[at * 7 % len(held)].release()
        held[at * 7 % len(held)] = pool.alloc(384 * 4096, packed=True)
    pool.validate()


def test_a_view_is_writable_memory_of_the_buffer(pool: zonal.Pool) -> None:
    buffer = pool.alloc(10_000, zeroed=True)
    view = buffer.view()
    assert (view.format, view.shape, view.readonly) == ("B", (10_000,), False)
    assert bytes(view) == bytes(10_000)
    view[:5] = b"hello"
    array = buffer.numpy((2500,), "int32")
    assert array.ctypes.data == buffer.address
    assert bytes(array[:2].tobytes())[:5] == b"hello"
    array[:] = 7
    assert view[4] == 7
    assert np.asarray(buffer).ctypes.data == buffer.address


def test_whoever_reads_the_bytes_keeps_them_from_being_released(pool: zonal.Pool) -> None:
    makers = [
        lambda buffer: np.frombuffer(buffer, dtype="uint8"),
        lambda buffer: np.ndarray((4096,), "uint8", buffer=buffer),
        lambda buffer: np.asarray(memoryview(buffer)),
    ]
    for make in makers:
        with pool.alloc(4096, zeroed=True) as buffer:
            # NumPy would keep the buffer alone, which counts no view, and use pages of others.
            with pytest.raises(TypeError):
                make(buffer)
            assert buffer.views == 0
        assert buffer.released
        buffer = pool.alloc(4096, zeroed=True)
        array = make(buffer.view())
        gc.collect()
        with pytest.raises(BufferError, match="views of the buffer exist"):
            buffer.release()
        array[0] = 1
        part = array[10:20]
        del array
        gc.collect()
        with pytest.raises(BufferError, match="views of the buffer exist"):
            buffer.release()
        del part
        gc.collect()
        buffer.release()
    with pool.alloc(4096) as buffer:
        array = np.asarray(buffer)
        with pytest.raises(BufferError):
            buffer.release()
        del array
    pool.validate()


def test_pages_live_as_long_as_any_array_over_them(pool: zonal.Pool) -> None:
    free = pool.free_pages
    array = pool.empty((100, 1000), "float32")
    array[:] = 3
    rows = array[10:20]
    alive = weakref.ref(array)
    del array
    gc.collect()
    assert pool.free_pages < free  # The slice keeps them.
    assert float(rows.sum()) == 3 * 10 * 1000
    del rows
    gc.collect()
    assert pool.free_pages == free
    del alive


def test_arrays_outlive_their_pool() -> None:
    pool = zonal.Pool(32 * MIB)
    array = pool.zeros((1024, 1024), "uint8")
    del pool
    gc.collect()
    array[:] = 9
    assert int(array.sum()) == 9 * MIB
    other = zonal.Pool(32 * MIB)  # Another pool is not disturbed when the first one goes.
    del array
    gc.collect()
    other.validate()


def test_release_is_refused_while_views_exist_and_done_once(pool: zonal.Pool) -> None:
    free = pool.free_pages
    buffer = pool.alloc(8192)
    view = buffer.view()
    assert buffer.views == 1
    with pytest.raises(BufferError, match="1 views"):
        buffer.release()
    del view
    buffer.release()
    assert buffer.released and pool.free_pages == free
    buffer.release()
    assert pool.free_pages == free
    for use in (buffer.view, buffer.numpy, lambda: buffer.tensor([1], "uint8").__dlpack__()):
        with pytest.raises(zonal.ReleasedError):
            use()
    assert "released" in repr(buffer)
    with pool.alloc(4096) as within:
        assert not within.released
    assert within.released
    pool.validate()


def test_a_buffer_that_was_released_inside_its_own_view_is_refused(pool: zonal.Pool) -> None:
    with pytest.raises(BufferError):
        with pool.alloc(4096) as buffer:
            view = buffer.view()
    view[0] = 1
    del view
    buffer.release()


def test_too_much_is_refused_with_a_reason_and_nothing_is_lost(pool: zonal.Pool) -> None:
    free = pool.free_pages
    with pytest.raises(zonal.OutOfMemoryError) as raised:
        pool.alloc(65 * MIB)
    assert isinstance(raised.value, MemoryError) and str(65 * MIB) in str(raised.value)
    with pytest.raises(zonal.OutOfMemoryError):
        pool.alloc_many(100_000, 4096)  # More than there are: all or none.
    with pytest.raises(zonal.OutOfMemoryError):
        pool.empty((1 << 40,), "float64")
    assert pool.free_pages == free
    pool.validate()


def test_wrong_arguments_are_refused(pool: zonal.Pool) -> None:
    for wrong in (0, -1, 1 << 63, 1 << 70):
        with pytest.raises(zonal.ArgumentError):
            pool.alloc(wrong)
    for wrong_type in (None, "4096", 1.5, True):
        with pytest.raises(TypeError):
            pool.alloc(wrong_type)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            zonal.Pool(wrong_type)  # type: ignore[arg-type]
    with pytest.raises(zonal.ArgumentError, match="nodes"):
        pool.alloc(1, node=1000)
    with pytest.raises(zonal.ArgumentError):
        pool.alloc(1, node=-1)
    assert zonal.Pool(4097).nbytes == 4 * MIB
    with pytest.raises(zonal.Error):
        zonal.Pool(4097, node=0)
    with pytest.raises(zonal.Error):
        zonal.Pool(1 << 62)
    with pytest.raises(zonal.ArgumentError, match="huge_pages"):
        zonal.Pool(MIB * 16, huge_pages="4M")
    with pytest.raises(zonal.ArgumentError, match="prefault"):
        zonal.Pool(MIB * 16, prefault="later")
    for wrong in ("yes", 3, None):
        with pytest.raises(zonal.ArgumentError, match="prefault: .*; expected True, False or"):
            zonal.Pool(MIB * 16, prefault=wrong)  # type: ignore[arg-type]
    with pytest.raises(zonal.PolicyError):
        zonal.Pool(MIB * 16, policy="nope")
    buffer = pool.alloc(4096)
    for wrong_view in (((5000,), "uint8", 0), ((512,), "int64", 8), ((1,), "int64", 9999)):
        with pytest.raises(zonal.ArgumentError):
            buffer.numpy(*wrong_view)
    with pytest.raises(zonal.ArgumentError, match="objects"):
        buffer.numpy((2,), "object")
    for shape, dtype in (([5000], "uint8"), ([-1], "uint8"), ([1 << 62, 1 << 62], "int64")):
        with pytest.raises(zonal.ArgumentError):
            buffer.tensor(shape, dtype)
    with pytest.raises(zonal.ArgumentError, match="there are"):
        buffer.tensor([1], "float7")
    with pytest.raises(zonal.ArgumentError, match="multiple"):
        buffer.tensor([1], "int64", 4)
    with pytest.raises(zonal.ArgumentError):
        pool.empty((-1,))
    calls: Any = {
        "count": lambda value: pool.alloc_many(value, 1),
        "node": lambda value: pool.alloc(1, node=value),
        "shape": pool.empty,
        "offset": lambda value: buffer.numpy(offset=value),
        "object_bytes": lambda value: pool.on_reclaim("a", len, max, object_bytes=value),
        "seeks": lambda value: pool.on_reclaim("a", len, max, seeks=value),
        "budget": lambda value: zonal.Pool(MIB, budget=value),
    }
    for name, call in calls.items():
        for wrong in ("4", 1.5, True):
            with pytest.raises(TypeError, match=f"^{name}: "):
                call(wrong)
        for wrong in (-1, 1 << 70):
            with pytest.raises(zonal.ArgumentError, match=f"^{name}: "):
                call(wrong)


def test_whole_numbers_of_numpy_are_whole_numbers(pool: zonal.Pool) -> None:
    numpy = pytest.importorskip("numpy")
    four = numpy.int64(4)
    assert pool.alloc(numpy.prod([four, four])).nbytes == 16
    assert pool.alloc_many(four, four)[3].nbytes == 4
    assert pool.empty(four).shape == pool.zeros((four,)).shape == (4,)
    assert pool.alloc(8).numpy(four, offset=four).shape == (4,)
    assert zonal.Pool(numpy.uint64(MIB), budget=four * 4096).nbytes == 4 * MIB


def test_a_cache_gives_memory_up_when_the_pool_is_short_of_it() -> None:
    pool = zonal.Pool(16 * MIB)
    cache: List[Any] = []
    asked: List[int] = []

    def scan(node: int, objects: int) -> Optional[int]:
        freed = min(objects, len(cache))
        asked.append(objects)
        del cache[:freed]
        return freed

    registered = pool.on_reclaim("cache", lambda node: len(cache), scan, object_bytes=65536)
    while True:
        try:
            cache.append(pool.alloc(65536))
        except zonal.OutOfMemoryError:
            raise AssertionError(f"refused with {len(cache)} objects that could go") from None
        if len(asked) > 20:
            break
    registered.close()
    registered.close()
    cache.clear()
    pool.validate()


def test_a_cache_that_raises_or_lies_refuses_the_request_and_breaks_nothing(
    fresh: FreshCode,
) -> None:
    done = fresh(
        """
        import zonal
        for scan in (lambda n, o: 1 / 0, lambda n, o: "many", lambda n, o: None, lambda n, o: -1,
                     lambda n, o: 10**6, lambda: None):
            pool = zonal.Pool(8 << 20)
            registered = pool.on_reclaim("bad", lambda node: 1000, scan)
            held = []
            try:
                while True:
                    held.append(pool.alloc(65536))
            except zonal.OutOfMemoryError:
                held.clear()
            pool.validate()
        print("well")
        """
    )
    assert done.stdout == "well\n" and "ZeroDivisionError" in done.stderr


def test_a_function_that_always_raises_is_told_a_few_times(fresh: FreshCode) -> None:
    done = fresh(
        """
        import zonal
        called = 0
        def count():  # without the node
            return 0
        def scan(node, objects):
            return 0
        def counted(node):
            global called
            called += 1
            return count(node)
        pool = zonal.Pool(8 << 20)
        registered = pool.on_reclaim("wrong", counted, scan)
        for _ in range(300):
            try:
                pool.alloc(9 << 20)
            except zonal.OutOfMemoryError:
                pass
            held = []
            try:
                while True:
                    held.append(pool.alloc(1 << 20))
            except zonal.OutOfMemoryError:
                held.clear()
        print(called)
        """
    )
    told = done.stderr.count("TypeError: ")
    assert int(done.stdout) > 100 and 1 < told <= int(done.stdout).bit_length()


def test_a_registration_and_a_pool_that_refer_to_each_other_end_with_the_process(
    fresh: FreshCode,
) -> None:
    fresh(
        """
        import zonal
        pool = zonal.Pool(8 << 20)
        keep = pool.on_reclaim("self", lambda node: pool.free_pages, lambda n, o: None)
        held = []
        try:
            while True:
                held.append(pool.alloc(65536))
        except zonal.OutOfMemoryError:
            pass
        """
    )


def test_an_object_that_keeps_its_own_registration_goes_and_its_pool_with_it() -> None:
    class Cache:
        def __init__(self) -> None:
            self.pool = zonal.Pool(8 << 20)
            self.kept: List[zonal.Buffer] = []
            self.registration = self.pool.on_reclaim("cache", self.count, self.scan)

        def count(self, node: int) -> int:
            return len(self.kept)

        def scan(self, node: int, objects: int) -> Optional[int]:
            if len(self.kept) % 16 == 0:
                gc.collect()
            self.kept.pop().release()
            return 1

    cache = Cache()
    gone = weakref.ref(cache)
    for _ in range(512):
        # Its functions are called, and the collector runs inside of one.
        cache.kept.append(cache.pool.alloc(65536))
    assert len(cache.kept) < 512
    gc.collect()
    assert gone() is cache
    del cache
    # A thread of the pool may be in one of its functions.
    for _ in range(1000):
        gc.collect()
        if gone() is None:
            break
        time.sleep(0.01)
    assert gone() is None


def test_threads_allocate_write_and_free_at_once(pool: zonal.Pool) -> None:
    wrong: List[str] = []

    def work(mark: int) -> None:
        held: List[Any] = []
        for turn in range(300):
            array = pool.empty((1 + turn % 7, 4096), "uint8")
            array[:] = mark
            held.append(array)
            if len(held) > 5:
                gone = held.pop(0)
                if not (gone == mark).all():
                    wrong.append(f"{mark}")

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    assert not wrong and used(pool) == 0
    pool.validate()


def test_release_and_view_of_one_buffer_by_two_threads(pool: zonal.Pool) -> None:
    for _ in range(200):
        buffer = pool.alloc(4096, zeroed=True)
        seen: List[Any] = []

        def look(buffer: zonal.Buffer = buffer, seen: List[Any] = seen) -> None:
            try:
                seen.append(buffer.view())
            except zonal.ReleasedError:
                pass

        thread = threading.Thread(target=look)
        thread.start()
        try:
            buffer.release()
        except BufferError:
            pass
        thread.join()
        assert buffer.released != bool(seen)
    pool.validate()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_uses_the_pool_on_its_own(pool: zonal.Pool) -> None:
    array = pool.zeros((4096,), "uint8")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            array[:] = 1
            more = pool.zeros((100, 4096), "uint8")
            more[:] = 2
            del more
            pool.validate()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert int(array.sum()) == 0
    pool.validate()


def test_multiprocessing_by_spawn_and_by_fork(fresh: FreshCode) -> None:
    fresh(
        """
        import multiprocessing, zonal
        pool = zonal.Pool(16 << 20)
        def work(n):
            return len(pool.alloc(n).view())
        for _ in range(2):
            with multiprocessing.get_context("fork").Pool(2) as workers:
                assert workers.map(work, [1, 5000, 70000]) == [1, 5000, 70000]
        pool.validate()
        """
    )


def test_options_of_a_pool_show_in_its_statistics() -> None:
    pool = zonal.Pool(32 * MIB, prefault="parallel", policy="linux-6.6", huge_pages="transparent")
    figures = pool.statistics()
    assert figures.policy == "linux-6.6" and figures.nbytes == 32 * MIB
    assert figures.held.free_absent_bytes == 0
    buffer = pool.alloc(4 * MIB, node=0)
    assert pool.node_of(buffer.address) == 0 and pool.node_of(1) is None
    assert pool.statistics().held.users_bytes == 4 * MIB
    assert pool.statistics().allocated_pages >= 1024
    assert "# EOF" in pool.openmetrics()
    one = zonal.Pool(32 * MIB, node=0)
    assert one.nodes >= 1 and one.alloc(4096).address
    small = zonal.Pool(32 * MIB, budget=8 * MIB)
    with pytest.raises(zonal.OutOfMemoryError):
        small.alloc(16 * MIB)


def test_free_memory_goes_back_to_the_system() -> None:
    pool = zonal.Pool(64 * MIB, prefault=True)
    for call, name in ((pool.trim, "bytes"), (pool.node_of, "address")):
        for wrong in (-1, 1 << 64):
            with pytest.raises(zonal.ArgumentError, match=f"{name}: {wrong}; expected 0 to"):
                call(wrong)
        for none in (1.5, "1", None, True):
            with pytest.raises(TypeError, match=f"{name}: .*; expected a whole number"):
                call(none)  # type: ignore[arg-type]
    assert pool.trim(64 * MIB) > 32 * MIB
    assert pool.statistics().held.free_absent_bytes > 32 * MIB
    assert int(pool.zeros((MIB,), "uint8").sum()) == 0


@pytest.mark.parametrize("forgotten", [False, True])
def test_consumers_end_before_the_interpreter_does(fresh: FreshCode, forgotten: bool) -> None:
    done = fresh(
        f"""
        import atexit
        import os

        # Before the package's own, so that it runs after it.
        atexit.register(lambda: fill())
        import zonal
        import zonal.pool

        pool = zonal.Pool(32 << 20)
        asked = []

        def count(node):
            asked.append(node)
            return 1

        def fill():
            before, blocks = len(asked), []
            try:
                while True:
                    blocks.append(pool.alloc(1 << 20))
            except zonal.OutOfMemoryError:
                print("asked" if len(asked) > before else "not asked", flush=True)
            if {forgotten}:
                # A consumer that is left calls into an interpreter that ends, and may hang there.
                os._exit(0)

        held = pool.on_reclaim("cache", count, lambda node, objects: None)
        if {forgotten}:
            # What the package does at the end is not done.
            zonal.pool._registered.clear()
        """
    )
    assert done.stdout.strip() == ("asked" if forgotten else "not asked")


def test_a_consumer_that_comes_when_the_interpreter_ends_is_refused(fresh: FreshCode) -> None:
    done = fresh(
        """
        import atexit

        # Before the package's own, so that it runs after it.
        atexit.register(lambda: late())
        import zonal

        pool = zonal.Pool(32 << 20)

        def late():
            try:
                pool.on_reclaim("cache", lambda node: 1, lambda node, objects: None)
            except zonal.PoolError as error:
                print(error)
        """
    )
    assert "cache would be called when the interpreter has ended" in done.stdout
