"""Each block of Python on the pages compiles, and names what the package has: its modules,
functions, classes, and the arguments that they take."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import pytest

import zonal

ROOT = Path(__file__).resolve().parents[3]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
# What a page calls its objects, where no block of it makes them.
KNOWN = {"recording": zonal.Recording, "pool": zonal.Pool}


def pages() -> List[Path]:
    """Those with such blocks."""
    every = [*ROOT.glob("docs/**/*.md"), *ROOT.glob("crates/*/README.md"), ROOT / "README.md"]
    return [page for page in every if page.exists() and BLOCK.search(page.read_text("utf-8"))]


def part(owner: Any, called: str, name: str) -> Any:
    """What is there by this name."""
    if not hasattr(owner, name):
        raise LookupError(f"{called} has no {name}")
    return getattr(owner, name)


def imported(tree: ast.AST) -> Dict[str, Any]:
    """The names that a page takes from the package."""
    names: Dict[str, Any] = {"zonal": zonal}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "zonal":
            module = importlib.import_module(str(node.module))
            for name in node.names:
                names[name.asname or name.name] = part(module, str(node.module), name.name)
    return names


def named(node: ast.expr, names: Dict[str, Any]) -> Tuple[bool, Any]:
    """What an expression such as `zonal.lab.once` is, if it begins with a known name."""
    if isinstance(node, ast.Name):
        return node.id in names, names.get(node.id)
    if isinstance(node, ast.Attribute):
        is_known, owner = named(node.value, names)
        if is_known:
            value = part(owner, getattr(owner, "__name__", "it"), node.attr)
            # Of a field nothing more is known.
            return callable(value) or inspect.ismodule(value), value
    return False, None


def wrong(text: str) -> Iterator[str]:
    """What a page has that the package has not."""
    tree = ast.parse(text)
    names = {**KNOWN, **imported(tree)}
    for node in ast.walk(tree):
        try:
            if isinstance(node, ast.Attribute):
                named(node, names)
            if not isinstance(node, ast.Call):
                continue
            is_known, called = named(node.func, names)
            if not is_known:
                continue
            takes = inspect.signature(called).parameters.values()
        except LookupError as error:
            yield str(error)
            continue
        except (TypeError, ValueError):  # no signature
            continue
        if any(one.kind is one.VAR_KEYWORD for one in takes):
            continue
        given = {str(keyword.arg) for keyword in node.keywords if keyword.arg}
        for name in given - {one.name for one in takes}:
            yield f"{called.__name__} takes no {name}"


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_of_a_page_name_what_is_there(page: Path) -> None:
    blocks = BLOCK.findall(page.read_text("utf-8"))
    for block in blocks:
        compile(block, str(page), "exec")
    told = list(wrong("\n".join(blocks)))
    assert not told


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("import zonal\nzonal.replai()", "has no replai"),
        ("zonal.replay(recording, polcy='x')", "replay takes no polcy"),
        ("zonal.lab.twice()", "has no twice"),
        ("from zonal import Lod", "zonal has no Lod"),
        ("pool.emty(3)", "has no emty"),
    ],
)
def test_what_is_not_there_is_found(text: str, what: str) -> None:
    try:
        told = list(wrong(text))
    except LookupError as error:
        told = [str(error)]
    assert told and what in told[0]


def test_the_pages_are_there() -> None:
    assert len(pages()) >= 7 or not (ROOT / "docs").exists(), pages()
