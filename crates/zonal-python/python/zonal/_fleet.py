"""What a fleet's recordings say: for each host what its allocator costs and what each setting would
do; for the fleet quantiles, groups of loads that behave alike, and one page for an operator."""

from __future__ import annotations

import glob
import math
import os
import tempfile
import threading
from collections import Counter
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

from ._calls import advise
from ._crew import Ended, Tasks, checked, crew_of
from ._errors import ArgumentError, Error, TraceError
from ._html import table
from ._paths import PathLike, is_cut_url, path_text, shown
from .advice import Advice, Row, Saving

__all__ = ["Effect", "Fleet", "Host", "fleet"]

#: Quantiles that are told.
_QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)
#: A factor of two in each figure of a load is one step: hosts of one step behave alike.
_STEP = math.log(4.0)
#: Verdicts of :func:`zonal.advise`.
_TRY, _UNKNOWN = "worth trying", "not known"
#: What saves no time.
_NO_TIME = Saving(0.0, 0.0, 0.0)
#: What a change does on a host.
_SIDES = ("helps", "harms", "nothing", _UNKNOWN)


@dataclass(frozen=True)
class Effect:
    """What a change would do on one host. Modelled."""

    #: The change, such as ``watermark_scale_factor 200``.
    change: str
    #: The sysctl with its value, or ``None`` for another kernel.
    setting: Optional[str]
    #: ``helps``: worth its risk there. ``harms``: it costs notably more. ``nothing``: neither.
    #: ``not known``: the recording does not say.
    verdict: str
    #: Percent of one CPU that it saves, by the model, no more than all that is spent; less than 0
    #: is lost.
    saving_percent_of_cpu: float
    #: MiB that lists hold more, at worst.
    memory_mib_worst: float
    #: A cost that no figure counts, if lists hold more: that of caches.
    not_counted: Optional[str] = None
    #: Percent of the elapsed time that it saves of waiting for disks; nothing where the recording
    #: has no waits.
    saving_percent_of_time: Saving = _NO_TIME


@dataclass(frozen=True)
class Host:
    """One recording. With a ``reason`` it could not be judged, and the figures are ``None``."""

    #: Where the recording is, as it was found.
    source: str
    reason: Optional[str] = None
    name: Optional[str] = None
    kernel_release: Optional[str] = None
    cpus: Optional[int] = None
    seconds: Optional[float] = None
    allocs: Optional[int] = None
    #: By how much the model's refilled and drained pages are off, in percent of the kernel's.
    refill_error_percent: Optional[float] = None
    drain_error_percent: Optional[float] = None
    #: What the allocator's waits and refills take of one CPU.
    cost_percent_of_cpu: Optional[float] = None
    #: Zone lock holds in each second (``None`` for a recording of one moment), and the mean of MiB
    #: on lists.
    holds_per_s: Optional[float] = None
    list_mib: Optional[float] = None
    effects: List[Effect] = field(default_factory=list, repr=False)
    #: What :func:`zonal.advise` says, and why: ``worth trying``, ``change nothing``, ``not known``.
    verdict: Optional[str] = None
    why: Optional[str] = field(default=None, repr=False)
    #: The setting that this verdict names as worth trying.
    setting: Optional[str] = None
    #: Whether the lab made the recording.
    simulated: Optional[bool] = None
    #: Percent of the time in which some task waited for a disk, and for memory, and what was read
    #: from disks. ``None``: the recording does not say.
    disk_wait_percent: Optional[float] = None
    memory_wait_percent: Optional[float] = None
    read_gib: Optional[float] = None

    @property
    def best(self) -> Optional[Effect]:
        """The setting that the verdict names, if that is that one is worth trying."""
        if self.verdict != _TRY or self.setting is None:
            return None
        return next((each for each in self.effects if each.setting == self.setting), None)

    @property
    def best_saving_percent_of_cpu(self) -> float:
        """What that setting saves, in percent of one CPU; 0 without one."""
        return self.best.saving_percent_of_cpu if self.best else 0.0

    @property
    def best_saving_percent_of_time(self) -> float:
        """What that setting saves, in percent of the elapsed time; 0 without one."""
        return self.best.saving_percent_of_time.mid if self.best else 0.0


@dataclass(frozen=True)
class Fleet:
    """Every host that was found, those that could not be judged among them."""

    hosts: List[Host]

    @property
    def judged(self) -> List[Host]:
        """Hosts whose recording could be read and replayed."""
        return [host for host in self.hosts if host.reason is None]

    @property
    def bad(self) -> List[Host]:
        """Hosts with a reason why not."""
        return [host for host in self.hosts if host.reason is not None]

    @property
    def unknown(self) -> List[Host]:
        """Judged hosts whose recording does not say what to do."""
        return [host for host in self.judged if host.verdict == _UNKNOWN]

    def quantiles(self) -> Dict[str, Dict[float, float]]:
        """By figure, its value that this part of the judged hosts does not exceed."""
        names = ("cost_percent_of_cpu", "holds_per_s", "list_mib", "disk_wait_percent",
                 "memory_wait_percent", "best_saving_percent_of_cpu", "best_saving_percent_of_time",
                 "refill_error_percent", "drain_error_percent")  # fmt: skip
        found = {}
        for name in names:
            values = [getattr(host, name) for host in self.judged]
            values = sorted(value for value in values if value is not None)
            if values:
                found[name] = {part: _quantile(values, part) for part in _QUANTILES}
        return found

    def settings(self) -> Dict[str, Dict[str, List[str]]]:
        """By change, the sources of hosts where it ``helps``, ``harms``, does ``nothing``, or where
        that is ``not known``."""
        found: Dict[str, Dict[str, List[str]]] = {}
        for host in self.judged:
            for each in host.effects:
                sides = found.setdefault(each.change, {side: [] for side in _SIDES})
                sides[each.verdict].append(host.source)
        return found

    def clusters(self) -> List[List[str]]:
        """Sources of hosts whose loads behave alike, the largest group first: within a factor of
        four of each other, step by step, in allocations, zone lock holds and pages on lists of each
        CPU and in waiting for disks, and with the same settings named, helping and harming."""
        groups: List[Tuple[Tuple[object, ...], List[float], List[str]]] = []
        for host in sorted(self.judged, key=lambda host: host.source):
            kind, place = _behaviour(host)
            for known, centre, members in groups:
                if known == kind and all(abs(a - b) < _STEP / 2 for a, b in zip(centre, place)):
                    members.append(host.source)
                    break
            else:
                groups.append((kind, place, [host.source]))
        return sorted((members for _, _, members in groups), key=lambda group: -len(group))

    def summary(self) -> List[str]:
        """What an operator should do, in sentences."""
        judged = self.judged
        best = Counter(host.best.setting for host in judged if host.best is not None)
        unknown = len(self.unknown)
        alone = len(judged) - unknown - sum(best.values())
        lines = [f"Change nothing on {alone:,} of {len(judged):,} hosts."]
        if unknown:
            lines.append(
                f"Not known on {unknown:,} of {len(judged):,} hosts: their recordings do not say "
                "what to do; the page says why."
            )
        for setting, count in best.most_common():
            effects = [host.best for host in judged if host.best is not None]
            effects = [each for each in effects if each.setting == setting]
            hosts = "host" if count == 1 else "hosts"
            lines.append(
                f"On {count:,} {hosts} set {setting}: it saves {_saved(effects)}, by the model."
            )
            for what in sorted({each.not_counted for each in effects if each.not_counted}):
                lines.append(f"Not counted in what {setting} saves: {what}.")
        for change, sides in self.settings().items():
            if sides["helps"] and sides["harms"]:
                lines.append(
                    f"Do not set {change} everywhere: it helps {len(sides['helps']):,} hosts and "
                    f"harms {len(sides['harms']):,}."
                )
        simulated = sum(bool(host.simulated) for host in judged)
        if simulated:
            lines.append(
                f"The recordings of {simulated:,} of {len(judged):,} hosts are of simulated hosts."
            )
        if self.bad:
            count = len(self.bad)
            lines.append(f"{count:,} recordings could not be judged; they are listed below.")
        return lines

    def to_pandas(self) -> Any:
        """A row for each host, without effects."""
        import pandas

        names = [name for name in Host.__dataclass_fields__ if name != "effects"]
        rows = [{name: getattr(host, name) for name in names} for host in self.hosts]
        for row in rows:
            row.update({name: shown(cell) for name, cell in row.items() if isinstance(cell, str)})
        return pandas.DataFrame(rows, columns=names)

    def html(self) -> str:
        """The page, which needs nothing else to be shown."""
        lines = "".join(f"<li>{escape(line)}</li>" for line in self.summary())
        return shown(
            "<!doctype html><html lang=en><meta charset=utf-8><title>Fleet</title>"
            "<style>body{font:15px sans-serif;max-width:75em;margin:2em auto;padding:0 1em}"
            "table{border-collapse:collapse;margin:1em 0}td,th{border-bottom:1px solid #ccc;"
            "padding:.2em .6em;text-align:left}caption{text-align:left;font-weight:bold}"
            "ul{font-size:17px}</style><h1>Settings of page allocators</h1>"
            "<p>Costs and savings are modelled from recordings, in percent of one CPU, or of the "
            "elapsed time. Time in which some task waited for a disk is the kernel's figure.</p>"
            f"<ul>{lines}</ul>{self._tables()}</html>"
        )

    def _tables(self) -> str:
        parts = []
        sides = sorted(self.settings().items(), key=lambda each: -len(each[1]["helps"]))
        effects = [
            [change, *(len(s[side]) for side in _SIDES)] for change, s in sides
        ]
        heads = ["change", "helps", "harms", "does nothing", "not known"]
        parts.append(table("Changes: hosts", heads, effects))
        quantiles = self.quantiles()
        rows = [[name, *values.values()] for name, values in quantiles.items()]
        heads = ["figure", *(f"{100 * part:g} %" for part in _QUANTILES)]
        parts.append(table("Quantiles of hosts", heads, rows))
        by_source = {host.source: host for host in self.judged}
        groups = []
        for members in self.clusters():
            host = by_source[members[0]]
            groups.append([len(members), members[0], _advice(host), host.cost_percent_of_cpu,
                           host.holds_per_s, host.list_mib, host.disk_wait_percent])  # fmt: skip
        heads = ["hosts", "for example", "advice", "cost %", "lock holds/s", "MiB on lists",
                 "waited for disks %"]  # fmt: skip
        parts.append(table("Loads that behave alike", heads, groups))
        if self.unknown:
            rows = [[host.source, host.why] for host in self.unknown]
            parts.append(table("Hosts where it is not known", ["recording", "reason"], rows))
        if self.bad:
            bad = [[host.source, host.reason] for host in self.bad]
            parts.append(table("Recordings that could not be judged", ["recording", "reason"], bad))
        hosts = [
            [host.source, host.kernel_release, host.cpus, host.cost_percent_of_cpu,
             host.disk_wait_percent, host.refill_error_percent, _advice(host),
             host.best_saving_percent_of_cpu, host.best_saving_percent_of_time]
            for host in self.judged
        ]  # fmt: skip
        heads = ["recording", "kernel", "CPUs", "cost %", "waited for disks %", "model error %",
                 "advice", "saves % of a CPU", "saves % of the time"]  # fmt: skip
        every = table("Every host", heads, hosts)
        parts.append(f"<details><summary>Every host</summary>{every}</details>")
        return "".join(parts)

    def _repr_html_(self) -> str:
        from ._html import framed

        return framed(self.html())


def fleet(
    recordings: Union[PathLike, Sequence[PathLike]],
    client: Any = None,
    *,
    storage_options: Optional[Mapping[str, Any]] = None,
    only: Sequence[str] = (),
    limit: Optional[int] = None,
    jobs: Optional[int] = None,
    tries: int = 2,
    reconnect_s: float = 60.0,
    progress: Optional[Callable[[int, int], object]] = None,
    stop: Optional[threading.Event] = None,
) -> Fleet:
    """Judges a recording from each host.

    Parameters
    ----------
    recordings
        Paths, patterns (``/var/recordings/*.zonal``) or URLs with patterns that fsspec knows
        (``s3://bucket/*/last.zonal``): files, or directories of recordings.
    client
        A ``dask.distributed.Client``; without one, processes of this machine.
    storage_options
        What fsspec needs to open the URLs.
    only, limit
        As for :func:`zonal.advise`.
    tries
        How often a recording is tried, each time on a worker that has not failed it, while the
        client has one.

    A recording that cannot be read, or is not there, is a host with a ``reason``, never the end of
    the call. After ``stop`` was set, hosts that were not looked at have the reason "not looked at".

    Raises
    ------
    ArgumentError
        A pattern that nothing matches, or a URL that fsspec does not know.
    TraceError
        A store that cannot be asked which recordings there are.
    """
    options = dict(storage_options or {})
    checked(jobs, tries)
    sources = _expanded(recordings, options)
    work = _Hosts(sources, options, list(only), limit, tries, progress)
    crew = crew_of(client, jobs, reconnect_s)
    try:
        crew.check()
        work.drive(crew, judge, stop)
    finally:
        crew.close()
    for at, why in work.reasons.items():
        work.hosts[at] = Host(sources[at], reason=why)
    missing = "not looked at: the call was stopped"
    return Fleet([work.hosts.get(at, Host(name, missing)) for at, name in enumerate(sources)])


class _Hosts(Tasks):
    """Recordings by number."""

    def __init__(
        self,
        sources: Sequence[str],
        options: Dict[str, Any],
        only: List[str],
        limit: Optional[int],
        tries: int,
        progress: Optional[Callable[[int, int], object]],
    ) -> None:
        super().__init__(range(len(sources)), tries)
        self.hosts: Dict[int, Host] = {}
        self._sources = sources
        self._more = (options, only, limit)
        self._progress = progress

    def argument(self, numbers: Tuple[int, ...]) -> Any:
        return (self._sources[numbers[0]], *self._more)

    def took(self, numbers: Tuple[int, ...], ended: Ended) -> None:
        self.hosts[numbers[0]] = ended.result
        if self._progress is not None:
            self._progress(len(self.hosts), len(self._sources))


def judge(asked: Tuple[str, Dict[str, Any], List[str], Optional[int]]) -> Host:
    """Judges one recording. Runs in workers."""
    source, options, only, limit = asked
    path = source
    try:
        if "://" not in source:
            return _judged(source, path, only, limit)
        # A recording is read at any place: it is fetched whole, and gone afterwards.
        with tempfile.TemporaryDirectory(prefix="zonal-fleet-") as folder:
            path = _fetched(source, options, folder)
            return _judged(source, path, only, limit)
    except Error as error:
        return Host(source, reason=str(error).replace(path, source))
    except OSError as error:
        # Of the disk: another worker may do better.
        raise RuntimeError(f"{source}: {type(error).__name__}: {error}") from error


def _fetched(source: str, options: Dict[str, Any], folder: str) -> str:
    from fsspec.core import url_to_fs

    files, path = url_to_fs(source, **options)
    target = os.path.join(folder, os.path.basename(path.rstrip("/")) or "recording")
    try:
        files.get(path, target, recursive=files.isdir(path))
    except Exception as error:
        # Each store has exceptions of its own; another time, or another worker, may do better.
        what = f"{source}: cannot be fetched: {type(error).__name__}: {error}"
        raise RuntimeError(what) from error
    return target


def _judged(source: str, path: str, only: List[str], limit: Optional[int]) -> Host:
    found = advise(path, only=only, limit=limit)
    effects = []
    for row in found.changes:
        verdict = _side(found, row)
        saving = min(row.saving_percent_of_cpu.mid, _spent(found))
        for name in [row.change, *row.same_as]:
            setting = row.setting if name == row.change else None
            effects.append(
                Effect(
                    name,
                    setting,
                    verdict,
                    saving,
                    row.memory_mib_worst,
                    row.not_counted,
                    row.saving_percent_of_time,
                )
            )
    reclaim = found.reclaim
    return Host(
        source,
        name=found.trace,
        kernel_release=found.kernel_release,
        cpus=found.cpus,
        seconds=found.seconds,
        allocs=found.allocs,
        refill_error_percent=found.model_error_percent.refill_pages,
        drain_error_percent=found.model_error_percent.drain_pages,
        cost_percent_of_cpu=found.cost_percent_of_cpu,
        holds_per_s=found.recorded.lock_holds / found.seconds if found.seconds else None,
        list_mib=found.recorded.list_pages_mean / 256,
        effects=effects,
        verdict=found.verdict,
        why=found.reason,
        setting=found.setting,
        simulated=found.simulated,
        disk_wait_percent=reclaim.disk_wait_percent if reclaim else None,
        memory_wait_percent=reclaim.memory_wait_percent if reclaim else None,
        read_gib=reclaim.read_gib if reclaim else None,
    )


def _spent(found: Advice) -> float:
    """Percent of one CPU that is spent: nothing saves more."""
    reclaim = found.reclaim.percent_of_cpu.mid if found.reclaim else 0.0
    return max(found.cost_percent_of_cpu, 0.0) + reclaim


def _side(found: Advice, row: Row) -> str:
    """What a change does on the host of this advice."""
    if found.verdict == _UNKNOWN:
        return _UNKNOWN
    if found.verdict == _TRY and row.setting is not None:
        # What the verdict names helps, also where its line is not given for the lists alone.
        if row.setting == found.setting or row.command is not None:
            return "helps"
    return "harms" if row.is_worse else "nothing"


def _saved(effects: Sequence[Effect]) -> str:
    """What a setting saves on some hosts: of the time where the model promises that, of a CPU on
    the others."""
    of_time = [e.saving_percent_of_time.mid for e in effects if e.saving_percent_of_time.low > 0.0]
    of_cpu = [e.saving_percent_of_cpu for e in effects if e.saving_percent_of_time.low <= 0.0]
    parts = [
        (f"{min(saved):.3g} to {max(saved):.3g} % of {what}", len(saved))
        for what, saved in (("the elapsed time", of_time), ("a CPU", of_cpu))
        if saved
    ]
    if len(parts) == 1:
        return f"{parts[0][0]} there"
    return " and ".join(f"{text} on {count:,}" for text, count in parts)


def _advice(host: Host) -> Optional[str]:
    if host.verdict == _UNKNOWN:
        return _UNKNOWN
    return (host.best and host.best.setting) or "change nothing"


def _expanded(recordings: Any, options: Dict[str, Any]) -> List[str]:
    is_one = isinstance(recordings, (str, bytes, os.PathLike))
    if not is_one and not isinstance(recordings, Iterable):
        found_type = type(recordings).__name__
        raise ArgumentError(f"recordings: {found_type}; expected paths, patterns or URLs")
    many = [recordings] if is_one else list(recordings)
    if not many:
        raise ArgumentError("recordings: none; expected one at least")
    found: List[str] = []
    for each in many:
        pattern = path_text(each)
        if is_cut_url(pattern):
            what = "a path that was a URL; expected the URL as text, which pathlib does not keep"
            raise ArgumentError(f"{pattern}: {what}")
        if "://" in pattern:
            try:
                from fsspec.core import url_to_fs
            except ImportError as error:
                what = f"{pattern}: URLs need the package fsspec: pip install fsspec"
                raise ArgumentError(what) from error
            try:
                files, path = url_to_fs(pattern, **options)
            except (ImportError, ValueError) as error:
                raise ArgumentError(f"{pattern}: {error}") from error
            try:
                names = [files.unstrip_protocol(name) for name in sorted(files.glob(path))]
                if not (names or is_one or glob.has_magic(path)):
                    names = [pattern]
            except Exception as error:
                # Each store has exceptions of its own.
                what = f"{pattern}: cannot be listed: {type(error).__name__}: {error}"
                raise TraceError(what) from error
        else:
            # One of several that is missing is a host with this reason.
            names = sorted(glob.glob(pattern)) or [pattern] * (
                Path(pattern).exists() or not (is_one or glob.has_magic(pattern))
            )
        if not names:
            raise ArgumentError(f"{pattern}: nothing has such a name; expected recordings")
        found.extend(names)
    return list(dict.fromkeys(found))


def _quantile(values: Sequence[float], part: float) -> float:
    at = part * (len(values) - 1)
    low = math.floor(at)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (at - low)


def _behaviour(host: Host) -> Tuple[Tuple[object, ...], List[float]]:
    """What must be the same, and the logarithms of what must be near."""
    notable = tuple(
        sorted((e.change, e.verdict) for e in host.effects if e.verdict in _SIDES[:2] and e.setting)
    )
    # A recording of one moment has no rates.
    rate = (host.allocs or 0) / host.seconds if host.seconds else 0.0
    figures = (rate, host.holds_per_s or 0.0, (host.list_mib or 0.0) * 256)
    place = [math.log(figure / (host.cpus or 1) + 1e-3) for figure in figures]
    # Waits of less than a percent are alike.
    place.append(math.log((host.disk_wait_percent or 0.0) + 1.0))
    return (host.verdict, host.setting, *notable), place
