"""What is tried of a fresh wheel in an environment that has nothing but it: each part of the
package once, by the standard library alone.

    python smoke.py
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from pathlib import Path

import zonal
from zonal import lab


def recordings(folder: Path) -> None:
    """Reads, converts and replays the bundled recording, and refuses what is none."""
    recording = zonal.Recording()
    events = recording.info.events
    assert events and sum(map(len, recording.events(["pfn"]))) >= events
    assert zonal.to_parquet(recording, folder / "a.parquet", level=1)[0] == events
    assert zonal.from_parquet(folder / "a.parquet", folder / "a.zonal", level=1)[0] == events
    assert zonal.Recording(os.fsencode(folder / "a.zonal")).info.events == events
    replayed = zonal.replay(folder / "a.zonal", policy="linux-6.18", fidelity=True)
    assert "<svg" in replayed.html()
    assert zonal.advise(recording, only=["watermark_scale_factor"]).to_dict()
    try:
        zonal.Recording(folder / "none.zonal")
    except zonal.MissingFileError as error:
        assert error.file == str(folder / "none.zonal")
    else:
        raise AssertionError("a missing file is an exception")


def simulated(folder: Path) -> None:
    """A run, and a sweep by processes that import the package themselves."""
    one = lab.once("xeon-2007-8", "linux-6.18", "churn", run_us=200)
    assert one.result_hash == lab.once("xeon-2007-8", "linux-6.18", "churn", run_us=200).result_hash
    axes = {"policy": ["zonal", "linux-6.18"]}
    data = folder / "rows.parquet"
    made = zonal.sweep(axes, (1, 2), data=data, machine="xeon-2007-8", run_us=200, jobs=2)
    both = made.rows, zonal.read_rows(data)
    hashes = [sorted(str(row["result_hash"]) for row in rows) for rows in both]
    assert made.complete and made.made == 4 and hashes[0] == hashes[1]


def pages() -> None:
    """Bytes of a pool, which outlive it."""
    pool = zonal.Pool(64 << 20)
    buffer = pool.alloc(100_000)
    view = buffer.view()
    view[:5] = b"pages"
    try:
        buffer.release()
    except BufferError:
        pass
    else:
        raise AssertionError("a buffer with a view is not released")
    del pool, buffer
    gc.collect()
    assert bytes(view[:5]) == b"pages" and view.nbytes == 100_000


def main() -> None:
    """All of it."""
    assert "site-packages" in zonal.__file__, f"{zonal.__file__}: not the installed package"
    with tempfile.TemporaryDirectory(prefix="zonal-") as folder:
        recordings(Path(folder))
        simulated(Path(folder))
    pages()
    print(f"zonal {zonal.__version__}, Python {sys.version.split()[0]}: works")


if __name__ == "__main__":
    main()
