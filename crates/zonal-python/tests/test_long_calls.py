"""Long calls: Ctrl-C, progress, the GIL."""

from __future__ import annotations

import threading
import time
from typing import Any, Callable, List, Optional, Tuple

import pytest

import zonal
from zonal import lab

Interrupted = Callable[..., Tuple[str, float]]

ENDLESS = 'machine="xeon-2007-8", run_us=600_000_000'


@pytest.mark.parametrize(
    "call",
    [
        f"lab.once({ENDLESS})",
        f'lab.compare("zonal", "linux-6.6", {ENDLESS})',
        f'lab.sweep({{"seed": [1, 2, 3]}}, {ENDLESS})',
        "[lab.run(name) for name in sorted(lab.experiments()) * 99]",
        "[zonal.replay(policy='linux-6.18', fidelity=True) for _ in range(999)]",
        "zonal.replay(memory='real', speed='recorded')",
        "[zonal.advise() for _ in range(99)]",
        "[zonal.conform(live=True) for _ in range(99_999)]",
        "[list(zonal.Recording().events()) for _ in range(999)]",
        "[lab.Machine.host() for _ in range(99)]",
        "[zonal.Pool(256 << 20, prefault=True) for _ in range(999)]",
    ],
)
def test_ctrl_c_ends_every_long_call_and_leaves_things_usable(
    call: str, interrupted: Interrupted
) -> None:
    out, took = interrupted(call)
    assert out.splitlines()[-2:] == ["interrupted", "True"], out
    assert took < 45, f"{took:.1f} s"


# A batch of a row each: a pass takes so long that it is not waited for.
@pytest.mark.parametrize("rows", [1, 65_536])
def test_ctrl_c_while_pyarrow_reads_a_stream(interrupted: Interrupted, rows: int) -> None:
    pytest.importorskip("pyarrow", reason="SKIPPED: pyarrow is missing")
    call = f"""
    def read():
        try:
            return pa.table(zonal.Recording().events(batch_rows={rows}))
        except pa.ArrowInvalid as error:
            time.sleep(9)
    for _ in range(999):
        read()
"""
    out, took = interrupted(call, before="import time; import pyarrow as pa; import pandas")
    assert out.splitlines()[-2:] == ["interrupted", "True"], out
    assert took < 45, f"{took:.1f} s"


def calls() -> "List[Callable[[Any], Any]]":
    return [
        lambda told: lab.once("xeon-2007-8", run_us=20_000, progress=told),
        lambda told: lab.sweep({"seed": [1, 2, 3]}, machine="xeon-2007-8", progress=told),
        lambda told: zonal.replay(progress=told),
        lambda told: zonal.advise(only=["linux-6.6"], progress=told),
        lambda told: zonal.conform(live=True, progress=told),
        lambda told: zonal.Pool(64 << 20, prefault=True, progress=told),
    ]


@pytest.mark.parametrize("call", calls())
def test_progress_is_told_and_ends_with_all(call: Callable[[Any], Any]) -> None:
    told: List[Tuple[int, Optional[int]]] = []
    call(lambda done, total: told.append((done, total)))
    assert told
    done, total = told[-1]
    assert total is None or done == total


@pytest.mark.parametrize("call", calls())
def test_what_progress_raises_ends_the_call_and_is_raised(call: Callable[[Any], Any]) -> None:
    class Enough(Exception):
        pass

    def stop(done: int, total: Optional[int]) -> None:
        raise Enough

    with pytest.raises(Enough):
        call(stop)


def test_tqdm_as_class_and_as_object() -> None:
    tqdm = pytest.importorskip("tqdm")
    zonal.replay(progress=tqdm.tqdm)
    bar = tqdm.tqdm()
    lab.sweep({"seed": [1, 2, 3]}, machine="xeon-2007-8", run_us=100, progress=bar)
    assert (bar.n, bar.total) == (3, 3)
    with pytest.raises(TypeError, match="progress: int"):
        zonal.replay(progress=3)  # type: ignore[arg-type]


def test_other_threads_run_meanwhile() -> None:
    ticks = 0
    ended = threading.Event()

    def count() -> None:
        nonlocal ticks
        while not ended.is_set():
            ticks += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    zonal.replay(fidelity=True)
    ended.set()
    thread.join()
    assert ticks > 10


def test_long_calls_of_several_threads_do_not_disturb_each_other() -> None:
    found: List[str] = []

    def run() -> None:
        found.append(lab.once("xeon-2007-8", run_us=2_000).result_hash)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and len(set(found)) == 1
