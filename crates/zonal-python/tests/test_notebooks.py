"""The notebooks run from beginning to end."""

from __future__ import annotations

from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_beginning_to_end(path: Path, tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient", reason="SKIPPED: nbclient is missing")
    nbformat = pytest.importorskip("nbformat", reason="SKIPPED: nbformat is missing")
    pytest.importorskip("ipykernel", reason="SKIPPED: ipykernel is missing")
    for package in ("polars", "pandas", "distributed", "optuna"):
        pytest.importorskip(package, reason=f"SKIPPED: {package} is missing")
    notebook = nbformat.read(path, as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells), "stored without its output"
    client = nbclient.NotebookClient(
        notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()


def test_there_are_notebooks() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["fleet", "recording", "sweep", "tune"]
