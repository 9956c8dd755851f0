"""`zonal.tune`: it finds what is there to find, keeps to its bound, and tells of over-fitting."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict

import pytest

import zonal
from zonal import Candidate, Load, Tuned
from zonal._tune import _ratio

pytest.importorskip("optuna", reason="SKIPPED: optuna is missing")

SEEN = [Load("xeon-2007-8", name, 50, 200) for name in ("burst:hold=64", "churn:hold=64")]
HELD = [Load("xeon-2007-8", "handoff:depth=16", 50, 200)]
#: Lists that hold one batch take the zone lock more often than those of 128.
SPACE: Dict[str, Any] = {"pcp.high_batches": [1, 128], "depot.batches": (0, 1)}
PAIRS = [Load("xeon-2007-8", "handoff:depth=16", 100, 300)]
ALONE = [Load("xeon-2007-8", "burst:hold=256", 100, 300)]


def test_a_search_finds_the_better_values_and_is_the_same_again(tmp_path: Path) -> None:
    told = []

    def search(name: str) -> Tuned:
        return zonal.tune(
            "cycles_per_call",
            SPACE,
            loads=PAIRS,
            held_back=ALONE,
            data=tmp_path / name,
            trials=12,
            memory_bound=1000.0,
            reference="linux-6.18+pcp.high_batches=1",
            start=[{"pcp.high_batches": 128, "depot.batches": 0}],
            jobs=2,
            progress=lambda done, of: told.append((done, of)),
        )

    one = search("a.csv")
    best = one.front[0]
    assert best.scores["cycles_per_call"] < 0.95 and "+pcp.high_batches=128" in best.policy
    assert set(best.by_load) == {str(load) for load in PAIRS}
    assert len(one.front) == len(one.validated) and set(one.overfit()) == {
        each.policy for each in one.front
    }
    assert told == [(8, 12), (12, 12)]
    text = one.report()
    assert best.policy in text and "Losers:" in text and "held back: burst" in text
    assert len(one.losers) + len(one.front) == len(one.tried)
    before = (tmp_path / "a.csv").read_text()
    again = search("a.csv")
    assert again.tried == one.tried and (tmp_path / "a.csv").read_text() == before


def test_what_breaks_the_bound_is_told_but_never_wins(tmp_path: Path) -> None:
    found = zonal.tune(
        ["cycles_per_call", "listed_pages_max"],
        {"pcp.high_batches": [1, 8, 128]},
        loads=SEEN,
        held_back=HELD,
        data=tmp_path / "rows.csv",
        trials=8,
        memory_bound=0.5,
        jobs=1,
    )
    assert all(each.memory <= 0.5 for each in found.front)
    assert any(each.memory > 0.5 for each in found.losers)


def test_over_fitting_is_the_part_of_the_gain_that_is_lost() -> None:
    def candidate(score: float) -> Candidate:
        return Candidate("p", {"cycles_per_call": score}, 1.0, {})

    for seen, held, lost in [(0.8, 0.8, 0.0), (0.8, 1.0, 1.0), (0.8, 1.1, 1.5), (0.8, 0.9, 0.5)]:
        found = Tuned("zonal", 1.0, [], [], [], [candidate(seen)], [candidate(held)])
        assert found.overfit()["p"] == pytest.approx(lost)


def test_loads_that_differ_in_their_time_alone_are_kept_apart(tmp_path: Path) -> None:
    loads = [Load("xeon-2007-8", "burst:hold=64", 50, run) for run in (100, 2000)]
    assert len({str(load) for load in loads}) == 2
    found = zonal.tune(
        "calls",
        {"pcp.high_batches": [1]},
        loads=loads,
        held_back=HELD,
        data=tmp_path / "rows.csv",
        trials=1,
        memory_bound=1000.0,
        reference="linux-6.18",
        jobs=1,
    )
    (one,) = found.tried
    assert set(one.by_load) == {str(load) for load in loads}
    rows = {
        (row["policy"], row["run_us"]): row["calls"]
        for row in zonal.read_rows(tmp_path / "rows.csv")
        if row["workload"] == "burst:hold=64"
    }
    assert len(rows) == 4
    for load in loads:
        ratio = rows[one.policy, load.run_us] / rows["linux-6.18", load.run_us]  # type: ignore
        assert one.by_load[str(load)] == pytest.approx(ratio)


def test_nothing_is_a_multiple_of_zero() -> None:
    assert _ratio(0.0, 0.0, "x") == 1.0 and _ratio(3.0, 2.0, "x") == 1.5
    assert _ratio(0.0, 2.0, "x") == 0.0
    with pytest.raises(zonal.LabError, match="x is 0, and 2 is no multiple of it"):
        _ratio(2.0, 0.0, "x")


def test_what_cannot_be_searched_is_refused_by_its_name(tmp_path: Path) -> None:
    good: Dict[str, Any] = {"loads": SEEN, "held_back": HELD, "data": tmp_path / "rows.csv"}
    for objective, space, more, expected in [
        ("speed", SPACE, {}, "objective speed; expected one of elapsed_us"),
        ("cycles_per_call", {}, {}, "an empty search"),
        ("cycles_per_call", {"pcp.stream": []}, {}, "space pcp.stream"),
        ("cycles_per_call", {"pcp.steam": [1]}, {}, "pcp.steam"),
        ("cycles_per_call", SPACE, {"held_back": []}, "expected loads on both sides"),
        ("cycles_per_call", SPACE, {"held_back": SEEN}, "is searched and held back"),
        ("cycles_per_call", SPACE, {"trials": 0}, "trials=0"),
    ]:
        with pytest.raises(zonal.Error, match=expected):
            zonal.tune(objective, space, **{**good, **more})  # type: ignore[arg-type]
