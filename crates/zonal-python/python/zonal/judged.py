"""Which figures and stretches of a replay say something about the recorded kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

__all__ = [
    "Beyond",
    "NotJudged",
    "ReclaimJudged",
]


@dataclass(frozen=True)
class Beyond:
    """A figure that says nothing about the recorded kernel: the model is too far off."""

    figure: str
    """Which: `refill_pages`, `refill_holds`, `drain_pages` or `drain_holds`, as in `Side`."""
    model: int
    """The model's number."""
    kernel: int
    """The kernel's."""
    percent: Optional[float]
    """By how many percent of the kernel's number the model's is larger; `None` where that is 0."""
    limit_percent: float
    """How many it may be."""


@dataclass(frozen=True)
class NotJudged:
    """A stretch that is not judged."""

    from_s: float
    """Seconds from the start of the replay."""
    to_s: float
    """Seconds from the start of the replay."""
    reason: str
    """Why."""


@dataclass(frozen=True)
class ReclaimJudged:
    """A stretch with reclaim, or other watermarks or memory, judged because the model is near."""

    from_s: float
    """Seconds from the start of the replay."""
    to_s: float
    """Seconds from the start of the replay."""
    reason: str
    """What went on."""
    refill_percent: Optional[float]
    """By how many percent of the kernel's number the model's refilled pages are more."""
    drain_percent: Optional[float]
    """The same of drained pages."""
    is_near: bool
    """It is near by itself. Otherwise all stretches together are, and it is too short to tell."""
