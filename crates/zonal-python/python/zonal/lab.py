"""The lab: the same allocator on machines of 1 to 4096 CPUs, in virtual time.

>>> from zonal import lab
>>> run = lab.once(machine="xeon-2007-8", workload="churn", run_us=1000, warm_us=100)
>>> run.figures["cycles_per_call"] > 0
True
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

from . import _native
from ._errors import ArgumentError, MachineError
from ._native import RUN_US, WARM_US
from ._paths import PathLike, local_text, path_text, shown
from ._policy import Policy, PolicyLike, text_of
from ._progress import Progress, adapted
from ._results import text, texts
from .lab_results import Comparison, ExperimentTable, LabRun, Sweep

__all__ = [
    "Comparison",
    "ExperimentTable",
    "LabRun",
    "Machine",
    "MachineLike",
    "Sweep",
    "compare",
    "experiments",
    "figures",
    "machines",
    "once",
    "record",
    "run",
    "sweep",
    "workloads",
]

_SEED_MAX = (1 << 64) - 1


class Machine(_native.Machine):
    """A machine of the lab: CPUs, nodes, memory, caches, and what each step costs.

    It cannot be changed. ``Machine(text)`` reads a description in TOML.

    Raises:
        MachineError: The description is none or cannot be; has ``line``.

    >>> Machine.named("broadwell-2017-88@16/2").cpus
    16
    """

    #: The description before it was resized.
    _whole: Optional[str] = None

    @classmethod
    def named(cls, name: str) -> "Machine":
        """One of :func:`machines`, resized with ``NAME@CPUS`` or ``NAME@CPUS/NODES``."""
        return cls(_native.machine_named(shown(name) if isinstance(name, str) else name))

    @classmethod
    def load(cls, path: PathLike) -> "Machine":
        """The machine in a file of TOML. A fault has ``file`` or ``line``."""
        return cls(_native.machine_load(path_text(path)))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Machine":
        """The machine with these values: what :meth:`to_dict` gives."""
        if not isinstance(values, Mapping):
            raise TypeError(f"machine: {type(values).__name__}; expected a mapping")
        try:
            plain = json.dumps(_without_none(values), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"machine: {error}; expected numbers, text, lists, dicts") from None
        toml = _native.machine_from_json(plain)
        try:
            return cls(toml)
        except MachineError as error:
            if error.line is None:
                raise
            # The line is of a text that the caller has not seen: its words say which field.
            field = toml.splitlines()[error.line - 1 : error.line]
            raise MachineError(f"{error} (in {', '.join(field)})") from None

    @classmethod
    def host(cls, *, quick: bool = False, progress: Optional[Progress] = None) -> "Machine":
        """This machine, measured: about ten seconds; a second or two with ``quick``, which may
        find memory too fast. The calling thread's CPU is kept busy."""
        with adapted(progress) as told:
            return cls(_native.machine_host(quick, told))

    def resized(self, size: Union[int, str]) -> "Machine":
        """The same kind of machine with ``CPUS`` or ``"CPUS/NODES"``. One that was resized before
        is made of the whole again."""
        whole = self._described()
        made = type(self)(_native.machine_sized(whole, shown(str(size))))
        made._whole = whole
        return made

    def _described(self) -> str:
        """The description that its name is a size of: sizes are made of it."""
        return self._whole or self.to_toml()

    def to_dict(self) -> Dict[str, Any]:
        """Its description."""
        values: Dict[str, Any] = json.loads(self.to_json())
        return values

    def figures(self) -> List[Dict[str, Any]]:
        """Each figure: ``name``, ``value`` as text, and ``source``, where it is from."""
        read: List[Dict[str, Any]] = json.loads(self.figures_json())
        return read

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Machine) and self.to_toml() == other.to_toml()

    def __hash__(self) -> int:
        return hash(self.to_toml())

    def __repr__(self) -> str:
        return f"<zonal.lab.Machine {self.name}: {self.cpus} CPUs, {self.nodes} nodes>"

    def __reduce__(self) -> "tuple[object, ...]":
        return (Machine, (self.to_toml(),), {"_whole": self._whole})

    def _repr_html_(self) -> str:
        from ._html import table

        rows = [[each["name"], each["value"]] for each in self.figures()]
        return table(f"{self.name}: {self.about}", ["figure", "value"], rows)


MachineLike = Union[PathLike, Machine, Mapping[str, Any]]


def _without_none(value: Any) -> Any:
    """The same without what is None, which TOML does not have."""
    if isinstance(value, Mapping):
        return {str(key): _without_none(each) for key, each in value.items() if each is not None}
    if isinstance(value, (list, tuple)):
        return [_without_none(each) for each in value]
    return value


def _machine(machine: MachineLike) -> "tuple[str, Optional[str]]":
    """Its name in results, and its description unless it is a preset."""
    if isinstance(machine, Machine):
        return machine.name, machine._described()
    if isinstance(machine, Mapping):
        return _machine(Machine.from_dict(machine))
    is_path = isinstance(machine, (bytes, os.PathLike))
    if is_path or (isinstance(machine, str) and ".toml" in machine):
        path = path_text(machine)
        # A path of any bytes; what follows the last @ of it is a size.
        _, size = _native.machine_split(shown(path))
        found = Machine.load(path if size is None else path.rpartition("@")[0])
        return _machine(found.resized(size) if size else found)
    if isinstance(machine, str):
        return shown(machine), None
    raise TypeError(
        f"machine: {type(machine).__name__}; expected a name, a path, a dict or a Machine"
    )


def _whole(name: str, value: Any, most: int = _SEED_MAX) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}: {type(value).__name__}; expected a whole number")
    if not 0 <= value <= most:
        raise ArgumentError(f"{name}: {value}; expected 0 to {most}")
    return value


def _run(
    machine: MachineLike,
    policy: PolicyLike,
    workload: str,
    busy: Optional[int],
    seed: int,
    warm_us: int,
    run_us: int,
    values: Optional[Mapping[str, object]],
) -> "_native.Run":
    name, toml = _machine(machine)
    if not isinstance(workload, str):
        raise TypeError(f"workload: {type(workload).__name__}; expected a name")
    return {
        "machine": name,
        "toml": toml,
        "policy": text_of(policy),
        "workload": shown(workload),
        "busy": None if busy is None else _whole("busy", busy, (1 << 32) - 1),
        "seed": _whole("seed", seed),
        "warm_us": _whole("warm_us", warm_us),
        "run_us": _whole("run_us", run_us),
        "set": texts(values, "set"),
    }


def once(
    machine: MachineLike = "broadwell-2017-88",
    policy: PolicyLike = "zonal",
    workload: str = "churn",
    *,
    busy: Optional[int] = None,
    seed: int = 1,
    warm_us: int = WARM_US,
    run_us: int = RUN_US,
    set: Optional[Mapping[str, object]] = None,
    progress: Optional[Progress] = None,
) -> LabRun:
    """One run. The same arguments give the same figures, to the last bit.

    Args:
        machine: One of :func:`machines`, ``NAME@CPUS``, a path of TOML, a dict, or a Machine.
        policy: A policy.
        workload: One of :func:`workloads`, ``NAME:PARAMETER=NUMBER,...``, or ``trace:PATH``.
        busy: CPUs that take part; all without.
        seed: What random choices start from.
        warm_us: Microseconds of virtual time before anything is measured.
        run_us: Microseconds of virtual time that are measured, 1 to 6e8.
        set: Other values by their keys: ``cpus``, ``workload.PARAMETER``, or a policy's.
        progress: Called with (parts done, parts); or a tqdm.

    Raises:
        LabError, MachineError, PolicyError: What cannot be, and what would do.
    """
    asked = _run(machine, policy, workload, busy, seed, warm_us, run_us, set)
    with adapted(progress) as told:
        return LabRun.from_json(_native.lab_once(asked, told))


def record(
    path: PathLike,
    machine: MachineLike = "broadwell-2017-88",
    policy: PolicyLike = "linux-6.18",
    workload: str = "churn",
    *,
    busy: Optional[int] = None,
    seed: int = 1,
    warm_us: int = 0,
    run_us: int = RUN_US,
    set: Optional[Mapping[str, object]] = None,
    progress: Optional[Progress] = None,
) -> LabRun:
    """One run, written to ``path`` as a recording (``.zonal``): what :class:`zonal.Recording`,
    :func:`zonal.replay`, :func:`zonal.advise` and :func:`zonal.fleet` read, of a machine whose
    truth is known. The recording begins when the machine has booted; its ``meta.json`` has the
    machine, policy, command and figures under ``lab``.

    Arguments are those of :func:`once`. The policy must stand for a kernel: ``linux-6.18`` or
    another ``linux-``, with any values changed.

    Raises:
        LabError, MachineError, PolicyError: What cannot be, and what would do.
    """
    asked = _run(machine, policy, workload, busy, seed, warm_us, run_us, set)
    with adapted(progress) as told:
        return LabRun.from_json(_native.lab_record(asked, path_text(path), told)[0])


def compare(
    one: PolicyLike,
    other: PolicyLike,
    *,
    machine: MachineLike = "broadwell-2017-88",
    workload: str = "churn",
    busy: Optional[int] = None,
    seed: int = 1,
    warm_us: int = WARM_US,
    run_us: int = RUN_US,
    set: Optional[Mapping[str, object]] = None,
    progress: Optional[Progress] = None,
) -> Comparison:
    """Two policies on one workload: every figure of both, and what explains the difference.

    Arguments are those of :func:`once`; ``set`` may not have values of a policy.
    """
    own = [key for key in set or {} if key == "policy" or key in Policy("zonal")]
    if own:
        raise ArgumentError(f"set: {own[0]} is of one policy; expected it in `one` or `other`")
    asked = _run(machine, one, workload, busy, seed, warm_us, run_us, set)
    with adapted(progress) as told:
        return Comparison.from_json(_native.lab_compare(asked, text_of(other), told))


def run(
    experiment: str,
    *,
    seed: int = 1,
    cpus: Sequence[int] = (),
    progress: Optional[Progress] = None,
) -> ExperimentTable:
    """A published experiment: published, simulated and error side by side.

    Args:
        experiment: One of :func:`experiments`.
        seed: What random choices start from.
        cpus: Sizes of the machine, for experiments that have sizes.
        progress: Called with (runs done, runs); or a tqdm.

    Raises:
        LabError: No such experiment, or sizes that it has not.
    """
    if not isinstance(experiment, str):
        raise TypeError(f"experiment: {type(experiment).__name__}; expected a name")
    sizes = [_whole("cpus", each, (1 << 32) - 1) for each in cpus]
    with adapted(progress) as told:
        table, page = _native.lab_run(shown(experiment), _whole("seed", seed), sizes, told)
    return ExperimentTable.from_json(table, page)


def sweep(
    axes: Mapping[str, Sequence[object]],
    *,
    machine: MachineLike = "broadwell-2017-88",
    policy: PolicyLike = "zonal",
    workload: str = "churn",
    busy: Optional[int] = None,
    seed: int = 1,
    warm_us: int = WARM_US,
    run_us: int = RUN_US,
    set: Optional[Mapping[str, object]] = None,
    output: Optional[PathLike] = None,
    jobs: Optional[int] = None,
    progress: Optional[Progress] = None,
) -> Sweep:
    """A run for every combination of some values.

    Args:
        axes: Key to values: ``{"cpus": [8, 16], "policy": ["zonal", "linux-6.6"]}``. Keys are
            those of ``set`` in :func:`once`, and ``machine``, ``policy``, ``workload``, ``busy``,
            ``seed``, ``warm_us``, ``run_us``.
        output: A CSV file that keeps each run as soon as it is made. A sweep that was
            interrupted goes on from there. Without it the rows are kept in memory alone.
        jobs: Threads; those of this machine without.
        progress: Called with (runs done, runs); or a tqdm.

    The other arguments are those of :func:`once`.

    Raises:
        LabError: A value that cannot be, or a file that is of no sweep.
    """
    if not isinstance(axes, Mapping):
        raise TypeError(f"axes: {type(axes).__name__}; expected a mapping of keys to values")
    over = []
    for key, values in axes.items():
        if isinstance(values, (str, bytes)) or not isinstance(values, (Sequence, range)):
            raise TypeError(f"axes: {key}: {type(values).__name__}; expected a list of values")
        if not values:
            raise ArgumentError(f"axes: {key} has no values; expected one or more")
        over.append((str(key), [text(value) for value in values]))
    asked = _run(machine, policy, workload, busy, seed, warm_us, run_us, set)
    threads = len(os.sched_getaffinity(0)) if jobs is None else _whole("jobs", jobs, 4096)
    with adapted(progress) as told:
        if output is not None:
            rows, page = _native.lab_sweep(asked, over, local_text(output), threads, told)
        else:
            with tempfile.TemporaryDirectory(prefix="zonal-") as folder:
                path = str(Path(folder) / "rows.csv")
                rows, page = _native.lab_sweep(asked, over, path, threads, told)
    return Sweep.from_json(rows, page)


def _list(kind: str) -> Dict[str, str]:
    read: Dict[str, Dict[str, str]] = json.loads(_native.lab_lists())
    return read[kind]


def machines() -> List[str]:
    """Names of the machines that there are."""
    return _native.machine_names()


def experiments() -> Dict[str, str]:
    """Published experiments by name, with what each is."""
    return _list("experiments")


def workloads() -> Dict[str, str]:
    """Workloads by name, with what each does."""
    return _list("workloads")


def figures() -> Dict[str, str]:
    """Figures of a run by name, with meaning and unit."""
    return _list("figures")
