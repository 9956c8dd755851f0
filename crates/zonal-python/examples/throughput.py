"""What sharing costs: rows of a sweep made by two plain loops, by two processes of ``zonal.sweep``
and by a ``LocalCluster`` of two, in random order in each round.

    python throughput.py [--rounds 5] [--rows 40] [--us 3000] [--few 4]

Each way makes a few rows and many; the difference is what the rest of the rows cost, without
starting anything. CPU time of the workers is compared; the elapsed time, too, which says something
on an idle machine only. ``idle`` is what the waiting workers of the cluster use of a CPU.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

import zonal
from zonal import _native

MACHINE, WORKLOAD, WARM_US = "rome-2019-256@16", "handoff", 100
JOBS = 2
LOOP = """
import json, sys
from zonal import _native
for text in json.load(sys.stdin):
    _native.rows_make(text)
"""


class Cost(NamedTuple):
    """Seconds."""

    elapsed: float
    workers: float
    caller: float

    def minus(self, other: "Cost") -> "Cost":
        """What this took longer."""
        return Cost(*(mine - its for mine, its in zip(self, other)))


def loops(rows: int, us: int) -> None:
    """Rows made by processes that share nothing."""
    with tempfile.TemporaryDirectory() as folder:
        seeds = [("seed", [str(1 + seed) for seed in range(rows)])]
        path = Path(folder) / "rows.csv"
        more = ("zonal", WORKLOAD, None, WARM_US, us, seeds, path)
        sweep = _native.Rows(MACHINE, None, *more)
        texts = [sweep.text(at) for at in range(rows)]
        sweep.finish()
    code = [sys.executable, "-c", LOOP]
    started = [subprocess.Popen(code, stdin=subprocess.PIPE, text=True) for _ in range(JOBS)]
    for number, process in enumerate(started):
        assert process.stdin is not None
        process.stdin.write(json.dumps(texts[number::JOBS]))
        process.stdin.close()
    assert [process.wait() for process in started] == [0] * JOBS


def swept(rows: int, us: int, client: Any = None) -> None:
    """The same by ``zonal.sweep``."""
    with tempfile.TemporaryDirectory() as folder:
        made = zonal.sweep(
            {"machine": [MACHINE]},
            range(1, rows + 1),
            client,
            data=Path(folder) / "rows.csv",
            workload=WORKLOAD,
            warm_us=WARM_US,
            run_us=us,
            jobs=None if client else JOBS,
        )
        assert made.complete and made.made == rows


def cpu_s(pids: List[int]) -> float:
    """CPU seconds of these processes so far."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def used(work: Callable[[], None], pids: List[int]) -> Cost:
    """What a call takes, in its own children and in these workers."""

    def now() -> Tuple[float, float, float]:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        workers = children.ru_utime + children.ru_stime + cpu_s(pids)
        return time.monotonic(), workers, time.process_time()

    before = now()
    work()
    return Cost(*(after - begun for after, begun in zip(now(), before)))


def round_of(
    ways: Dict[str, Callable[[int], None]], pids: Dict[str, List[int]], amounts: Tuple[int, int]
) -> Dict[str, Cost]:
    """Each way once with few and with many rows, in random order."""
    jobs = [(name, rows) for name in ways for rows in amounts]
    random.shuffle(jobs)
    costs: Dict[Tuple[str, int], Cost] = {}
    for name, rows in jobs:
        costs[name, rows] = used(partial(ways[name], rows), pids.get(name, []))
    few, many = amounts
    return {name: costs[name, many].minus(costs[name, few]) for name in ways}


def show(rounds: List[Dict[str, Cost]], rows: int) -> None:
    """The medians, and each way's share of the loops' throughput."""
    head = ["way", "CPU s of workers, a row", "CPU s of the caller, a row"]
    head += ["throughput by CPU time of workers, %", "by elapsed time, %"]
    print("| " + " | ".join(head) + " |\n|--|--:|--:|--:|--:|")
    for name in rounds[0]:
        workers = statistics.median(each[name].workers for each in rounds) / rows
        caller = statistics.median(each[name].caller for each in rounds) / rows
        parts = [each["loops"].workers / each[name].workers for each in rounds]
        walls = [each["loops"].elapsed / each[name].elapsed for each in rounds]
        cells = [f"{workers:.4f}", f"{caller:.4f}", spread(parts), spread(walls)]
        print("| " + " | ".join([name, *cells]) + " |")


def spread(parts: List[float]) -> str:
    """Median, lowest and highest, in per cent."""
    middle = statistics.median(parts)
    return f"{100 * middle:.1f} ({100 * min(parts):.1f} to {100 * max(parts):.1f})"


def main() -> None:
    """Measures and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=40)
    parser.add_argument("--few", type=int, default=4)
    parser.add_argument("--us", type=int, default=3000, help="measured virtual time of a row")
    args = parser.parse_args()
    distributed: Any = importlib.import_module("distributed")
    config: Any = importlib.import_module("dask.config")

    ways: Dict[str, Callable[[int], None]] = {
        "loops": partial(loops, us=args.us),
        f"jobs={JOBS}": partial(swept, us=args.us),
    }
    pids: Dict[str, List[int]] = {}
    for name, profiles in (("Dask", True), ("Dask, profiler off", False)):
        with config.set({"distributed.worker.profile.enabled": profiles}):
            cluster = distributed.LocalCluster(JOBS, threads_per_worker=1, dashboard_address=":0")
        client = distributed.Client(cluster, set_as_default=False)
        pids[name] = list(client.run(os.getpid).values())
        ways[name] = partial(swept, us=args.us, client=client)
    for work in ways.values():
        work(args.few)
    for name, workers in pids.items():
        idle = used(partial(time.sleep, 5), workers)
        print(f"idle, {name}: {100 * idle.workers / idle.elapsed / JOBS:.2f} % of a CPU each")
    amounts = (args.few, args.few + args.rows)
    rounds: List[Dict[str, Cost]] = []
    for number in range(args.rounds):
        rounds.append(round_of(ways, pids, amounts))
        print(f"round {number + 1}: {rounds[-1]}", file=sys.stderr, flush=True)
    show(rounds, args.rows)


if __name__ == "__main__":
    main()
