"""Threads that switch all the time: what they share stays whole. Nothing here needs the GIL, and on
a free-threaded interpreter nothing switches it back on."""

from __future__ import annotations

import gc
import random
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Callable, Iterator, List

import pytest

import zonal
from zonal import _native, lab

THREADS = 8


@pytest.fixture(autouse=True)
def switching() -> Iterator[None]:
    """Threads of an interpreter with a GIL change as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def together(work: Callable[[int], object]) -> List[object]:
    """Each thread's result; all begin at once. The first exception is raised."""
    gate = threading.Barrier(THREADS)

    def begin(number: int) -> object:
        gate.wait()
        return work(number)

    with ThreadPoolExecutor(THREADS) as threads:
        begun = [threads.submit(begin, number) for number in range(THREADS)]
        return [each.result(timeout=300) for each in begun]


def test_the_module_leaves_a_free_threaded_interpreter_without_its_gil() -> None:
    is_enabled = getattr(sys, "_is_gil_enabled", None)
    if is_enabled is None or "t" not in sys.abiflags:
        pytest.skip("SKIPPED: no free-threaded interpreter")
    assert not is_enabled()


def test_pages_of_a_pool_have_one_owner_whichever_thread_frees_them() -> None:
    pool = zonal.Pool(64 << 20)
    free = pool.free_pages
    shared: "List[object]" = []
    lock = threading.Lock()

    def work(number: int) -> int:
        choose = random.Random(number)
        own = []
        for turn in range(300):
            size = choose.choice([100, 4096, 20_000, 70_000])
            block = pool.alloc(size)
            view = memoryview(block.view()).cast("B")
            view[:8] = (number * 1000 + turn).to_bytes(8, "little")
            own.append((block, view, number * 1000 + turn))
            if len(own) > 20:
                block, view, mark = own.pop(choose.randrange(len(own)))
                assert int.from_bytes(view[:8], "little") == mark
                view.release()
                # Others drop it.
                with lock:
                    shared.append(block)
                    dropped = shared[:5] if len(shared) > 10 else []
                    del shared[: len(dropped)]
                del block, dropped
        for _, view, mark in own:
            assert int.from_bytes(view[:8], "little") == mark
            view.release()
        return len(own)

    together(work)
    shared.clear()
    gc.collect()
    assert pool.free_pages == free
    pool.validate()


def test_one_buffer_is_released_once_however_many_threads_ask() -> None:
    pool = zonal.Pool(16 << 20)
    free = pool.free_pages
    for _ in range(50):
        block = pool.alloc(8192)

        def release(number: int, block: object = block) -> bool:
            try:
                block.release()  # type: ignore[attr-defined]
                return True
            except zonal.Error:
                return False

        together(release)
        assert pool.free_pages == free
    pool.validate()
    assert pool.statistics().misuses == 0


def test_readers_of_one_recording_do_not_disturb_each_other() -> None:
    recording = zonal.Recording()
    expected = recording.info.events

    def count(number: int) -> int:
        import pyarrow

        reader = pyarrow.RecordBatchReader.from_stream(recording.events(["cpu"]))
        return sum(batch.num_rows for batch in reader)

    pytest.importorskip("pyarrow", reason="SKIPPED: PyArrow is missing")
    assert set(together(count)) == {expected}


def test_runs_of_the_lab_and_rows_are_the_same_from_every_thread(tmp_path: Path) -> None:
    short = {"warm_us": 20, "run_us": 100}
    alone = [lab.once("xeon-2007-8", seed=seed, **short).result_hash for seed in (1, 2)]
    found = together(
        lambda number: lab.once("xeon-2007-8", seed=1 + number % 2, **short).result_hash
    )
    assert found == [alone[number % 2] for number in range(THREADS)]
    axes = [("seed", [str(seed) for seed in range(200)])]
    rows = _native.Rows(
        "xeon-2007-8", None, "zonal", "burst:hold=16", None, 5, 20, axes, tmp_path / "rows.csv"
    )
    made = _native.rows_make(rows.text(7))

    def add(number: int) -> int:
        # The same rows from all threads: each is written once.
        for at in range(0, 200, 10):
            rows.add(at, _native.rows_make(rows.text(at)))
        rows.add(7, made)
        return len(rows.missing())

    together(add)
    assert len(rows.missing()) == 200 - 21
    assert len(rows.finish()) == 21


def test_callbacks_of_reclaim_come_from_whichever_thread_allocates() -> None:
    pool = zonal.Pool(16 << 20)
    free = pool.free_pages
    kept: "List[object]" = []
    lock = threading.Lock()

    def scan(node: int, objects: int) -> int:
        with lock:
            freed = min(objects, len(kept))
            dropped = kept[:freed]
            del kept[:freed]
        del dropped
        return freed

    registered = pool.on_reclaim("kept", lambda node: len(kept), scan, object_bytes=65536)

    def work(number: int) -> int:
        for _ in range(200):
            block = pool.alloc(65536)
            with lock:
                kept.append(block)
            del block
        return number

    # 100 MiB through 16, so that reclaim works all the time.
    together(work)
    registered.close()
    kept.clear()
    gc.collect()
    assert pool.free_pages == free
    pool.validate()
