"""HTML for notebooks."""

from __future__ import annotations

from html import escape
from typing import Iterable, Sequence

__all__ = ["framed", "table"]


def framed(page: str, height: int = 640) -> str:
    """A whole page in a frame of its own, so that its style stays there."""
    return (
        f'<iframe srcdoc="{escape(page)}" sandbox="" style="width:100%;height:{height}px;'
        'border:0" title="zonal"></iframe>'
    )


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; numbers stand right."""
    titles = "".join(f"<th>{escape(title)}</th>" for title in head)
    lines = "".join(f"<tr>{''.join(_cell(cell) for cell in row)}</tr>" for row in rows)
    return (
        f"<table><caption>{escape(caption)}</caption><thead><tr>{titles}</tr></thead>"
        f"<tbody>{lines}</tbody></table>"
    )


def _cell(cell: object) -> str:
    if isinstance(cell, float):
        return f'<td style="text-align:right">{cell:,.4g}</td>'
    if isinstance(cell, int):
        return f'<td style="text-align:right">{cell:,}</td>'
    return f"<td>{escape('' if cell is None else str(cell))}</td>"
