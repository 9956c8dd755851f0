"""Recordings and rows in an object store: S3, by a server of the same process (`moto`)."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, Iterator, List
from urllib.request import Request, urlopen

import pytest

import zonal

fsspec = pytest.importorskip("fsspec", reason="SKIPPED: fsspec is missing")
pytest.importorskip("s3fs", reason="SKIPPED: s3fs is missing")
moto = pytest.importorskip("moto.server", reason="SKIPPED: moto's server is missing")

HOSTS = 5


class Store:
    """A bucket `fleet` with a recording of each of some hosts, and one object that is none."""

    def __init__(self, recording: Path) -> None:
        self.server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self.server.start()
        host, port = self.server.get_host_and_port()
        url = f"http://{host}:{port}"
        # What it holds is the process's, not the server's.
        urlopen(Request(f"{url}/moto-api/reset", method="POST")).close()
        self.options: Dict[str, Any] = {
            "key": "key",
            "secret": "secret",
            "client_kwargs": {
                "endpoint_url": url,
                "region_name": "eu-central-1",
            },
            "config_kwargs": {
                "retries": {"max_attempts": 0},
                "connect_timeout": 5,
                "read_timeout": 30,
            },
        }
        self.files = fsspec.filesystem("s3", skip_instance_cache=True, **self.options)
        self.files.mkdir("fleet")
        for at in range(HOSTS):
            self.files.put(os.fspath(recording), f"fleet/host{at}/last.zonal")
        self.files.pipe("fleet/text/last.zonal", b"no recording at all\n")


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    path = folder / "host.zonal"
    zonal.lab.record(path, "xeon-2007-8", "linux-6.18", "burst:hold=64", warm_us=0, run_us=300)
    return path


@pytest.fixture
def store(recording: Path) -> Iterator[Store]:
    made = Store(recording)
    yield made
    made.server.stop()


def test_a_fleet_is_read_from_a_bucket_as_from_files(store: Store, recording: Path) -> None:
    found = zonal.fleet("s3://fleet/*/last.zonal", storage_options=store.options, jobs=1)
    assert [host.source for host in found.hosts] == [
        *(f"s3://fleet/host{at}/last.zonal" for at in range(HOSTS)),
        "s3://fleet/text/last.zonal",
    ]
    alone = zonal.fleet(recording, jobs=1).hosts[0]
    assert alone.reason is None
    for host in found.judged:
        assert replace(host, source=alone.source, name=alone.name) == alone
    (bad,) = found.bad
    assert "s3://fleet/text/last.zonal" in (bad.reason or "")
    with pytest.raises(zonal.ArgumentError, match="nothing has such a name"):
        zonal.fleet("s3://fleet/*.nothing", storage_options=store.options)


def test_a_store_that_goes_away_in_the_middle_leaves_what_was_judged(store: Store) -> None:
    judged: List[int] = []

    def progress(done: int, of: int) -> None:
        judged.append(done)
        if done == 2:
            store.server.stop()

    found = zonal.fleet(
        "s3://fleet/host*/last.zonal", storage_options=store.options, jobs=1, progress=progress
    )
    assert len(found.hosts) == HOSTS and len(found.judged) >= 2 and found.bad
    for host in found.bad:
        assert f"{host.source}: cannot be fetched: " in (host.reason or "")
    page = found.html()
    assert f"{len(found.bad)} recordings could not be judged" in page
    assert len(found.to_pandas()) == HOSTS


def test_an_object_that_goes_away_is_a_row_with_its_reason(store: Store) -> None:
    sources = [f"s3://fleet/host{at}/last.zonal" for at in range(HOSTS)]
    store.files.rm("fleet/host3/last.zonal")
    found = zonal.fleet(sources, storage_options=store.options, jobs=1)
    assert [host.reason is None for host in found.hosts] == [at != 3 for at in range(HOSTS)]
    assert "host3/last.zonal: cannot be fetched: FileNotFoundError" in (found.bad[0].reason or "")


def test_a_store_that_is_gone_is_an_exception_that_names_the_pattern(store: Store) -> None:
    store.server.stop()
    with pytest.raises(zonal.TraceError, match=r"s3://fleet/\*/last.zonal: cannot be listed: "):
        zonal.fleet("s3://fleet/*/last.zonal", storage_options=store.options, jobs=1)


def test_rows_are_made_in_a_file_and_read_from_a_bucket(store: Store, tmp_path: Path) -> None:
    more: Dict[str, Any] = {"machine": "xeon-2007-8", "warm_us": 10, "run_us": 30, "jobs": 1}
    with pytest.raises(zonal.LabError, match="s3://fleet/rows.parquet: expected a file of this"):
        zonal.sweep({"cpus": [2]}, data="s3://fleet/rows.parquet", **more)
    with pytest.raises(zonal.LabError, match="s3://fleet/rows.parquet: expected a file of this"):
        zonal.read_rows("s3://fleet/rows.parquet")
    swept = zonal.sweep({"cpus": [2, 4]}, (1, 2), data=tmp_path / "rows.parquet", **more)
    store.files.put(os.fspath(swept.path), "fleet/rows.parquet")
    pandas = pytest.importorskip("pandas", reason="SKIPPED: pandas is missing")
    read = pandas.read_parquet("s3://fleet/rows.parquet", storage_options=store.options)
    assert list(read["result_hash"]) == [row["result_hash"] for row in swept.rows]
