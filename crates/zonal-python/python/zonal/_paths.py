"""Paths as callers have them."""

from __future__ import annotations

import os
from typing import Union

__all__ = ["PathLike", "path_text"]

PathLike = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]


def path_text(path: PathLike) -> str:
    """The path as text; bytes by the file system's encoding, whatever they are."""
    return os.fsdecode(path)
