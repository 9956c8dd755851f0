"""Exceptions. Each says what is wrong, where, and what was expected."""

from __future__ import annotations

from typing import Optional


class Error(Exception):
    """Base of all exceptions of this package.

    ``str(error)`` is the whole message. Where the fault has a place, the attributes name it.

    Attributes:
        file: Path of the file, or None.
        line: Line in it, counted from 1, or None.
        offset: Byte in it, counted from 0, or None.
    """

    file: Optional[str]
    line: Optional[int]
    offset: Optional[int]

    def __init__(
        self,
        message: str = "",
        *,
        file: Optional[str] = None,
        line: Optional[int] = None,
        offset: Optional[int] = None,
    ) -> None:
        super().__init__(message)
        self.file = file
        self.line = line
        self.offset = offset

    def __reduce__(self) -> "tuple[object, ...]":
        # With its place, also out of another process.
        return (_rebuilt, (type(self), str(self), self.file, self.line, self.offset))


def _rebuilt(
    kind: "type[Error]",
    message: str,
    file: Optional[str],
    line: Optional[int],
    offset: Optional[int],
) -> Error:
    return kind(message, file=file, line=line, offset=offset)


class ArgumentError(Error, ValueError):
    """An argument that cannot be."""


class TraceError(Error):
    """A recording that cannot be read."""


class MissingFileError(TraceError, FileNotFoundError):
    """A file of a recording that is not there."""


class ReplayError(Error):
    """A recording that cannot be replayed."""


class ConformError(Error):
    """A capture that cannot be judged."""


class PolicyError(Error, ValueError):
    """No such policy, key or value."""


class MachineError(Error, ValueError):
    """A machine of the lab that cannot be."""


class LabError(Error, ValueError):
    """A run of the lab that cannot be."""


class PoolError(Error):
    """A pool that cannot be made, or that refuses a call."""


class OutOfMemoryError(PoolError, MemoryError):
    """A pool has no such memory free. The message names the zone and the watermark."""


class ReleasedError(PoolError, ValueError):
    """A buffer was used after it was released."""
