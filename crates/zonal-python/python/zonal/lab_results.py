"""Results of the lab. Every figure is simulated."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Dict, List, Optional, Sequence, Union

from . import _native
from ._results import Result, pyarrow_module

if TYPE_CHECKING:
    import pyarrow

__all__ = [
    "Cell",
    "Change",
    "Comparison",
    "DifferingSetting",
    "ExperimentTable",
    "Figure",
    "LabRun",
    "Side",
    "Sweep",
]


@dataclass(frozen=True)
class Change:
    """A figure on both sides."""

    name: str
    """Its name."""
    about: str
    """Its meaning and unit."""
    values: List[float]
    """Its value on both sides."""
    change_percent: Optional[float]
    """By how much it changed, in percent of the first; none from nothing."""


@dataclass(frozen=True)
class DifferingSetting:
    """A value of the policies that differs."""

    key: str
    """Its name."""
    values: List[str]
    """Its value on both sides."""
    help: str
    """Its effect."""


@dataclass(frozen=True)
class Side:
    """One side of a comparison."""

    policy: str
    """Its policy."""
    result_hash: str
    """Hash of its run."""
    command: str
    """The command line that makes it again."""


@dataclass(frozen=True)
class Comparison(Result):
    """Result of a comparison."""

    row_type: ClassVar[type] = Change

    schema_version: int
    """Version of this form; it changes when readers would break."""
    kind: str
    """Everything here is simulated."""
    machine: str
    """On which machine."""
    workload: str
    """Doing what."""
    seed: int
    """From which seed."""
    sides: List[Side]
    """One side, and the other."""
    settings: List[DifferingSetting]
    """Values of the policies that differ."""
    figures: List[Change]
    """Every figure of both."""
    parts: List[Change]
    """Parts of a call's cycles."""
    explanation: List[str]
    """What explains the difference, the largest part first."""

    def rows(self) -> Sequence[Change]:
        """Every figure of both sides."""
        return self.figures

    def _caption(self) -> str:
        one, other = self.sides
        return f"{self.workload} (simulated) on {self.machine}: {one.policy} against {other.policy}"


@dataclass(frozen=True)
class Cell:
    """One figure of a table."""

    row: str
    """Its row."""
    column: str
    """Its column."""
    published: Optional[float]
    """The published figure, if any."""
    simulated: float
    """The simulated figure."""
    error_percent: Optional[float]
    """By how much they differ, in percent of the published figure."""
    calibrated: bool
    """Whether it agrees because a figure was set by it, or because others stand against it:
    ``label`` says which.
    """
    label: Optional[str] = None
    """What may be said of it; nothing if it was not published."""
    factor: Optional[float] = None
    """For counts whose target is a factor, not a percentage."""
    points: Optional[float] = None
    """How near it has to be, in points: for percentages, and for figures relative to a first row.
    Without it the experiment's target counts.
    """


@dataclass(frozen=True)
class ExperimentTable(Result):
    """Result of an experiment."""

    row_type: ClassVar[type] = Cell

    schema_version: int
    """Version of this form; it changes when readers would break."""
    experiment: str
    """Which experiment."""
    kind: str
    """Everything here is simulated."""
    machine: str
    """On which machine."""
    seed: int
    """From which seed."""
    command: str
    """The command line that makes it again."""
    source: str
    """Where the published figures are from."""
    target_percent: float
    """How near a simulated figure has to be to the published one, in percent of it."""
    result_hash: str
    """Hash over all runs."""
    cells: List[Cell]
    """The figures."""
    notes: List[str]
    """Notes for the reader."""

    def rows(self) -> Sequence[Cell]:
        """Every cell: published, simulated, and how far apart."""
        return self.cells


SweepRow = Dict[str, Union[int, float, str, None]]


@dataclass(frozen=True)
class Figure:
    """A figure of a run."""

    name: str
    value: float
    about: str
    """Its meaning and unit."""


@dataclass(frozen=True)
class LabRun(Result):
    """One run of the lab: simulated figures."""

    row_type: ClassVar[type] = Figure

    schema_version: int
    kind: str
    """``simulated``: never to be taken for a measurement."""
    machine: str
    policy: str
    workload: str
    seed: int
    figures: Dict[str, Union[float, str]]
    """Every figure by its name, and ``result_hash``: the same run has the same hash."""
    unplayed: int
    """Calls of a recording that the run ended before."""
    command: str
    """The command line of ``zonal`` that makes the same run."""

    @property
    def result_hash(self) -> str:
        """Hash of everything that the run did."""
        return str(self.figures["result_hash"])

    def rows(self) -> Sequence[Figure]:
        """Every figure with its meaning."""
        about: Dict[str, str] = json.loads(_native.lab_lists())["figures"]
        return [
            Figure(name, value, about[name])
            for name, value in self.figures.items()
            if not isinstance(value, str)
        ]

    def _caption(self) -> str:
        run = f"{self.workload} (simulated) on {self.machine}"
        return f"{run} under {self.policy}, seed {self.seed}"


@dataclass(frozen=True)
class Sweep(Result):
    """Many runs of the lab, in the order of their points."""

    schema_version: int
    kind: str
    """``simulated``."""
    made: int
    """Runs that were made."""
    found: int
    """Runs that the file had already."""
    points: List[SweepRow]
    """A run each: column to value. What was varied, every figure, ``result_hash``."""

    def rows(self) -> Sequence[SweepRow]:
        """The same as ``points``."""
        return self.points

    def to_arrow(self) -> "pyarrow.Table":
        """One row a run: counts and figures as numbers, the rest as text. Needs pyarrow."""
        arrow = pyarrow_module()
        names = list(self.points[0]) if self.points else []
        return arrow.table({name: [row[name] for row in self.points] for name in names})
