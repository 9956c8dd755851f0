"""Paths as callers have them."""

from __future__ import annotations

import os
import re
from typing import Union

from ._errors import LabError

__all__ = ["PathLike", "is_cut_url", "local_text", "path_text", "shown"]

PathLike = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]


def path_text(path: PathLike) -> str:
    """The path as text; bytes by the file system's encoding, whatever they are."""
    return os.fsdecode(path)


def shown(text: str) -> str:
    """The text as every file and table takes it: bytes of a path that are no UTF-8 by their
    numbers."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def local_text(path: PathLike) -> str:
    """The same of a file that cannot be in an object store: rows are written one by one, and the
    file is locked meanwhile.

    Raises:
        LabError: It is a URL, whole or as ``pathlib`` leaves it.
    """
    text = path_text(path)
    if "://" in text or is_cut_url(text):
        raise LabError(f"{text}: expected a file of this machine; copy it with fsspec")
    return text


def is_cut_url(text: str) -> bool:
    """Whether this was a URL before ``pathlib.Path`` took a slash from it: ``s3:/bucket/name``. A
    folder of this machine may have such a name."""
    scheme = re.match(r"[A-Za-z][A-Za-z0-9+.-]+:(?=/(?!/))", text)
    return scheme is not None and not os.path.isdir(scheme.group())
