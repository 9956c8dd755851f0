"""Recordings and their events."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import zonal

pa = pytest.importorskip("pyarrow")
import pyarrow.compute as pc  # noqa: E402


def test_the_bundled_recording_says_what_it_is() -> None:
    info = zonal.Recording().info
    assert info.name == "zlib-make-j4" and info.can_be_replayed and info.damage is None
    assert info.events is not None and info.zones and info.cpus == 2


def test_every_event_is_a_row_and_kinds_have_their_fields() -> None:
    recording = zonal.Recording()
    table = pa.table(recording.events())
    counted = recording.info.events
    lost = pc.sum(pc.equal(table["event"].cast("string"), "lost")).as_py()
    assert table.num_rows - lost == counted
    assert table["time_ns"].null_count == 0 and table["lock"].null_count == table.num_rows
    frees = table.filter(pc.equal(table["event"].cast("string"), "mm_page_free"))
    assert frees.num_rows > 0
    assert frees["pfn"].null_count == 0 and frees["order"].null_count == 0
    assert frees["migratetype"].null_count == frees.num_rows
    times = table["time_ns"].to_pylist()
    assert times == sorted(times)


def test_batches_do_not_depend_on_their_size_and_columns_come_as_asked() -> None:
    recording = zonal.Recording()
    names = ["order", "time_ns", "event"]
    small = pa.table(recording.events(names, batch_rows=1000))
    large = pa.table(recording.events(names))
    assert small.column_names == names
    assert small.combine_chunks().equals(large.combine_chunks())
    batches = list(recording.events(["pfn"], batch_rows=1000))
    assert [len(batch) for batch in batches[:-1]] == [1000] * (len(batches) - 1)
    assert sum(batch.num_rows for batch in batches) == large.num_rows
    rebuilt = pa.Table.from_batches([pa.record_batch(batch) for batch in batches])
    assert rebuilt.equals(pa.table(recording.events(["pfn"], batch_rows=1000)))


def test_a_time_to_begin_at_passes_over_what_is_before() -> None:
    recording = zonal.Recording()
    times = pa.table(recording.events(["time_ns"]))["time_ns"].to_pylist()
    half = times[len(times) // 2]
    later = pa.table(recording.events(["time_ns"], from_ns=half))["time_ns"].to_pylist()
    assert later == [time for time in times if time >= half]


def test_pandas_polars_and_duckdb_read_the_same_rows() -> None:
    events = zonal.Recording().events(["event", "order"])
    expected = pa.table(events).filter(pc.equal(pa.table(events)["order"], 3)).num_rows
    assert expected > 0
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame.from_arrow(events) if hasattr(pandas.DataFrame, "from_arrow") else (
        pa.table(events).to_pandas()
    )
    assert int((frame["order"] == 3).sum()) == expected
    polars = pytest.importorskip("polars")
    assert polars.DataFrame(events).filter(polars.col("order") == 3).height == expected
    duckdb = pytest.importorskip("duckdb")
    reader = pa.RecordBatchReader.from_stream(events)
    rows = duckdb.sql("select count(*) from reader where \"order\" = 3").fetchall()
    assert rows == [(expected,)]


def test_several_threads_read_one_recording() -> None:
    recording = zonal.Recording()
    found = []

    def read() -> None:
        found.append(pa.table(recording.events(["pfn"])).num_rows)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and len(set(found)) == 1


def test_a_missing_file_is_an_exception_that_names_it() -> None:
    with pytest.raises(zonal.MissingFileError) as raised:
        zonal.Recording("/nowhere/there.zonal")
    assert isinstance(raised.value, FileNotFoundError)
    assert raised.value.file is not None and "/nowhere" in raised.value.file
    assert "/nowhere" in str(raised.value)


class Named:
    """A path of a program's own."""

    def __init__(self, path: bytes) -> None:
        self.path = path

    def __fspath__(self) -> bytes:
        return self.path


def test_a_path_is_text_bytes_or_what_has_one(tmp_path: Path) -> None:
    # A name that is no UTF-8, as Linux has them.
    parquet, name = os.fsencode(tmp_path) + b"/a.parquet", os.fsencode(tmp_path) + b"/\xff.zonal"
    zonal.to_parquet(None, parquet, level=1)
    zonal.from_parquet(parquet, Named(name), level=1)
    expected = zonal.Recording().info.events
    for path in (name, Named(name), os.fsdecode(name), Path(os.fsdecode(name))):
        recording = zonal.Recording(path)
        assert recording.info.events == expected
        assert sum(len(batch) for batch in recording.events(["pfn"])) >= (expected or 0)
    assert zonal.replay(name, limit=1000).to_dict()
    judged = zonal.fleet(name, only=["watermark_scale_factor"], jobs=1).judged
    assert [host.source for host in judged] == [os.fsdecode(name)]
    with pytest.raises(zonal.MissingFileError):
        zonal.Recording(b"/nowhere/there.zonal")


def test_a_file_that_is_no_recording_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "noise"
    path.write_bytes(bytes(range(256)) * 40)
    with pytest.raises(zonal.TraceError) as raised:
        zonal.Recording(path)
    assert raised.value.file == str(path)
    path.write_bytes(b"")
    with pytest.raises(zonal.TraceError):
        zonal.Recording(path)
    zonal.to_parquet(None, path, level=1)
    with pytest.raises(zonal.TraceError, match="a Parquet file; .* zonal.from_parquet"):
        zonal.Recording(path)


def test_a_cut_line_is_an_exception_with_its_file_and_line(cut: Path) -> None:
    recording = zonal.Recording(cut)
    with pytest.raises(zonal.TraceError) as raised:
        list(recording.events())
    assert (raised.value.file, raised.value.line) == (str(cut), 3)
    # Readers of the stream say the same in an exception of their own.
    with pytest.raises(Exception, match="cut.txt: line 3"):
        pa.table(recording.events())


def test_wrong_arguments_are_refused() -> None:
    recording = zonal.Recording()
    with pytest.raises(zonal.ArgumentError, match="no column is called 'tim_ns'"):
        recording.events(["tim_ns"])
    with pytest.raises(zonal.ArgumentError, match="twice"):
        recording.events(["pfn", "pfn"])
    with pytest.raises(zonal.ArgumentError):
        recording.events([])
    with pytest.raises(zonal.ArgumentError):
        recording.events(batch_rows=0)
    with pytest.raises(zonal.ArgumentError):
        recording.events(from_ns=-1)
    with pytest.raises(TypeError):
        recording.events("pfn")
    with pytest.raises(TypeError):
        zonal.Recording(3)  # type: ignore[arg-type]
    with pytest.raises((ValueError, zonal.TraceError)):
        zonal.Recording("a\0b")


def test_a_stream_outlives_its_recording() -> None:
    events = zonal.Recording().events(["pfn"])
    reader = pa.RecordBatchReader.from_stream(events)
    del events
    assert reader.read_all().num_rows > 0


def test_memory_is_bounded_by_the_batch() -> None:
    # Many passes of a batch at a time: what is held does not grow with what was read.
    code = """
import resource, zonal
recording = zonal.Recording()
def read(passes):
    rows = 0
    for _ in range(passes):
        for batch in recording.events(batch_rows=4096):
            rows += len(batch)
    return rows
read(1)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert read(20) > 1_000_000
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(after - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 8 << 10, f"{done.stdout} KiB more"


def test_a_pipe_or_a_device_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.zonal")
    for path in (tmp_path / "pipe.zonal", Path("/dev/zero")):
        with pytest.raises(zonal.TraceError, match="neither a file nor a directory") as refused:
            zonal.Recording(path)
        assert refused.value.file == str(path)
    found = zonal.fleet([tmp_path / "pipe.zonal"], jobs=1)
    assert "neither a file nor a directory" in (found.hosts[0].reason or "")
