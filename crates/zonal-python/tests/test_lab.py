"""The lab: runs, machines, policies."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Optional

import pytest

import zonal
from zonal import lab

SHORT = {"warm_us": 50, "run_us": 200}


def test_a_run_is_the_same_each_time_and_depends_on_its_seed() -> None:
    runs = [lab.once("xeon-2007-8", seed=seed, **SHORT) for seed in (1, 1, 2)]
    assert runs[0].result_hash == runs[1].result_hash != runs[2].result_hash
    assert runs[0].kind == "simulated" and runs[0].figures["calls"] > 0
    assert "--seed 1" in runs[0].command
    assert {figure.name for figure in runs[0].rows()} == set(lab.figures())


def test_a_machine_from_dict_text_file_and_object_gives_one_result(tmp_path: Path) -> None:
    machine = lab.Machine.named("xeon-2007-8")
    path = tmp_path / "here.toml"
    path.write_text(machine.to_toml())
    hashes = {
        lab.once(each, **SHORT).result_hash
        for each in (
            "xeon-2007-8",
            machine,
            machine.to_dict(),
            path,
            str(path),
            pickle.loads(pickle.dumps(machine)),
        )
    }
    assert len(hashes) == 1
    other = {**machine.to_dict(), "ghz": machine.to_dict()["ghz"] * 2}
    assert lab.once(other, **SHORT).result_hash not in hashes
    assert machine.resized(4).cpus == 4
    assert lab.once(machine, set={"cpus": 4}, **SHORT).figures["calls"] > 0


def test_broken_machines_are_refused_with_their_field(tmp_path: Path) -> None:
    good = lab.Machine.named("xeon-2007-8").to_dict()
    with pytest.raises(zonal.MachineError, match="ghz"):
        lab.Machine.from_dict({**good, "ghz": "fast"})
    with pytest.raises(zonal.MachineError):
        lab.Machine.from_dict({key: value for key, value in good.items() if key != "line"})
    with pytest.raises(zonal.MachineError):
        lab.Machine.from_dict({**good, "sockets": 0})
    with pytest.raises(zonal.MachineError):
        lab.Machine.from_dict({**good, "sockets": -3})
    with pytest.raises(zonal.MachineError):
        lab.Machine.from_dict({})
    with pytest.raises(zonal.ArgumentError):
        lab.Machine.from_dict({**good, "ghz": float("nan")})
    with pytest.raises(zonal.ArgumentError):
        lab.Machine.from_dict({**good, "ghz": object()})
    with pytest.raises(TypeError):
        lab.Machine.from_dict([1, 2])  # type: ignore[arg-type]
    with pytest.raises(zonal.MachineError) as raised:
        lab.Machine("name = 3\n[[[")
    assert raised.value.line is not None
    with pytest.raises(zonal.MachineError, match="nowhere"):
        lab.Machine.load(tmp_path / "nowhere.toml")
    with pytest.raises(zonal.MachineError, match="there are"):
        lab.Machine.named("no-such-machine")


def test_what_a_run_cannot_be_is_said() -> None:
    for wrong in (
        {"machine": "no-such-machine"},
        {"policy": "no-such-policy"},
        {"workload": "no-such-workload"},
        {"busy": 99},
        {"run_us": 0},
        {"set": {"no.such.key": 1}},
        {"set": {"pcp.scale_max": 99}},
        {"seed": -1},
        {"seed": 1 << 64},
    ):
        with pytest.raises(zonal.Error):
            lab.once(**{"machine": "xeon-2007-8", **wrong})  # type: ignore[arg-type]
    for wrong in ({"seed": "1"}, {"seed": True}, {"machine": 3}, {"policy": 3}, {"set": [1]}):
        with pytest.raises(TypeError):
            lab.once(**{"machine": "xeon-2007-8", **wrong})  # type: ignore[arg-type]


def test_policies_have_every_value_and_can_be_changed() -> None:
    policy = zonal.policy("linux-6.6")
    assert policy.name == "linux-6.6" and len(policy) > 20
    other = policy.set({"pcp.scale_max": 3})
    assert other["pcp.scale_max"] == "3" != policy["pcp.scale_max"]
    assert [each.key for each in other.differences(policy)] == ["pcp.scale_max"]
    assert pickle.loads(pickle.dumps(other)) == other and copy.deepcopy(other) == other
    assert all(each.help and each.accepted for each in policy.settings)
    # Every value can be given back as it is printed.
    for name in zonal.policies():
        whole = zonal.policy(name)
        assert dict(whole.set(dict(whole))) == dict(whole)
    for wrong in ("nope", "zonal+x", "zonal+pcp.batch=no", ""):
        with pytest.raises(zonal.PolicyError):
            zonal.policy(wrong)
    with pytest.raises(zonal.PolicyError):
        zonal.policy("zonal", {"pcp.scale_max": "3+reclaim=on"})
    with pytest.raises(TypeError):
        zonal.policy(3)  # type: ignore[arg-type]


def test_a_comparison_has_both_sides() -> None:
    compared = lab.compare("linux-6.6", "zonal", machine="xeon-2007-8", **SHORT)
    assert [side.policy for side in compared.sides] == ["linux-6.6", "zonal"]
    assert compared.settings and compared.explanation
    one = lab.once("xeon-2007-8", "linux-6.6", **SHORT)
    assert compared.sides[0].result_hash == one.result_hash
    with pytest.raises(zonal.ArgumentError, match="pcp.scale_max"):
        lab.compare("linux-6.6", "zonal", set={"pcp.scale_max": 1}, **SHORT)


def test_a_sweep_has_a_row_for_each_combination_and_goes_on_from_its_file(tmp_path: Path) -> None:
    axes = {"cpus": [2, 4], "policy": ["zonal", "linux-6.6"]}
    path = tmp_path / "rows.csv"
    told = []
    swept = lab.sweep(
        axes, machine="xeon-2007-8", output=path, progress=lambda *at: told.append(at), **SHORT
    )
    assert (len(swept.points), swept.made, swept.found) == (4, 4, 0)
    assert told[-1] == (4, 4)
    wider = {**axes, "cpus": [2, 4, 8]}
    again = lab.sweep(wider, machine="xeon-2007-8", output=path, jobs=1, **SHORT)
    assert (again.made, again.found) == (2, 4)
    by_hash = {row["result_hash"] for row in again.points}
    assert {row["result_hash"] for row in swept.points} < by_hash
    assert "<svg" in swept.html()
    path.write_text("this,is,no,sweep\n1,2,3,4\n")
    with pytest.raises(zonal.LabError, match="line 1"):
        lab.sweep(axes, machine="xeon-2007-8", output=path, **SHORT)
    for wrong in ({"cpus": []}, {"nope": [1]}, {"cpus": [0]}):
        with pytest.raises(zonal.Error):
            lab.sweep(wrong, machine="xeon-2007-8", **SHORT)
    for wrong in ({"cpus": "12"}, {"cpus": 3}, [1]):
        with pytest.raises(TypeError):
            lab.sweep(wrong, machine="xeon-2007-8", **SHORT)  # type: ignore[arg-type]


def test_an_experiment_has_its_table_and_its_page() -> None:
    table = lab.run("vmstat-update-cost")
    assert table.cells and table.source
    assert any(cell.published is not None for cell in table.cells)
    assert "<svg" in table.html() and "<iframe" in table._repr_html_()
    with pytest.raises(zonal.LabError, match="there are"):
        lab.run("no-such-experiment")


def test_a_run_as_a_recording_is_read_like_one_of_a_host(tmp_path: Path) -> None:
    path = tmp_path / "host.zonal"
    asked = {"machine": "xeon-2007-8", "policy": "linux-6.18", "workload": "burst:hold=600"}
    run = lab.record(path, **asked, run_us=400)
    assert run.result_hash == lab.once(**asked, warm_us=0, run_us=400).result_hash
    info = zonal.Recording(path).info
    assert (info.cpus, info.kernel) == (8, "6.18.0-lab")
    found = zonal.advise(path, only=["watermark_scale_factor"])
    assert found.allocs > 1000
    assert found.recorded.refill_pages == run.figures["refilled_pages"]
    assert found.recorded.drain_pages == run.figures["drained_pages"]
    with pytest.raises(zonal.LabError, match="policy zonal: a recording is of a kernel"):
        lab.record(tmp_path / "none.zonal", policy="zonal")
    assert not (tmp_path / "none.zonal").exists()


@pytest.mark.parametrize(
    ("policy", "machine", "workload", "busy", "run_us"),
    [
        ("linux-5.4", "rome-2019-256@16", "handoff", None, 2000),
        ("linux-6.6", "xeon-2007-8", "churn", None, 2000),
        ("linux-6.18", "xeon-2007-8", "burst:hold=600", None, 2000),
        # Its lists are drained early, because a CPU's share of the cache is small: that the
        # recording did not say so made its replay drain a tenth too little.
        ("linux-6.12", "altra-2020-72@8", "churn:hold=256,order=3", 2, 600),
    ],
)
def test_a_replay_of_a_recorded_run_moves_the_same_pages_of_each_cpu(
    tmp_path: Path, policy: str, machine: str, workload: str, busy: Optional[int], run_us: int
) -> None:
    path = tmp_path / "a.zonal"
    run = lab.record(path, machine, policy, workload, busy=busy, seed=3, warm_us=0, run_us=run_us)
    replayed = zonal.replay(path, policy=policy, fidelity=True).to_dict()["fidelity"]
    moved = {"refill_pages": 0, "drain_pages": 0}
    for place in replayed["places"]:
        for name in ("refill_pages", "refill_holds", "drain_pages"):
            at = (place["zone"], place["cpu"], name)
            assert place[name]["model"] == place[name]["kernel"], at
        for name in moved:
            moved[name] += sum(place[name]["kernel"])
    assert moved["refill_pages"] == run.figures["refilled_pages"]
    assert moved["drain_pages"] == run.figures["drained_pages"]
    # In the order of the file no page has two owners.
    arrow = pytest.importorskip("pyarrow", reason="SKIPPED: pyarrow is missing")
    table = arrow.table(zonal.Recording(path).events(["event", "pfn", "order"]))
    held = {}
    calls = 0
    names = table["event"].to_pylist()
    for event, pfn, order in zip(names, table["pfn"].to_pylist(), table["order"].to_pylist()):
        if event == "mm_page_alloc":
            assert pfn is None or held.setdefault(pfn, calls) == calls
            calls += 1
        elif event == "mm_page_free":
            del held[pfn]
            calls += 1
    assert calls == run.figures["calls"]
    assert names.count("contention_end") == run.figures["lock_contended"]
