"""A fleet whose truth is known: recordings that the lab makes of as many machines and loads, judged
by :func:`zonal.fleet`, and what was told beside what is true. Everything is simulated.

    python fleet_truth.py FOLDER [HOSTS [JOBS]]

Recordings that are in the folder already are not made again. Four that are none are added.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Dict, List, Mapping, Tuple

import zonal
from zonal import lab

MACHINES = [
    "altra-2020-72",
    "broadwell-2017-88",
    "haswell-2013-8",
    "icelake-2023-128",
    "ivybridge-2013-48",
    "rome-2019-256",
    "sapphire-2023-112",
    "skylake-2015-8",
    "skylake-2017-112",
    "westmere-2011-24",
    "xeon-2007-8",
    "zen1-2017-128",
]
POLICIES = ["linux-5.4", "linux-6.6", "linux-6.12", "linux-6.18"]
LOADS = ["burst", "burst", "churn", "handoff", "kernbench"]
PARTS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)


def host(at: int) -> Tuple[Dict[str, Any], str, str, int, int]:
    """Machine, policy, workload, busy CPUs and measured time of one host."""
    dice = random.Random(at)
    preset = dice.choice(MACHINES)
    full = int(preset.rsplit("-", 1)[1])
    cpus = dice.choice([count for count in (2, 4, 8, 16) if count <= full])
    machine = lab.Machine.named(f"{preset}@{cpus}").to_dict()
    machine["name"] = f"host{at:04}"
    machine["memory_mib"] = dice.choice([1024, 2048, 4096])
    faster = dice.uniform(0.8, 1.2)
    for clock in ("ghz", "boost_ghz"):
        if machine.get(clock):
            machine[clock] = round(machine[clock] * faster, 2)
    load = dice.choice(LOADS)
    if load == "burst":
        load = f"burst:hold={dice.choice([16, 64, 256, 1024, 4096])}"
    elif load == "churn":
        load = f"churn:hold={dice.choice([32, 256, 1024])},order={dice.choice([0, 0, 1, 3])}"
    busy = dice.choice([1, 2, cpus])
    if load == "handoff":  # It works in pairs.
        busy = max(2, busy)
    return machine, dice.choice(POLICIES), load, busy, dice.choice([1000, 2000, 3000])


def make(asked: Tuple[int, str]) -> Dict[str, Any]:
    """Makes one recording. Returns the figures of its run: the truth."""
    at, folder = asked
    machine, policy, load, busy, run_us = host(at)
    path = Path(folder) / f"host{at:04}.zonal"
    beside = path.with_suffix(".json")
    if path.exists() and beside.exists():
        known: Dict[str, Any] = json.loads(beside.read_text())
        return known
    run = lab.record(path, machine, policy, load, busy=busy, seed=at + 1, warm_us=0, run_us=run_us)
    truth = {"at": at, "figures": dict(run.figures)}
    beside.write_text(json.dumps(truth))
    return truth


def bad_ones(folder: Path) -> None:
    """Recordings that are none."""
    whole = (folder / "host0000.zonal").read_bytes()
    (folder / "x-cut.zonal").write_bytes(whole[: len(whole) // 2])
    (folder / "x-empty.zonal").write_bytes(b"")
    (folder / "x-noise.zonal").write_bytes(whole[:-400] + bytes(range(256)))
    (folder / "x-text.zonal").write_text("no recording\n")


def cost(figures: Mapping[str, float], ghz: float) -> float:
    """Percent of one CPU that waits for zone locks and moving pages take."""
    cycles = figures["cycles_per_call"] * figures["calls"]
    spent = (figures["lock_wait_percent"] + figures["pages_percent"]) / 100 * cycles
    return 100 * spent / (figures["elapsed_us"] * ghz * 1e3)


def quantiles(values: List[float]) -> str:
    """One line."""
    if not values:
        return "none"
    values = sorted(values)
    told = (values[round(part * (len(values) - 1))] for part in PARTS)
    return f"{', '.join(f'{value:.3g}' for value in told)} (of {len(values)})"


def compare(found: zonal.Fleet, truths: Mapping[str, Dict[str, Any]]) -> None:
    """Prints what was told beside what is true."""
    wrong: Counter[str] = Counter()
    told: Dict[str, List[float]] = {
        "refill error %": [],
        "drain error %": [],
        "lock holds told / true": [],
        "cost told / true": [],
    }
    for each in found.judged:
        at = truths[Path(each.source).name]["at"]
        figures = truths[Path(each.source).name]["figures"]
        machine, policy, *_ = host(at)
        wrong["CPUs"] += each.cpus != lab.Machine.from_dict(machine).cpus
        wrong["kernel"] += not (each.kernel_release or "").startswith(policy[len("linux-") :])
        if each.refill_error_percent is not None:
            told["refill error %"].append(abs(each.refill_error_percent))
        if each.drain_error_percent is not None:
            told["drain error %"].append(abs(each.drain_error_percent))
        if figures["lock_holds"] and each.holds_per_s and each.seconds:
            holds = each.holds_per_s * each.seconds / figures["lock_holds"]
            told["lock holds told / true"].append(holds)
        true = cost(figures, machine["ghz"])
        if true > 0 and each.cost_percent_of_cpu:
            told["cost told / true"].append(each.cost_percent_of_cpu / true)
    print("told wrong:", dict(wrong))
    print(f"quantiles {', '.join(f'{100 * part:g} %' for part in PARTS)}:")
    for name, values in told.items():
        print(f"  {name}: {quantiles(values)}")
    for name in ("refill error %", "drain error %"):
        exact = sum(value == 0 for value in told[name])
        print(f"  {name}: 0 on {exact} of {len(told[name])}")
    print("verdicts:", dict(Counter(each.verdict for each in found.judged)))


def main(folder: Path, hosts: int, jobs: int) -> None:
    """All of it."""
    folder.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as workers:
        asked = [(at, str(folder)) for at in range(hosts)]
        made = list(workers.map(make, asked, chunksize=4))
    truths = {f"host{truth['at']:04}.zonal": truth for truth in made}
    bad_ones(folder)
    size = sum(path.stat().st_size for path in folder.glob("host*.zonal"))
    print(f"{len(made)} recordings, {size / 2**20:.1f} MiB", flush=True)
    begun = os.times()

    def progress(done: int, of: int) -> None:
        if done % 100 == 0:
            print(f"{done} of {of}", flush=True)

    found = zonal.fleet(str(folder / "*.zonal"), jobs=jobs, progress=progress)
    spent = [now - then for now, then in zip(os.times(), begun)]
    print(f"fleet: {sum(spent[:4]):.0f} s of CPU, {spent[4]:.0f} s, {len(found.judged)} judged")
    (folder / "fleet.html").write_text(found.html())
    print("\n".join(found.summary()))
    print("groups of loads:", [len(group) for group in found.clusters()])
    for each in found.bad:
        print(f"bad: {Path(each.source).name}: {(each.reason or '')[-120:]}")
    compare(found, truths)


if __name__ == "__main__":
    count, processes = (int(each) for each in [*sys.argv[2:4], "1000", "2"][:2])
    main(Path(sys.argv[1]), count, processes)
