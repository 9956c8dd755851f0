"""Results: typed fields, tables, pages, errors."""

from __future__ import annotations

import dataclasses
import json
import pickle
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Callable, Dict, List, Set, get_args, get_type_hints

import pytest

import zonal
from zonal import advice, lab

SHORT = {"warm_us": 50, "run_us": 200}

MAKERS: Dict[str, Callable[[], zonal.Result]] = {
    "replay": lambda: zonal.replay(policy="linux-6.18", fidelity=True, explain=100),
    "replay on real memory": lambda: zonal.replay(memory="real"),
    "advise": lambda: zonal.advise(only=["percpu_pagelist_high_fraction 8"]),
    "conform": lambda: zonal.conform(live=True),
    "once": lambda: lab.once("xeon-2007-8", **SHORT),
    "compare": lambda: lab.compare("linux-6.6", "zonal", machine="xeon-2007-8", **SHORT),
    "sweep": lambda: lab.sweep({"seed": [1, 2]}, machine="xeon-2007-8", **SHORT),
    "run": lambda: lab.run("vmstat-update-cost"),
}
made: Dict[str, zonal.Result] = {}


@pytest.fixture(params=sorted(MAKERS))
def result(request: Any) -> zonal.Result:
    if request.param not in made:
        made[request.param] = MAKERS[request.param]()
    return made[request.param]


def names(value: Any) -> Any:
    """The fields of an object, of lists and of dicts, as JSON would have them."""
    if dataclasses.is_dataclass(value):
        fields = [field.name for field in dataclasses.fields(value)]
        return {name: names(getattr(value, name)) for name in fields}
    if isinstance(value, list):
        return [names(each) for each in value]
    if isinstance(value, dict):
        return {key: names(each) for key, each in value.items()}
    return value


def without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_none(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [without_none(each) for each in value]
    return value


def test_the_typed_fields_are_all_that_the_library_writes(result: zonal.Result) -> None:
    assert without_none(names(result)) == without_none(result.to_dict())


def test_no_key_of_the_json_is_left_out_where_it_is_null(result: zonal.Result) -> None:
    def check(told: Any, typed: Any, place: str) -> None:
        if isinstance(told, dict) and isinstance(typed, dict):
            assert set(told) <= set(typed), f"{place}: {sorted(set(told) - set(typed))}"
            for key, value in told.items():
                check(value, typed[key], f"{place}.{key}")
        elif isinstance(told, list) and isinstance(typed, list):
            for each, other in zip(told, typed):
                check(each, other, f"{place}[]")

    check(result.to_dict(), names(result), type(result).__name__)


def written_by_rust(sources: Path) -> Dict[str, Set[str]]:
    """By name, the keys that each struct of a crate has as JSON."""
    found: Dict[str, Set[str]] = {}
    flat: Dict[str, List[str]] = {}
    head = r"#\[derive\([^)]*\bSerialize\b[^)]*\)\]\s*pub struct (\w+)"
    struct = re.compile(head + r" \{(.*?)\n\}", re.S)
    for path in sorted(sources.rglob("*.rs")):
        for name, body in struct.findall(path.read_text()):
            keys, attribute = set(), ""
            for line in body.splitlines():
                if line.strip().startswith("#[serde("):
                    attribute = line
                field = re.match(r"    pub(?:\([^)]*\))? (\w+): (.*),", line)
                if field is None:
                    continue
                if "flatten" in attribute:
                    flat.setdefault(name, []).append(field[2])
                elif "skip)" not in attribute:
                    keys.add(field[1])
                attribute = ""
            assert name not in found, f"two structs are named {name}"
            found[name] = keys
    for name, parts in flat.items():
        found[name].update(*(found.get(part, set()) for part in parts))
    return found


def test_advice_has_each_field_of_the_library_whether_a_recording_has_it_or_not() -> None:
    sources = Path(__file__).resolve().parents[2] / "zonal-replay" / "src"
    if not sources.is_dir():
        pytest.skip("SKIPPED: the library's sources are not beside the tests")
    rust = written_by_rust(sources)
    kinds = [getattr(advice, name) for name in advice.__all__]
    for kind in kinds:
        fields = {field.name for field in dataclasses.fields(kind)}
        assert fields == rust[kind.__name__], kind.__name__
    # And each struct in one of them is one of them.
    assert {"Advice", "AdvisedOn", "ReclaimCost", "Row", "Saving"} <= {k.__name__ for k in kinds}
    for kind in kinds:
        for name, hint in get_type_hints(kind).items():
            for inner in [hint, *get_args(hint)]:
                if dataclasses.is_dataclass(inner):
                    assert inner in kinds or inner is advice.ReclaimJudged, f"{kind}.{name}"


def test_types_of_fields_are_those_that_are_declared(result: zonal.Result) -> None:
    def check(value: Any) -> None:
        for name, hint in get_type_hints(type(value)).items():
            if name in ("_json", "_page", "row_type") or not hasattr(value, name):
                continue
            found = getattr(value, name)
            if hint in (int, float, str, bool):
                assert type(found) is hint, f"{type(value).__name__}.{name}: {found!r}"
            for each in found if isinstance(found, list) else [found]:
                if dataclasses.is_dataclass(each):
                    check(each)

    check(result)


def test_rows_are_a_table_of_arrow_and_of_pandas(result: zonal.Result) -> None:
    pytest.importorskip("pyarrow")
    table = result.to_arrow()
    assert table.num_rows == len(result.rows()) and table.num_columns > 0
    pytest.importorskip("pandas")
    assert len(result.to_pandas()) == table.num_rows


def test_a_result_goes_through_json_and_pickle(result: zonal.Result) -> None:
    assert type(result).from_json(result.to_json()) == result
    assert pickle.loads(pickle.dumps(result)) == result
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.schema_version = 2  # type: ignore[attr-defined]


def test_json_of_another_kind_or_damaged_is_refused(result: zonal.Result) -> None:
    for wrong in ("", "{", "[]", "{}", "null", '"text"'):
        with pytest.raises(zonal.Error):
            type(result).from_json(wrong)


def test_its_html_is_well_formed(result: zonal.Result) -> None:
    class Balance(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.open: List[str] = []

        def handle_starttag(self, tag: str, attrs: Any) -> None:
            if tag not in ("meta", "br", "link", "img"):
                self.open.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert self.open.pop() == tag

    parser = Balance()
    html = result._repr_html_()
    parser.feed(html)
    assert not parser.open and "<script" not in html


def test_pages_are_there_where_the_program_has_them() -> None:
    report = zonal.replay(policy="linux-6.18", fidelity=True)
    assert "<svg" in report.html() and report.fidelity is not None and report.passed
    with pytest.raises(zonal.Error, match="no page"):
        zonal.replay(limit=1000).html()


def test_names_in_reports_cannot_become_html() -> None:
    from zonal._html import framed, table

    evil = "<script>alert(1)</script>"
    assert "<script" not in table(evil, [evil], [[evil]]) and "<script" not in framed(evil)


def test_exceptions_keep_their_place_through_pickle(cut: Path) -> None:
    with pytest.raises(zonal.TraceError) as raised:
        zonal.replay(cut)
    again = pickle.loads(pickle.dumps(raised.value))
    assert (type(again), again.file, again.line, str(again)) == (
        zonal.TraceError,
        raised.value.file,
        raised.value.line,
        str(raised.value),
    )


def test_replays_of_what_cannot_be_replayed_are_refused(cut: Path, tmp_path: Path) -> None:
    for call in (zonal.replay, zonal.advise):
        with pytest.raises(zonal.Error):
            call(cut)
        with pytest.raises(zonal.MissingFileError):
            call("/nowhere")
        with pytest.raises(zonal.ArgumentError):
            call(limit=0)
        with pytest.raises(TypeError):
            call(3)  # type: ignore[arg-type]
    for wrong in (
        {"memory": "some"},
        {"speed": "slow"},
        {"speed": "recorded"},
        {"memory": "real", "fidelity": True},
        {"memory": "real", "explain": 1},
        {"use_recorded": ["everything"]},
    ):
        with pytest.raises(zonal.ArgumentError):
            zonal.replay(**wrong)  # type: ignore[arg-type]
    with pytest.raises(zonal.PolicyError):
        zonal.replay(policy="nope")
    with pytest.raises(zonal.ReplayError):
        zonal.replay(explain=10**9)
    with pytest.raises(zonal.ReplayError):
        zonal.advise(only=["no-such-change"])
    with pytest.raises(zonal.ArgumentError):
        zonal.conform()


def test_a_bad_capture_is_told_and_does_not_end_the_others(tmp_path: Path) -> None:
    report = zonal.conform([tmp_path / "nowhere", tmp_path], live=True)
    assert len(report.bad_input) == 2 and len(report.cases) == 1 and not report.passed
    assert "nowhere" in report.bad_input[0].error


def test_versions_agree() -> None:
    import importlib.metadata

    assert zonal.__version__ == importlib.metadata.version("zonal")
    assert json.loads(zonal.conform(live=True).to_json())["values"] > 0
