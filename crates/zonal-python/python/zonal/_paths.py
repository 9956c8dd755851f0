"""Paths as callers have them."""

from __future__ import annotations

import os
from typing import Union

from ._errors import LabError

__all__ = ["PathLike", "local_text", "path_text"]

PathLike = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]


def path_text(path: PathLike) -> str:
    """The path as text; bytes by the file system's encoding, whatever they are."""
    return os.fsdecode(path)


def local_text(path: PathLike) -> str:
    """The same of a file that cannot be in an object store: rows are written one by one, and the
    file is locked meanwhile.

    Raises:
        LabError: It is a URL.
    """
    text = path_text(path)
    if "://" in text:
        raise LabError(f"{text}: expected a file of this machine; copy it with fsspec")
    return text
