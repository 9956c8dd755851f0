"""Replays, advice, and judged captures."""

from __future__ import annotations

import os
from typing import Optional, Sequence, Union

from . import _native
from ._errors import ArgumentError
from ._paths import PathLike, path_text
from ._policy import PolicyLike, text_of
from ._progress import Progress, adapted
from .advice import Advice
from .conform_report import ConformReport
from .recording import Recording, opened
from .replay_report import ReplayReport

__all__ = ["RecordingLike", "advise", "conform", "replay"]

RecordingLike = Union[Recording, PathLike, None]


def _limit(limit: Optional[int]) -> Optional[int]:
    if limit is not None and limit < 1:
        raise ArgumentError(f"limit: {limit}; expected 1 event or more")
    return limit


def replay(
    recording: RecordingLike = None,
    *,
    policy: PolicyLike = "zonal",
    memory: str = "none",
    speed: str = "max",
    limit: Optional[int] = None,
    fidelity: bool = False,
    explain: Optional[int] = None,
    use_recorded: Sequence[str] = (),
    progress: Optional[Progress] = None,
) -> ReplayReport:
    """Plays a recording's allocations and frees again, beside what the kernel did.

    Args:
        recording: A Recording or a path; the bundled build of zlib without.
        policy: Whose rules the allocator follows.
        memory: ``none``: the recorded machine, modelled. ``real``: a pool of this machine's
            memory, with a thread for each recorded CPU.
        speed: ``max``, or ``recorded`` on real memory.
        limit: Events to read; all without.
        fidelity: Whether model and kernel are compared over time; :meth:`ReplayReport.html` is
            then the page with the plot. Without memory only.
        explain: Number of an allocation, from 1, to explain. Without memory only.
        use_recorded: Facts of the recording that the model uses: ``decay``, ``blocktypes``,
            ``lists``, ``untraced``. Without memory only.
        progress: Called with (events done, events or None); or a tqdm.

    Raises:
        TraceError: Bad input, with file and line or offset.
        ReplayError: A machine that cannot be rebuilt, or memory that cannot be had.
    """
    if memory not in ("none", "real"):
        raise ArgumentError(f"memory: {memory!r}; expected 'none' or 'real'")
    if speed not in ("max", "recorded"):
        raise ArgumentError(f"speed: {speed!r}; expected 'max' or 'recorded'")
    if isinstance(use_recorded, str):
        raise TypeError(f"use_recorded: {use_recorded!r}; expected a list of names")
    told = list(use_recorded)
    if memory == "real" and (fidelity or explain is not None or told):
        raise ArgumentError("fidelity, explain and use_recorded need memory='none'")
    if memory == "none" and speed == "recorded":
        raise ArgumentError("speed='recorded' needs memory='real'")
    asked: _native.Asked = {
        "policy": text_of(policy),
        "real": memory == "real",
        "as_recorded": speed == "recorded",
        "limit": _limit(limit),
        "explain": explain,
        "fidelity": fidelity,
        "told": told,
    }
    with adapted(progress) as call:
        report, page = _native.replay(opened(recording), asked, call)
    return ReplayReport.from_json(report, page)


def advise(
    recording: RecordingLike = None,
    *,
    only: Sequence[str] = (),
    limit: Optional[int] = None,
    progress: Optional[Progress] = None,
) -> Advice:
    """What other settings would have done with a recorded load. Every figure is modelled.

    Args:
        recording: A Recording or a path; the bundled build of zlib without.
        only: Beginnings of the names of changes to try, such as ``min_free_kbytes``; all without.
        limit: Events to read; all without.
        progress: Called with (events done, events or None), from 0 for each change; or a tqdm.

    Raises:
        TraceError: Bad input, with file and line or offset.
        ReplayError: A machine that cannot be rebuilt, or no such change.
    """
    if isinstance(only, str):
        raise TypeError(f"only: {only!r}; expected a list of names")
    with adapted(progress) as call:
        text = _native.advise(opened(recording), list(only), _limit(limit), call)
    return Advice.from_json(text)


def conform(
    captures: Union[PathLike, Sequence[PathLike]] = (),
    *,
    live: bool = False,
    progress: Optional[Progress] = None,
) -> ConformReport:
    """Judges what kernels printed: every watermark, reserve and list size, computed again.

    Args:
        captures: Directories with the texts that one kernel printed, or one of them.
        live: Whether the running kernel is judged too. It is only read.
        progress: Called with (captures done, captures); or a tqdm.

    A capture that is bad input does not end the others: it is in ``bad_input``.
    """
    if isinstance(captures, (str, bytes, os.PathLike)):
        captures = [captures]
    paths = [path_text(each) for each in captures]
    if not paths and not live:
        raise ArgumentError("captures: none; expected a directory, or live=True")
    with adapted(progress) as call:
        return ConformReport.from_json(_native.conform(paths, live, call))
