"""Values that kernels printed, computed again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, List, Sequence, Union

from ._results import Result

__all__ = [
    "BadInput",
    "Case",
    "Check",
    "ConformReport",
    "Mismatch",
    "NotJudged",
    "SizeThen",
]


@dataclass(frozen=True)
class SizeThen:
    """A zone that had another size when its watermarks were computed."""

    file: str
    """Where the watermarks stand."""
    node: int
    """The node's id."""
    zone: str
    """The zone's kind."""
    managed: int
    """Its managed pages now."""
    managed_then: int
    """What it managed then: one of the sizes from which the watermarks follow."""


@dataclass(frozen=True)
class NotJudged:
    """Values not judged, and why."""

    what: str
    """Its name."""
    values: int
    """How many values that leaves out; 0 where they were not counted."""
    reason: str
    """Why it cannot be judged."""


@dataclass(frozen=True)
class Check:
    """A value that the kernel printed and the core computed."""

    file: str
    """What messages call the file."""
    line: int
    """The line, counted from 1."""
    what: str
    """The kind of value."""
    expected: Union[int, str, List[int]]
    """As the kernel printed it."""
    computed: Union[int, str, List[int]]
    """As the core computed it."""


@dataclass(frozen=True)
class BadInput:
    """A capture that could not be read."""

    name: str
    """The directory."""
    error: str
    """The fault, with file and line."""


@dataclass(frozen=True)
class Case:
    """Result for one kernel."""

    name: str
    """The capture's name."""
    release: str
    """The kernel's release."""
    values: int
    """Values compared."""
    mismatches: List[Check]
    """Those that differ."""
    not_judged: List[NotJudged]
    """Values not compared."""
    sizes_then: List[SizeThen]
    """Zones whose watermarks belong to other sizes than those beside them."""


@dataclass(frozen=True)
class Mismatch:
    """A value that differs, and the capture that has it."""

    capture: str
    release: str
    file: str
    line: int
    what: str
    expected: Union[int, str, List[int]]
    computed: Union[int, str, List[int]]


@dataclass(frozen=True)
class ConformReport(Result):
    """Result for all."""

    row_type: ClassVar[type] = Mismatch

    cases: List[Case]
    """By capture."""
    values: int
    """Values compared, of all cases."""
    mismatches: int
    """Those that differ, of all cases."""
    bad_input: List[BadInput]
    """Captures that could not be read."""

    def rows(self) -> Sequence[Mismatch]:
        """Values that differ from what Linux computes; none if all is well."""
        return [
            Mismatch(case.name, case.release, **vars(each))
            for case in self.cases
            for each in case.mismatches
        ]

    @property
    def passed(self) -> bool:
        """Whether every value that was judged is what Linux computes."""
        return self.mismatches == 0 and not self.bad_input

    def _caption(self) -> str:
        return f"{self.values} values of {len(self.cases)} captures, {self.mismatches} mismatches"
