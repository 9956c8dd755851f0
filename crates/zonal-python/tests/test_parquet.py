"""Recordings as Parquet files; and the queries of the book, run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import pytest

import zonal

BOOK = Path(__file__).resolve().parents[3] / "docs" / "howto" / "parquet.md"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the page asks: the bundled recording, and a small sweep."""
    folder = tmp_path_factory.mktemp("queries")
    events, size = zonal.to_parquet(None, folder / "host.parquet")
    assert events == zonal.Recording().info.events and size < 8 * events
    zonal.sweep(
        {"policy": ["zonal", "linux-6.18"], "cpus": [2, 4]},
        (1, 2),
        data=folder / "rows.parquet",
        machine="xeon-2007-8",
        run_us=100,
        jobs=1,
    )
    return folder


def test_progress_is_told_of_events_and_never_of_more(folder: Path, tmp_path: Path) -> None:
    told: List[Tuple[int, Optional[int]]] = []
    events = zonal.Recording().info.events
    zonal.to_parquet(
        None, tmp_path / "a.parquet", level=1, progress=lambda done, of: told.append((done, of))
    )
    assert told and told[-1] == (events, events)
    told.clear()
    zonal.from_parquet(
        folder / "host.parquet",
        tmp_path / "a.zonal",
        level=1,
        progress=lambda done, of: told.append((done, of)),
    )
    # How many there will be is not known before.
    assert told and told[-1] == (events, None) and all(done <= events for done, _ in told)


def blocks(language: str) -> List[str]:
    return re.findall(rf"```{language}\n(.*?)```", BOOK.read_text(), re.DOTALL)


def test_queries_of_the_book_answer_in_duckdb(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    duckdb = pytest.importorskip("duckdb", reason="SKIPPED: duckdb is missing")
    monkeypatch.chdir(folder)
    queries = blocks("sql")
    assert len(queries) == 3
    pages, threads, sweep = [duckdb.sql(query).fetchall() for query in queries]
    told = zonal.Recording().events(columns=["event", "order", "pfn"])
    pyarrow = pytest.importorskip("pyarrow", reason="SKIPPED: pyarrow is missing")
    events = pyarrow.table(told).to_pylist()
    expected = sum(
        1 << event["order"]
        for event in events
        if event["event"] == "mm_page_alloc" and event["pfn"] is not None
    )
    assert sum(row[2] for row in pages) == expected
    assert len(threads) == 10 and all(row[1] >= row[2] >= 0 for row in threads)
    assert [row[:2] for row in sweep] and {row[1] for row in sweep} == {2, 4}


def test_queries_of_the_book_answer_in_polars(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("polars", reason="SKIPPED: polars is missing")
    duckdb = pytest.importorskip("duckdb", reason="SKIPPED: duckdb is missing")
    monkeypatch.chdir(folder)
    (query,) = blocks("python")
    names: Dict[str, Any] = {}
    exec(query, names)  # noqa: S102: the page's own text
    other = duckdb.sql(
        """SELECT cpu, event, sum(1::BIGINT << "order")::BIGINT FROM 'host.parquet'
        WHERE event IN ('mm_page_alloc_zone_locked', 'mm_page_pcpu_drain')
        GROUP BY ALL ORDER BY cpu, event"""
    ).fetchall()
    assert other and [tuple(map(int_or_text, row)) for row in names["moves"].rows()] == other


def int_or_text(value: object) -> object:
    return int(value) if isinstance(value, float) else value


def test_a_row_group_knows_its_span_of_time(folder: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="SKIPPED: pyarrow is missing")
    file = parquet.ParquetFile(folder / "host.parquet")
    spans = []
    for number in range(file.metadata.num_row_groups):
        column = file.metadata.row_group(number).column(0)
        assert column.path_in_schema == "time_ns" and column.compression == "ZSTD"
        spans.append((column.statistics.min, column.statistics.max))
    assert spans == sorted(spans)
    arrow = pytest.importorskip("pyarrow")
    own = arrow.table(zonal.Recording().events()).schema.names
    assert sorted(file.schema_arrow.names) == sorted(own)


def test_what_other_programs_write_is_read_or_refused_by_its_column(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow", reason="SKIPPED: pyarrow is missing")
    parquet = pytest.importorskip("pyarrow.parquet", reason="SKIPPED: pyarrow is missing")
    path, back = tmp_path / "x.parquet", tmp_path / "x.zonal"
    # As pandas writes it: whole numbers of 64 bits with a sign, snappy.
    good = arrow.table(
        {
            "event": ["mm_page_alloc", "mm_page_free"],
            "pid": [-1, 7],
            "order": [3, 3],
            "migratetype": [1, None],
            "gfp": [3264, None],
            "pfn": [4096, 4096],
            "cpu": [0, 1],
            "time_ns": [10, 20],
        }
    )
    parquet.write_table(good, path, compression="snappy")
    assert zonal.from_parquet(path, back)[0] == 2
    events = arrow.table(zonal.Recording(back).events()).to_pylist()
    assert [(event["time_ns"], event["pid"], event["pfn"]) for event in events] == [
        (10, -1, 4096),
        (20, 7, 4096),
    ]
    for column, values, expected in [
        ("time_ns", [20, 10], "row 2: time_ns: 10; expected 20 or later"),
        ("order", [3, 14], "row 2: order: 14"),
        ("order", [3.0, 3.0], "column order: found DOUBLE; expected whole numbers"),
        ("event", ["mm_page_alloc", "free"], "row 2: event: 'free'"),
        ("pid", [1, 1 << 40], "row 2: pid: 1099511627776"),
    ]:
        bad = good.set_column(good.schema.get_field_index(column), column, [values])
        parquet.write_table(bad, path)
        with pytest.raises(zonal.TraceError, match=re.escape(expected)):
            zonal.from_parquet(path, tmp_path / "bad.zonal")
        assert not (tmp_path / "bad.zonal").exists()
    with pytest.raises(zonal.ArgumentError, match="level: 0"):
        zonal.to_parquet(None, path, level=0)


def test_a_damaged_file_is_an_exception_of_the_package_that_names_it(
    folder: Path, tmp_path: Path, cut: Path
) -> None:
    path, back = tmp_path / "x.parquet", tmp_path / "x.zonal"
    whole = (folder / "host.parquet").read_bytes()
    rows = (folder / "rows.parquet").read_bytes()
    for part in (1, 8, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:part])
        with pytest.raises(zonal.TraceError, match="x.parquet") as raised:
            zonal.from_parquet(path, back)
        assert raised.value.file == str(path) and not back.exists()
    # One of fewer than four bytes is taken for a text.
    for part in (8, len(rows) // 2, len(rows) - 1):
        path.write_bytes(rows[:part])
        with pytest.raises(zonal.LabError, match="x.parquet") as refused:
            zonal.read_rows(path)
        assert refused.value.file == str(path)
    noise = bytearray(whole)
    noise[len(noise) // 3 : len(noise) // 3 + 2000] = bytes(range(250)) * 8
    path.write_bytes(noise)
    with pytest.raises(zonal.TraceError, match="x.parquet") as damaged:
        zonal.from_parquet(path, back)
    assert damaged.value.file == str(path) and not back.exists()
    # A damaged recording has its line here too.
    with pytest.raises(zonal.TraceError) as of_text:
        zonal.to_parquet(cut, tmp_path / "y.parquet")
    assert (of_text.value.file, of_text.value.line) == (str(cut), 3)
    assert not (tmp_path / "y.parquet").exists()
    with pytest.raises(zonal.MissingFileError) as missing:
        zonal.from_parquet(tmp_path / "none.parquet", back)
    assert missing.value.file == str(tmp_path / "none.parquet")
