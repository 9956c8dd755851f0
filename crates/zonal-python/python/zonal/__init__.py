"""Linux' page allocator as software: recordings, replays, a simulator, and pools of pages.

======================== ===========================================================
:class:`Recording`       a recorded kernel; its events as Arrow's record batches
:func:`replay`           its allocations again, model and kernel side by side
:func:`advise`           what other settings would have done with it
:func:`tune`             a search for values of a policy, with loads held back
:func:`fleet`            advice from recordings of a thousand hosts
:func:`conform`          what kernels printed, computed again
:mod:`zonal.lab`         the same allocator on simulated machines
:func:`sweep`            the same for every combination of values, where your machines are
:func:`policy`           every choice of the allocator, as data
:class:`Pool`            pages for NumPy, PyTorch and JAX
======================== ===========================================================

Long calls leave the GIL, end on Ctrl-C, and take ``progress``: a callable of (done, total), or a
tqdm. Counts of memory are in pages of 4096 bytes unless a name says bytes.
"""

from . import lab
from ._calls import RecordingLike, advise, conform, replay
from ._errors import (
    ArgumentError,
    ConformError,
    Error,
    LabError,
    MachineError,
    MissingFileError,
    OutOfMemoryError,
    PolicyError,
    PoolError,
    ReleasedError,
    ReplayError,
    TraceError,
)
from ._fleet import Effect, Fleet, Host, fleet
from ._native import __version__
from ._parquet import from_parquet, to_parquet
from ._policy import Policy, PolicyLike, Setting, policies, policy
from ._progress import Progress
from ._results import Result
from ._row import SweepRow
from ._sweep import RowList, RowsError, Sweep, VersionError, read_rows, sweep
from ._tune import Candidate, Load, Tuned, tune
from .advice import Advice
from .conform_report import ConformReport
from .pool import Buffer, Pool, PoolStatistics, Registration, Tensor
from .recording import Events, Info, Recording
from .replay_report import ReplayReport

__all__ = [
    "Advice",
    "ArgumentError",
    "Buffer",
    "Candidate",
    "ConformError",
    "ConformReport",
    "Effect",
    "Error",
    "Events",
    "Fleet",
    "Host",
    "Info",
    "LabError",
    "Load",
    "MachineError",
    "MissingFileError",
    "OutOfMemoryError",
    "Policy",
    "PolicyError",
    "PolicyLike",
    "Pool",
    "PoolError",
    "PoolStatistics",
    "Progress",
    "Recording",
    "RecordingLike",
    "Registration",
    "ReleasedError",
    "ReplayError",
    "ReplayReport",
    "Result",
    "RowList",
    "RowsError",
    "Setting",
    "Sweep",
    "SweepRow",
    "Tensor",
    "TraceError",
    "Tuned",
    "VersionError",
    "__version__",
    "advise",
    "conform",
    "fleet",
    "from_parquet",
    "lab",
    "policies",
    "policy",
    "read_rows",
    "replay",
    "sweep",
    "to_parquet",
    "tune",
]
