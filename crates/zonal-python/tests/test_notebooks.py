"""The notebooks run from beginning to end."""

from __future__ import annotations

import json
import re
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


def test_the_pages_of_the_book_are_of_these_notebooks() -> None:
    book = Path(__file__).parents[3] / "docs" / "howto" / "notebooks"
    if not book.is_dir():
        pytest.skip("SKIPPED: the tests are not in the repository")
    for path in NOTEBOOKS:
        page = (book / f"{path.stem}.md").read_text()
        for cell in json.loads(path.read_text())["cells"]:
            source = "".join(cell["source"])
            shown = source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```"
            assert shown in page, f"{path.name}: run examples/notebooks/render.py again"
            page = page[page.index(shown) + len(shown) :]
    shown = {
        name
        for page in book.glob("*.md")
        for name in re.findall(r"\]\((\S+\.svg)\)", page.read_text())
    }
    assert shown and shown == {path.name for path in book.glob("*.svg")}
