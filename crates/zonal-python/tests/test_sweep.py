"""`zonal.sweep`: where rows are made changes nothing about them."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple, get_args, get_type_hints

import pytest

import zonal
from zonal import _native, _sweep, lab
from zonal._crew import Local

AXES: Dict[str, List[object]] = {"cpus": [2, 4], "policy": ["zonal", "linux-6.6"]}
SHORT: Dict[str, Any] = {
    "machine": "xeon-2007-8",
    "workload": "burst:hold=16",
    "warm_us": 10,
    "run_us": 30,
}
#: Enough rows of enough time that a worker can be killed among them.
MANY: Dict[str, Any] = {**SHORT, "run_us": 3000}


def hashes(sweep: "zonal.Sweep") -> List[object]:
    return [(row["point"], row["result_hash"]) for row in sweep.rows]


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> "zonal.Sweep":
    """Rows of one local process, without an accident."""
    path = tmp_path_factory.mktemp("truth") / "rows.csv"
    return zonal.sweep({"cpus": [2, 4]}, range(1, 31), data=path, jobs=1, **MANY)


@pytest.fixture
def cluster() -> Any:
    """Makes clusters of worker processes, and closes them."""
    distributed = pytest.importorskip("distributed", reason="SKIPPED: distributed is missing")
    made: List[Any] = []

    def make(workers: int) -> Any:
        where = distributed.LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None
        )
        client = distributed.Client(where)
        made.extend((client, where))
        return client

    yield make
    for part in made:
        part.close()


def once_at(rows: int, act: Callable[[], object]) -> Callable[[int, int, Optional[float]], None]:
    """A progress callback that acts once, when so many rows are done."""
    acted: List[bool] = []

    def progress(done: int, total: int, left: Optional[float]) -> None:
        if done >= rows and not acted:
            acted.append(True)
            act()

    return progress


def children() -> List[int]:
    """Processes that this one started, and that work on rows."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if int(fields[1]) == os.getpid() and b"spawn_main" in command:
                found.append(int(entry.name))
    return found


def test_rows_are_those_of_single_runs_and_are_made_once(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    told: List[Tuple[int, int, Optional[float]]] = []
    swept = zonal.sweep(
        AXES, (1, 2), data=path, jobs=2, progress=lambda *now: told.append(now), **SHORT
    )
    assert (swept.made, swept.found, swept.total, swept.complete) == (8, 0, 8, True)
    assert [done for done, _, _ in told] == sorted(done for done, _, _ in told)
    assert told[0] == (0, 8, None) and told[-1][:2] == (8, 8) and told[-1][2] == 0
    row = swept.rows[3]
    assert row["point"] == "cpus=2 policy=linux-6.6 seed=2" and row["cpus"] == 2
    alone = zonal.lab.once(
        "xeon-2007-8@2",
        policy="linux-6.6",
        workload="burst:hold=16",
        seed=2,
        warm_us=10,
        run_us=30,
    )
    assert alone.result_hash == row["result_hash"]
    whole = path.read_text()
    again = zonal.sweep(AXES, (1, 2), data=path, **SHORT)
    assert (again.made, again.found) == (0, 8) and path.read_text() == whole
    # As a killed process leaves it: fewer rows, and half a line.
    lines = whole.splitlines(keepends=True)
    path.write_text("".join(lines[:4]) + lines[4][:50])
    resumed = zonal.sweep(AXES, (1, 2), data=path, jobs=1, **SHORT)
    assert (resumed.made, resumed.found) == (5, 3) and path.read_text() == whole


def test_a_parquet_file_has_the_same_rows(tmp_path: Path, truth: "zonal.Sweep") -> None:
    path = tmp_path / "rows.parquet"
    stop = threading.Event()
    part = zonal.sweep(
        {"cpus": [2, 4]},
        range(1, 31),
        data=path,
        jobs=1,
        stop=stop,
        progress=once_at(5, stop.set),
        **MANY,
    )
    assert not part.complete and not path.exists() and len(part.rows) >= 5
    assert (tmp_path / "rows.parquet.csv").exists()
    swept = zonal.sweep({"cpus": [2, 4]}, range(1, 31), data=path, jobs=2, **MANY)
    assert swept.found == len(part.rows) and hashes(swept) == hashes(truth)
    assert not (tmp_path / "rows.parquet.csv").exists()
    assert sorted(map(str, zonal.read_rows(path))) == sorted(map(str, swept.rows))
    parquet = pytest.importorskip("pyarrow.parquet", reason="SKIPPED: pyarrow is missing")
    table = parquet.read_table(path)
    assert table.num_rows == 60 and str(table.schema.field("calls_per_s").type) == "double"
    again = zonal.sweep({"cpus": [2, 4]}, range(1, 31), data=path, **MANY)
    assert (again.made, again.found) == (0, 60)


def test_a_killed_local_worker_loses_nothing(tmp_path: Path, truth: "zonal.Sweep") -> None:
    killed: List[int] = []

    def kill() -> None:
        killed.append(children()[0])
        os.kill(killed[0], signal.SIGKILL)

    swept = zonal.sweep(
        {"cpus": [2, 4]},
        range(1, 31),
        data=tmp_path / "rows.csv",
        jobs=2,
        progress=once_at(3, kill),
        **MANY,
    )
    assert killed and hashes(swept) == hashes(truth)
    assert (tmp_path / "rows.csv").read_text() == truth.path.read_text()


@pytest.mark.parametrize("workers", [2, 4])
def test_a_killed_worker_of_a_cluster_loses_nothing(
    tmp_path: Path, truth: "zonal.Sweep", cluster: Any, workers: int
) -> None:
    client = cluster(workers)
    pids = list(client.run(os.getpid).values())
    swept = zonal.sweep(
        {"cpus": [2, 4]},
        range(1, 31),
        client,
        data=tmp_path / "rows.csv",
        progress=once_at(3, lambda: os.kill(pids[0], signal.SIGKILL)),
        **MANY,
    )
    assert hashes(swept) == hashes(truth)
    assert (tmp_path / "rows.csv").read_text() == truth.path.read_text()


def test_a_restarted_cluster_goes_on_and_a_lost_one_is_named(
    tmp_path: Path, truth: "zonal.Sweep", cluster: Any
) -> None:
    client = cluster(2)
    path = tmp_path / "rows.csv"
    swept = zonal.sweep(
        {"cpus": [2, 4]},
        range(1, 11),
        client,
        data=path,
        progress=once_at(3, lambda: client.restart(wait_for_workers=False)),
        **MANY,
    )
    assert len(swept.rows) == 20
    with pytest.raises(zonal.LabError, match="no scheduler with workers|do not answer") as lost:
        zonal.sweep(
            {"cpus": [2, 4]},
            range(1, 31),
            client,
            data=path,
            reconnect_s=2,
            progress=once_at(23, client.cluster.close),
            **MANY,
        )
    assert "the same call goes on" in str(lost.value)
    kept = zonal.read_rows(path)
    assert 20 < len(kept) < 60
    again = zonal.sweep({"cpus": [2, 4]}, range(1, 31), cluster(2), data=path, **MANY)
    assert again.found == len(kept) and hashes(again) == hashes(truth)


def other_version() -> None:
    from zonal import _native

    _native.rows_version = lambda: "0.0.9+00000000"


def without_package() -> None:
    for name in ("zonal._crew", "zonal._sweep"):
        sys.modules[name] = None  # type: ignore[assignment]


def test_workers_with_another_program_or_without_it_are_refused(
    tmp_path: Path, cluster: Any
) -> None:
    for patch, expected in [
        (other_version, r"worker tcp://\S+ has zonal 0.0.9\+00000000, and this process zonal 0.1"),
        (without_package, r"worker tcp://\S+ cannot load the package zonal \(.*; expected zonal"),
    ]:
        client = cluster(2)
        client.run(patch, workers=[sorted(client.nthreads())[0]])
        with pytest.raises(zonal.VersionError, match=expected):
            zonal.sweep(AXES, data=tmp_path / "rows.csv", client=client, **SHORT)
        assert zonal.read_rows(tmp_path / "rows.csv") == []


def fail_at(text: str, times: int = sys.maxsize) -> None:
    """Lets this worker fail at rows with this text, so many times."""
    from zonal import _native

    make = _native.rows_make
    left = [times]

    def failing(row: str) -> List[str]:
        if text in row and left[0] > 0:
            left[0] -= 1
            raise OSError("the disk of this worker is full")
        return make(row)

    _native.rows_make = failing


def test_rows_that_fail_on_one_worker_are_made_by_another(
    tmp_path: Path, truth: "zonal.Sweep", cluster: Any
) -> None:
    client = cluster(2)
    bad, good = sorted(client.nthreads())
    # Each of the 60 rows: one that goes to the same worker again is lost with its second try.
    client.run(fail_at, '"seed":', workers=[bad])
    swept = zonal.sweep(
        {"cpus": [2, 4]}, range(1, 31), client, data=tmp_path / "a.csv", tries=2, **MANY
    )
    assert hashes(swept) == hashes(truth)
    client.run(fail_at, '"seed":7,', workers=[good])
    with pytest.raises(zonal.RowsError, match="2 of 60 rows could not be made") as refused:
        zonal.sweep({"cpus": [2, 4]}, range(1, 31), client, data=tmp_path / "b.csv", **MANY)
    assert sorted(refused.value.failed) == ["cpus=2 seed=7", "cpus=4 seed=7"]
    assert "the disk of this worker is full" in refused.value.failed["cpus=2 seed=7"]
    assert len(refused.value.result.rows) == len(zonal.read_rows(tmp_path / "b.csv")) == 58


def test_a_retry_whose_only_worker_dies_is_made_by_those_that_are_left(
    tmp_path: Path, truth: "zonal.Sweep", cluster: Any
) -> None:
    client = cluster(2)
    bad, good = sorted(client.nthreads())
    pids = client.run(os.getpid)
    # It fails once at each row, so that every row may go to the other alone; which is killed.
    client.run(fail_at, '"seed":', 40, workers=[bad])
    swept = zonal.sweep(
        {"cpus": [2, 4]},
        range(1, 31),
        client,
        data=tmp_path / "a.csv",
        tries=50,
        progress=once_at(3, lambda: os.kill(pids[good], signal.SIGKILL)),
        **MANY,
    )
    assert hashes(swept) == hashes(truth)


def test_a_worker_that_comes_later_without_the_package_gets_nothing(
    tmp_path: Path, truth: "zonal.Sweep", cluster: Any
) -> None:
    client = cluster(2)
    bad = sorted(client.nthreads())[0]
    swept = zonal.sweep(
        {"cpus": [2, 4]},
        range(1, 31),
        client,
        data=tmp_path / "a.csv",
        tries=4,
        progress=once_at(3, lambda: client.run(without_package, workers=[bad])),
        **MANY,
    )
    assert hashes(swept) == hashes(truth)


def test_what_cannot_be_is_refused_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    for axes, more, expected in [
        ({"polcy": ["zonal"]}, {}, "no value to set is called 'polcy'"),
        ({"cpus": []}, {}, "axis cpus: no values"),
        ({"cpus": "2,4"}, {}, "axis cpus: '2,4'; expected a list"),
        ({"cpus": [2, 2]}, {}, "axis cpus: 2 comes twice"),
        ({"cpus": [None]}, {}, "axis cpus: None; expected numbers or texts"),
        ({"cpus": [0]}, {}, "at cpus=0 seed=1"),
        ({"seed": [1]}, {}, "expected the seeds as `seeds`"),
        (AXES, {"seeds": [-1]}, "seeds: -1; expected whole numbers"),
        (AXES, {"seeds": []}, "seeds: expected one at least"),
        (AXES, {"seeds": None}, "seeds: None; expected whole numbers"),
        # An axis `policy` replaces the policy, which is refused all the same.
        ({"cpus": [2]}, {"policy": "nonsense"}, "no policy is called 'nonsense'"),
        (AXES, {"policy": "nonsense"}, "no policy is called 'nonsense'"),
        (["cpus"], {}, "axes: list; expected a mapping"),
        (AXES, {"jobs": 0}, "jobs=0; expected 1 or more"),
        (AXES, {"tries": 0}, "tries=0; expected 1 or more"),
        (AXES, {"workload": "trace:/nowhere"}, "nowhere"),
    ]:
        with pytest.raises(zonal.Error, match=expected.replace("(", r"\(")):
            zonal.sweep(axes, data=path, **{**SHORT, **more})  # type: ignore[arg-type]
        assert not path.exists()
    with pytest.raises(zonal.Error, match="cannot be written"):
        zonal.sweep(AXES, data=tmp_path / "nowhere" / "rows.csv", **SHORT)
    path.write_text("my,own,table\n")
    with pytest.raises(zonal.Error, match="line 1: 'my,own,table'"):
        zonal.sweep(AXES, data=path, **SHORT)
    assert path.read_text() == "my,own,table\n"


def test_a_policy_of_ones_own_goes_where_a_name_goes(tmp_path: Path) -> None:
    own = zonal.policy("linux-6.6", {"pcp.scale_max": 3})
    swept = zonal.sweep({"cpus": [2]}, data=tmp_path / "a.csv", jobs=1, policy=own, **SHORT)
    over = zonal.sweep({"policy": [own], "cpus": [2]}, data=tmp_path / "b.csv", jobs=1, **SHORT)
    assert swept.rows[0]["policy"] == over.rows[0]["policy"] == "linux-6.6+pcp.scale_max=3"
    assert swept.rows[0]["result_hash"] == over.rows[0]["result_hash"]


def test_ctrl_c_ends_a_sweep_and_its_file_is_valid(tmp_path: Path, fresh: Any) -> None:
    path = tmp_path / "rows.csv"
    done = fresh(
        f"""
        import os, signal, sys
        import zonal
        def main():
            sent = []
            def progress(done, total, left):
                # Rows come several at a time.
                if done >= 3 and not sent:
                    sent.append(done)
                    os.kill(os.getpid(), signal.SIGINT)
            try:
                zonal.sweep({{"cpus": [2, 4]}}, range(1, 200), data={str(path)!r}, jobs=1,
                            machine="xeon-2007-8", run_us=3000, progress=progress)
            except KeyboardInterrupt:
                print(len(zonal.read_rows({str(path)!r})))
        if __name__ == "__main__":
            main()
        """
    )
    assert 3 <= int(done.stdout) < 398


def test_a_row_is_bad_only_if_its_text_is() -> None:
    with pytest.raises(zonal.LabError, match="expected a line of `zonal lab sweep --list`"):
        _native.rows_make("nonsense")


def test_a_machine_of_ones_own_stays_it_in_every_size(tmp_path: Path) -> None:
    values = lab.Machine.named("xeon-2007-8").to_dict()
    own = lab.Machine.from_dict({**values, "memory_mib": 2048})
    four = own.resized(4)
    assert four.resized(8) == own.resized(8) and pickle.loads(pickle.dumps(four)) == four

    def ids(machine: object, axes: Dict[str, List[object]], name: str) -> Dict[object, object]:
        short = {**SHORT, "machine": machine}
        one = zonal.sweep(axes, data=tmp_path / f"{name}1.csv", jobs=1, **short).rows
        other = lab.sweep({**axes, "seed": [1]}, output=tmp_path / f"{name}2.csv", **short)
        found = {row["machine"]: row["machine_id"] for row in one}
        assert found == {row["machine"]: row["machine_id"] for row in other.points}
        return found

    policies: Dict[str, List[object]] = {"policy": ["zonal"]}
    sizes: Dict[str, List[object]] = {"cpus": [2, 4, 8]}
    alone = {**ids(own, sizes, "own"), **ids(own, policies, "whole")}
    assert {**ids(four, sizes, "four"), **ids(four, policies, "alone")}.items() <= alone.items()
    presets = ids("xeon-2007-8", sizes, "preset")
    assert set(presets) < set(alone) and not set(presets.values()) & set(alone.values())
    # Its description alone does not say what it was resized from.
    bare = lab.Machine.from_dict(four.to_dict())
    assert ids(bare, policies, "bare") == ids(four, policies, "again")
    with pytest.raises(zonal.LabError, match="that was given is xeon-2007-8@4; expected"):
        zonal.sweep({"machine": ["xeon-2007-8"]}, data=tmp_path / "no.csv", machine=bare)


def test_a_script_that_starts_itself_in_its_workers_is_told_of_the_guard(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import zonal\n"
        f"zonal.sweep({{'cpus': [2, 4]}}, data={str(tmp_path / 'a.csv')!r},\n"
        "    machine='xeon-2007-8', run_us=30, jobs=2)\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "LabError" in last and 'outside of `if __name__ == "__main__":`' in last, done.stderr


def test_workers_that_are_at_work_end_with_their_crew() -> None:
    crew = Local(1)
    crew.check()
    future = crew.submit(time.sleep, 100_000)
    while not future.running():
        time.sleep(0.05)
    (worker,) = crew._pool._processes.values()
    crew.close()
    assert not worker.is_alive()


def test_rows_are_a_sequence_and_a_table_that_readers_take_without_dictionaries(
    tmp_path: Path,
) -> None:
    axes: Dict[str, List[object]] = {"cpus": [2, 4], "busy": [1, 2]}
    swept = zonal.sweep(axes, (1, 1 << 63), data=tmp_path / "a.csv", jobs=1, **SHORT)
    rows = swept.rows
    plain = list(rows)
    assert isinstance(rows, zonal.RowList) and len(plain) == 8
    for part in (slice(2, 5), slice(None, None, -1), slice(6, 0, -2), slice(5, 5), slice(-3, 99)):
        assert rows[part] == plain[part] and rows[part][1:] == plain[part][1:]
    assert plain[3] in rows and rows.index(plain[3]) == 3 and list(reversed(rows)) == plain[::-1]
    with pytest.raises(IndexError):
        rows[2:4][2]
    arrow = pytest.importorskip("pyarrow", reason="SKIPPED: pyarrow is missing")
    for part in (slice(None), slice(None, None, -3), slice(4, 4)):
        table = arrow.table(rows[part])
        assert table.to_pylist() == plain[part]
        assert table.schema.field("seed").type == arrow.uint64()
    for part in (slice(None), slice(None, None, -3), slice(4, 4)):
        copy = pickle.loads(pickle.dumps(rows[part]))
        assert isinstance(copy, zonal.RowList) and copy == rows[part]
    copy = pickle.loads(pickle.dumps(swept))
    assert isinstance(copy.rows, zonal.RowList) and copy.to_arrow().equals(swept.to_arrow())
    polars = pytest.importorskip("polars", reason="SKIPPED: polars is missing")
    assert polars.DataFrame(rows)["result_hash"].to_list() == [r["result_hash"] for r in plain]


def test_a_row_has_the_keys_and_types_that_its_class_names(tmp_path: Path) -> None:
    row = zonal.sweep({"cpus": [2]}, data=tmp_path / "a.csv", jobs=1, **SHORT).rows[0]
    kinds = get_type_hints(zonal.SweepRow)
    assert list(row) == list(kinds)
    for name, kind in kinds.items():
        assert isinstance(row[name], get_args(kind) or kind), name  # type: ignore[literal-required]
    with pytest.raises(zonal.LabError):
        _native.RowTexts(["no row"])


def test_a_file_of_millions_of_equal_rows_is_read_within_bounded_memory(
    tmp_path: Path, fresh: Any
) -> None:
    arrow = pytest.importorskip("pyarrow", reason="SKIPPED: pyarrow is missing")
    parquet = pytest.importorskip("pyarrow.parquet")
    zonal.sweep({"cpus": [2]}, data=tmp_path / "a.parquet", jobs=1, **SHORT)
    row = parquet.read_table(tmp_path / "a.parquet")
    many = tmp_path / "many.parquet"
    with parquet.ParquetWriter(many, row.schema) as writer:
        group = row.take(arrow.array([0] * 100_000))
        for _ in range(20):
            writer.write_table(group, row_group_size=100_000)
    done = fresh(
        f"""
        import resource
        import zonal
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        rows = zonal.read_rows({str(many)!r})
        print(len(rows), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
        """
    )
    rows, mib = map(int, done.stdout.split())
    # As objects of a row each it would be some 5 GiB.
    assert rows == 1 and mib < 200, f"{mib} MiB"


def test_a_result_has_its_page_and_a_copy_its_rows(tmp_path: Path) -> None:
    swept = zonal.sweep({"cpus": [2, 4]}, (1, 2), data=tmp_path / "a.csv", jobs=1, **SHORT)
    copy = pickle.loads(pickle.dumps(swept))
    assert list(copy.rows) == list(swept.rows) and swept.rows == copy.rows
    assert swept.rows[-1] == swept.rows[3] and swept.rows[1:3] == [swept.rows[1], swept.rows[2]]
    with pytest.raises(IndexError):
        swept.rows[4]
    assert "<svg" in swept.html() and "iframe" in (swept._repr_html_() or "")
    with pytest.raises(zonal.LabError, match="no page"):
        copy.html()
    pandas = pytest.importorskip("pandas", reason="SKIPPED: pandas is missing")
    assert isinstance(copy.to_pandas(), pandas.DataFrame)
    assert copy.to_pandas().equals(swept.to_pandas()) and swept.to_pandas().shape[0] == 4


def test_a_task_is_some_seconds_of_rows_and_less_towards_the_end(tmp_path: Path) -> None:
    rows = _native.Rows(
        "xeon-2007-8", None, "zonal", "burst", None, 5, 20, [("seed", ["1"])], tmp_path / "a.csv"
    )
    work = _sweep._Work(rows, 3, None)
    assert work.batch(10**6, 2) == 1, "nothing is known of a row yet"
    for row_s, waiting, workers, expected in [
        (0.23, 10**6, 2, 8),
        (0.23, 40, 2, 6),
        (0.23, 7, 2, 1),
        (5.0, 10**6, 2, 0),
        (1e-5, 10**6, 2, 1000),
        # A thousand tasks a second are what a scheduler can do.
        (1.0, 10**6, 10_000, 10),
        (1.0, 10_000, 10_000, 1),
    ]:
        work._row_s = row_s
        assert work.batch(waiting, workers) == expected, (row_s, waiting, workers)
    rows.finish()
