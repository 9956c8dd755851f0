"""What several tests need."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Callable, List, Tuple

import pytest

RunCode = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def fresh() -> RunCode:
    """Runs code in an interpreter of its own; fails if that does."""

    def run(
        code: str, *, check: bool = True, timeout: float = 120
    ) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        if check:
            assert done.returncode == 0, done.stdout + done.stderr
        return done

    return run


@pytest.fixture
def together() -> Callable[[int, Callable[[int], object]], List[object]]:
    """Calls work with 0, 1 and so on, each in a thread, all beginning at once. Returns each one's
    result; the first exception is raised."""

    def run(threads: int, work: Callable[[int], object]) -> List[object]:
        gate = threading.Barrier(threads)

        def begin(number: int) -> object:
            gate.wait()
            return work(number)

        with ThreadPoolExecutor(threads) as pool:
            begun = [pool.submit(begin, number) for number in range(threads)]
            return [each.result(timeout=300) for each in begun]

    return run


@pytest.fixture
def interrupted() -> Callable[..., Tuple[str, float]]:
    """Runs a call in an interpreter of its own, presses Ctrl-C in the middle of it, and returns
    what it printed and how long it took to end."""

    def run(call: str, after: float = 0.7, before: str = "pass") -> Tuple[str, float]:
        code = f"""
import signal, zonal
{before}
from zonal import lab
signal.signal(signal.SIGINT, signal.default_int_handler)
print("ready", flush=True)
try:
    {call}
    print("ended")
except KeyboardInterrupt:
    print("interrupted")
# What is left is usable.
assert zonal.Recording().info.events > 0
print(lab.once("xeon-2007-8", run_us=100).result_hash[:4] != "")
"""
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(after)
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        try:
            out, err = process.communicate(timeout=90)
        except subprocess.TimeoutExpired:
            process.kill()
            raise AssertionError(f"{call}: does not end on Ctrl-C") from None
        assert process.returncode == 0, out + err
        return out, time.monotonic() - began

    return run


@pytest.fixture
def cut(tmp_path: Path) -> Path:
    """A recording whose last line is cut in the middle: a line of text, on line 3."""
    path = tmp_path / "cut.txt"
    path.write_text(
        "# time_ns cpu pid event pfn order migratetype gfp\n"
        "2562165463624 0 17282 alloc 245c9f 0 1 140dca\n"
        "2562165463700 0 17282 fre"
    )
    return path
