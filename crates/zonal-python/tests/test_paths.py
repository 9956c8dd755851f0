"""Where files may be: what a call cannot use is refused before anything is made."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Callable, Dict

import pytest

import zonal
from zonal import lab
from zonal._paths import is_cut_url

SHORT: Dict[str, Any] = {"machine": "xeon-2007-8", "warm_us": 20, "run_us": 100}
CALLS: Dict[str, Callable[[Any], object]] = {
    "sweep": lambda path: zonal.sweep({"cpus": [2]}, data=path, jobs=1, **SHORT),
    "read_rows": lambda path: zonal.read_rows(path),
    "lab.sweep": lambda path: lab.sweep({"seed": [1]}, output=path, **SHORT),
    "tune": lambda path: zonal.tune(
        "cycles_per_call",
        {"pcp.scale_max": [1, 2]},
        loads=[zonal.Load("xeon-2007-8", "burst")],
        held_back=[zonal.Load("xeon-2007-8", "churn")],
        data=path,
        trials=1,
    ),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("url", ["s3://b/x.csv", "gs://b/x.parquet", "memory://x", "file:///x.csv"])
def test_rows_are_in_a_file_of_this_machine(
    call: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if call == "tune":
        pytest.importorskip("optuna", reason="SKIPPED: Optuna is missing")
    monkeypatch.chdir(tmp_path)
    for path in (url, os.fsencode(url), Path(url)):
        with pytest.raises(zonal.LabError, match=r"x.*: expected a file of this machine"):
            CALLS[call](path)
    assert not list(tmp_path.iterdir())


def test_a_folder_of_this_machine_may_be_named_as_a_store_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s3:").mkdir()
    made = zonal.sweep({"cpus": [2]}, data=Path("s3:/rows.csv"), jobs=1, **SHORT)
    assert zonal.read_rows(Path("s3:") / "rows.csv") == list(made.rows)
    assert not is_cut_url("C:/rows.csv") and not is_cut_url("rows.csv") and not is_cut_url("/s3:/x")


def test_a_url_that_pathlib_shortened_is_told_from_a_pattern_without_files() -> None:
    with pytest.raises(zonal.ArgumentError, match=r"s3:/fleet/\*: a path that was a URL; expected"):
        zonal.fleet(Path("s3://fleet/*"))


def test_a_machine_is_read_from_a_path_of_any_bytes(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/\xff.toml"
    with pytest.raises(zonal.MachineError, match="cannot be read"):
        lab.once(path, warm_us=20, run_us=100)
    with open(path, "w") as file:
        file.write(lab.Machine.named("xeon-2007-8").to_toml())
    hashes = [
        lab.once(each, warm_us=20, run_us=100).result_hash
        for each in (path, os.fsdecode(path), Path(os.fsdecode(path)), path + b"@8", "xeon-2007-8")
    ]
    assert len(set(hashes)) == 1


@pytest.mark.parametrize("wrong", ["\ud800", "\udcff"])
def test_names_that_are_no_text_are_refused_as_names(wrong: str) -> None:
    calls: Dict[str, Callable[[], object]] = {
        "machine": lambda: lab.once(wrong, warm_us=20, run_us=100),
        "policy": lambda: lab.once(policy=wrong),
        "workload": lambda: lab.once(workload=wrong),
        "set": lambda: lab.once(set={wrong: 1}),
        "value": lambda: lab.once(set={"cpus": wrong}),
        "other": lambda: lab.compare("zonal", wrong),
        "experiment": lambda: lab.run(wrong),
        "size": lambda: lab.Machine.named("xeon-2007-8").resized(wrong),
        "named": lambda: lab.Machine.named(wrong),
        "Policy": lambda: zonal.Policy(wrong),
        "Pool": lambda: zonal.Pool(1 << 22, policy=wrong),
    }
    for name, call in calls.items():
        with pytest.raises(zonal.Error) as told:
            call()
        assert f"\\u{ord(wrong):04x}" in str(told.value), name


def test_a_folder_is_no_file_of_rows(tmp_path: Path) -> None:
    with pytest.raises(zonal.LabError, match="this is a directory; expected the files in it"):
        zonal.read_rows(tmp_path)
    with pytest.raises(zonal.LabError, match="gone.csv: there is no such file"):
        zonal.read_rows(tmp_path / "gone.csv")
