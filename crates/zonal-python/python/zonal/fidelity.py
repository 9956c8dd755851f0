"""Model and kernel over time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Optional

__all__ = [
    "Fidelity",
    "Pair",
    "Series",
]


@dataclass(frozen=True)
class Pair:
    """Both sides, bin by bin."""

    model: List[Optional[int]]
    """The model."""
    kernel: List[Optional[int]]
    """The kernel."""
    mean_difference: Optional[float]
    """The mean difference of a bin, without its sign; ``null`` where no bin has both sides."""
    kernel_mean: Optional[float]
    """The kernel's mean."""


@dataclass(frozen=True)
class Series:
    """One store over time."""

    zone: str
    """The zone, in words."""
    cpu: int
    """The CPU."""
    refill_pages: Pair
    """Base pages from the buddy, in each bin."""
    refill_holds: Pair
    """Zone lock holds that took."""
    drain_pages: Pair
    """Base pages to the buddy."""
    drain_holds: Pair
    """Zone lock holds that took."""
    count: Pair
    """Pages on the lists at the end of each bin; ``null`` where nothing was polled yet."""
    high: Pair
    """The mark at which the lists are drained."""


@dataclass(frozen=True)
class Fidelity:
    """Model and kernel over time."""

    bin_ns: int
    """Width of a bin, in ns of the trace."""
    bins: int
    """Number of bins."""
    polls: int
    """Samples of ``/proc/zoneinfo`` in the trace."""
    places: List[Series]
    """By zone and CPU, where either side moved anything."""
