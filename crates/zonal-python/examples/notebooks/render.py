"""The notebooks as pages of the book: runs each from beginning to end, and writes its text, code
and results, with the plots as pictures beside the page.

    python render.py FOLDER        # docs/howto/notebooks of the repository
"""

from __future__ import annotations

import re
import sys
from html import unescape
from pathlib import Path
from typing import Any, List

import nbclient
import nbformat

HERE = Path(__file__).parent
FRAME = re.compile(r'<iframe srcdoc="([^"]*)"')
CONCLUSION = re.compile(r'<p class="conclusion">(.*?)</p>', re.DOTALL)
PLOT = re.compile(r"<svg.*?</svg>", re.DOTALL)
#: What a plot is called: a caption before it, or the first of its own texts.
CAPTION = re.compile(r"<(?:figcaption|text)[^>]*>(.*?)</", re.DOTALL)
LEGEND = re.compile(r'\s*(?:</div>)?<p class="legend">(.*?)</p>', re.DOTALL)
STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)
TAG = re.compile(r"<[^>]+>")
#: Most lines of a result, and most plots of a page.
LINES = 30
PLOTS = 3


def source(cell: Any) -> str:
    """The code of a cell, as the page has it."""
    return f"```python\n{cell.source}\n```\n"


def plain(html: str) -> str:
    """Its text in one line."""
    return " ".join(unescape(TAG.sub("", html)).split())


def drawn(page: str, to: Path, name: str) -> List[str]:
    """The plots of a page as files, each with a line that shows it."""
    # The colours; the rest is of the page.
    style = "".join(STYLE.findall(page)).split("body{")[0] + "svg{background:var(--back,#fff)}"
    lines = [plain(text) + "\n" for text in CONCLUSION.findall(page)]
    end = 0
    for number, found in enumerate(list(PLOT.finditer(page))[:PLOTS], 1):
        before, plot = page[end : found.start()], found[0]
        end = found.end()
        figure = before.rfind("<figcaption")
        title = CAPTION.search(before[figure:] if figure >= 0 else plot)
        file = f"{name}-{number}.svg"
        begin = plot.index(">") + 1
        (to / file).write_text(f"{plot[:begin]}<style>{style}</style>{plot[begin:]}\n")
        lines.append(f"![{plain(title[1]) if title else 'Plot'}]({file})\n")
        legend = LEGEND.match(page, end)
        if legend:
            lines.append(f"<p>{legend[1]}</p>\n")
    return lines


def result(output: Any, to: Path, name: str) -> List[str]:
    """What a cell gave."""
    data = output.get("data", {})
    html = data.get("text/html", "")
    framed = FRAME.search(html)
    if framed:
        page = unescape(framed[1])
        plots = drawn(page, to, name)
        if plots:
            return plots
        items = re.findall(r"<li>(.*?)</li>", page, re.DOTALL)
        return ["".join(f"> - {plain(item)}\n" for item in items)]
    if "text/markdown" in data:
        return [data["text/markdown"] + "\n"]
    text = str(data.get("text/plain", output.get("text", "")))
    # A folder of this run says nothing to others.
    text = re.sub(r"/[^\s'\"]*/tmp\w+", "FOLDER", text)
    lines = text.rstrip().splitlines()
    if len(lines) > LINES:
        lines = [*lines[:LINES], "…"]
    return ["```text\n" + "\n".join(line.rstrip() for line in lines) + "\n```\n"] if lines else []


def render(path: Path, to: Path) -> None:
    """Runs a notebook and writes its page."""
    read: Any = nbformat.read
    notebook = read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=600).execute()
    parts: List[str] = []
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown":
            parts.append(cell.source + "\n")
            continue
        parts.append(source(cell))
        for output in cell.outputs:
            if output.output_type in ("execute_result", "display_data"):
                parts += result(output, to, f"{path.stem}-{number}")
    parts.append(f"`crates/zonal-python/examples/notebooks/{path.name}`, run by `render.py`.\n")
    (to / f"{path.stem}.md").write_text("\n".join(parts))


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for notebook_path in sorted(HERE.glob("*.ipynb")):
        render(notebook_path, folder)
        print(notebook_path.name)
