"""Threads that switch all the time: what they share stays whole. Nothing here needs the GIL, and on
a free-threaded interpreter nothing switches it back on."""

from __future__ import annotations

import gc
import random
import subprocess
import sys
import sysconfig
import threading
from pathlib import Path
from typing import Callable, Iterator, List

import pytest

import zonal
from zonal import _native, lab

THREADS = 8
RunCode = Callable[..., "subprocess.CompletedProcess[str]"]
Together = Callable[[int, Callable[[int], object]], List[object]]


@pytest.fixture(autouse=True)
def switching() -> Iterator[None]:
    """Threads of an interpreter with a GIL change as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_the_module_leaves_a_free_threaded_interpreter_without_its_gil(
    fresh: RunCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not sysconfig.get_config_var("Py_GIL_DISABLED"):
        pytest.skip("SKIPPED: no free-threaded interpreter")
    # What may have been asked for is not asked for here, and nothing else is imported.
    monkeypatch.delenv("PYTHON_GIL", raising=False)
    said = fresh(
        """
        import sys, zonal
        pool = zonal.Pool(16 << 20)
        pool.on_reclaim("none", lambda node: 0, lambda node, objects: None).close()
        pool.alloc(5000).view()[0] = 1
        assert sum(map(len, zonal.Recording().events(["cpu"]))) > 0
        assert zonal.lab.once("xeon-2007-8", run_us=100).result_hash
        print(sys._is_gil_enabled())
        """
    )
    assert said.stdout == "False\n" and "GIL" not in said.stderr


def test_pages_of_a_pool_have_one_owner_whichever_thread_frees_them(together: Together) -> None:
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

    together(THREADS, work)
    shared.clear()
    gc.collect()
    assert pool.free_pages == free
    pool.validate()


def test_one_buffer_is_released_once_however_many_threads_ask(together: Together) -> None:
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

        together(THREADS, release)
        assert pool.free_pages == free
    pool.validate()
    assert pool.statistics().misuses == 0


def test_readers_of_one_recording_do_not_disturb_each_other(together: Together) -> None:
    recording = zonal.Recording()
    expected = recording.info.events

    def count(number: int) -> int:
        import pyarrow

        reader = pyarrow.RecordBatchReader.from_stream(recording.events(["cpu"]))
        return sum(batch.num_rows for batch in reader)

    pytest.importorskip("pyarrow", reason="SKIPPED: PyArrow is missing")
    assert set(together(THREADS, count)) == {expected}


def test_threads_that_share_one_pass_get_each_event_once(together: Together) -> None:
    recording = zonal.Recording()
    batches = iter(recording.events(["time_ns"], batch_rows=1000))

    def take(number: int) -> int:
        return sum(map(len, batches))

    assert sum(together(THREADS, take)) == recording.info.events
    assert next(batches, None) is None


def test_replays_and_advice_of_one_recording_are_the_same_at_once(together: Together) -> None:
    recording = zonal.Recording()

    def ask(number: int) -> object:
        if number % 2:
            advice = zonal.advise(recording, only=["numa_stat"], limit=20_000)
            return advice.verdict, advice.allocs, advice.recorded
        replayed = zonal.replay(recording, limit=20_000, policy="linux-6.18")
        return replayed.model, recording.info

    alone = [ask(0), ask(1)]
    assert together(4, ask) == alone * 2


def test_one_buffer_is_seen_by_all_threads_until_the_last_view_is_gone(together: Together) -> None:
    pool = zonal.Pool(16 << 20)
    free = pool.free_pages
    for _ in range(20):
        block = pool.alloc(4096 * THREADS, zeroed=True)

        def write(number: int, block: zonal.Buffer = block) -> None:
            for turn in range(50):
                view = block.view()
                view[4096 * number + turn] = 1 + number
                # Refused as long as anybody looks at it.
                with pytest.raises(BufferError):
                    block.release()
                view.release()
                del view

        together(THREADS, write)
        seen = bytes(block.view())
        expected = [bytes([1 + at]) * 50 + bytes(4046) for at in range(THREADS)]
        assert seen == b"".join(expected) and block.views == 0
        block.release()
        assert pool.free_pages == free
    pool.validate()


def test_runs_of_the_lab_and_rows_are_the_same_from_every_thread(
    tmp_path: Path, together: Together
) -> None:
    short = {"warm_us": 20, "run_us": 100}
    alone = [lab.once("xeon-2007-8", seed=seed, **short).result_hash for seed in (1, 2)]
    found = together(
        THREADS, lambda number: lab.once("xeon-2007-8", seed=1 + number % 2, **short).result_hash
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

    together(THREADS, add)
    assert len(rows.missing()) == 200 - 21
    assert len(rows.finish()) == 21


def test_callbacks_of_reclaim_come_from_whichever_thread_allocates(together: Together) -> None:
    pool = zonal.Pool(16 << 20)
    free = pool.free_pages
    kept: "List[zonal.Buffer]" = []
    lock = threading.Lock()

    def scan(node: int, objects: int) -> int:
        # Under the lock: who finds nothing because another thread has all of it in hand is refused.
        with lock:
            freed = min(objects, len(kept))
            # At once: without a GIL, an object that another thread made ends only when that one
            # runs.
            for block in kept[:freed]:
                block.release()
            del kept[:freed]
        return freed

    registered = pool.on_reclaim("kept", lambda node: len(kept), scan, object_bytes=65536)

    def work(number: int) -> int:
        served = 0
        while served < 200:
            try:
                block = pool.alloc(65536)
            except zonal.OutOfMemoryError:
                # Another thread took what this one had reclaimed.
                continue
            served += 1
            with lock:
                kept.append(block)
            del block
        return number

    # 100 MiB through 16, so that reclaim works all the time.
    together(THREADS, work)
    registered.close()
    kept.clear()
    gc.collect()
    assert pool.free_pages == free
    pool.validate()
