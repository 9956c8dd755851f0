"""A search for values of a policy, by Optuna, over loads of the lab.

Each candidate is compared with a reference policy, load by load and seed by seed: its score is the
geometric mean of the ratios. Some loads and seeds are held back: the search never sees them, and
what it found is tried on them at the end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

from ._errors import LabError
from ._paths import PathLike, local_text
from ._sweep import sweep

__all__ = ["Candidate", "Load", "Tuned", "tune"]

#: The figure that a bound of memory is about: pages on per-CPU lists and in depots, at most.
MEMORY = "listed_pages_max"
#: Candidates whose rows are made together.
_ROUND = 8

Values = Union[Sequence[object], Tuple[int, int], Tuple[int, int, str]]


@dataclass(frozen=True)
class Load:
    """What a policy is tried on."""

    machine: str
    workload: str
    warm_us: int = 2000
    run_us: int = 2000

    def __str__(self) -> str:
        times = (self.warm_us, self.run_us)
        usual = (Load.warm_us, Load.run_us)
        told = "" if times == usual else f" for {times[0]} + {times[1]} us"
        return f"{self.workload} on {self.machine}{told}"


@dataclass(frozen=True)
class Candidate:
    """Values that were tried, in ratios to the reference: 0.9 is a tenth less."""

    #: The policy, as every call and the program take it.
    policy: str
    #: Each objective's geometric mean over loads and seeds.
    scores: Dict[str, float]
    #: The greatest ratio of memory on any load.
    memory: float
    #: The first objective's ratio on each load.
    by_load: Dict[str, float] = field(repr=False)


@dataclass(frozen=True)
class Tuned:
    """What a search found. All figures are simulated."""

    reference: str
    memory_bound: float
    loads: List[Load]
    held_back: List[Load]
    #: Every candidate, in the order in which they were tried.
    tried: List[Candidate] = field(repr=False)
    #: Candidates within the bound that no other one beats in every objective, best first.
    front: List[Candidate]
    #: The same, on the loads and seeds that were held back.
    validated: List[Candidate]

    @property
    def losers(self) -> List[Candidate]:
        """Candidates that are not of the front."""
        best = {each.policy for each in self.front}
        return [each for each in self.tried if each.policy not in best]

    def overfit(self) -> Dict[str, float]:
        """By policy of the front, how much of its gain is lost on what was held back: 0 if it gains
        as much there, 1 if it gains nothing, more if it harms; NaN if it gained nothing before."""
        lost = {}
        for one, other in zip(self.front, self.validated):
            first = next(iter(one.scores))
            gain, kept = 1 - one.scores[first], 1 - other.scores[first]
            lost[one.policy] = 1 - kept / gain if gain > 0 else math.nan
        return lost

    def report(self) -> str:
        """What was found, with the losers, as Markdown."""
        within = [each for each in self.tried if each.memory <= self.memory_bound]
        names = list(self.tried[0].scores) if self.tried else []
        lines = [
            f"{len(self.tried)} candidates against `{self.reference}` (simulated): "
            f"{len(within)} within {self.memory_bound:g} times its memory on each load. "
            "Ratios: 1 is the reference, less is better.",
            "",
            "| candidate | " + " | ".join(names) + " | memory | held back | lost of the gain |",
            "|--|" + "--|" * (len(names) + 3),
        ]
        lost = self.overfit()
        for one, other in zip(self.front, self.validated):
            first = names[0]
            scores = " | ".join(f"{one.scores[name]:.3f}" for name in names)
            gone = lost[one.policy]
            lines.append(
                f"| `{one.policy}` | {scores} | {one.memory:.2f} | {other.scores[first]:.3f} "
                f"| {'-' if math.isnan(gone) else f'{100 * gone:.0f} %'} |"
            )
        losers = sorted(self.losers, key=lambda each: list(each.scores.values()))
        lines += ["", "Losers:", "", "| candidate | " + " | ".join(names) + " | memory |"]
        lines.append("|--|" + "--|" * (len(names) + 1))
        for each in losers:
            scores = " | ".join(f"{each.scores[name]:.3f}" for name in names)
            lines.append(f"| `{each.policy}` | {scores} | {each.memory:.2f} |")
        lines += ["", "| load | " + " | ".join(f"front {i + 1}" for i in range(len(self.front)))]
        lines[-1] += " |"
        lines.append("|--|" + "--|" * len(self.front))
        for load in self.loads:
            cells = " | ".join(f"{each.by_load[str(load)]:.3f}" for each in self.front)
            lines.append(f"| {load} | {cells} |")
        for load in self.held_back:
            cells = " | ".join(f"{each.by_load[str(load)]:.3f}" for each in self.validated)
            lines.append(f"| held back: {load} | {cells} |")
        return "\n".join(lines) + "\n"


def tune(
    objective: Union[str, Sequence[str]],
    space: Mapping[str, Values],
    client: Any = None,
    *,
    loads: Sequence[Load],
    held_back: Sequence[Load],
    data: PathLike,
    trials: int = 64,
    memory_bound: float = 1.0,
    reference: str = "zonal",
    seeds: Iterable[int] = (1,),
    held_back_seeds: Iterable[int] = (101,),
    start: Sequence[Mapping[str, object]] = (),
    jobs: Optional[int] = None,
    seed: int = 1,
    progress: Optional[Callable[[int, int], object]] = None,
) -> Tuned:
    """Searches ``space`` for values of a policy that lower a figure of the lab.

    Parameters
    ----------
    objective
        A figure of a run that should be small, such as ``cycles_per_call``, or several: then every
        candidate that no other beats in all of them is of the front.
    space
        By key of the policy: a list of values, ``(low, high)`` of whole numbers, or
        ``(low, high, "log")`` of whole numbers whose size matters more than their difference.
    client
        A ``dask.distributed.Client``; without one, processes of this machine.
    loads, held_back
        What the search sees, and what it does not. No load may be in both.
    data
        The file of the rows, as for :func:`zonal.sweep`. The same search again finds them there.
    trials
        Candidates.
    memory_bound
        A candidate may hold so many times the reference's pages on lists and in depots, on each
        load. One that holds more is tried and told, but never of the front.
    start
        Values to try first, by key.
    seed
        What the search's own choices start from: the same call gives the same result.

    Raises
    ------
    LabError
        A figure, a key or a value that is none; an empty space; no load on one of the sides; a load
        on which a figure of the reference is 0, so that it has no multiples.
    """
    optuna = _optuna()
    names = [objective] if isinstance(objective, str) else list(objective)
    _check(names, space, loads, held_back, trials, memory_bound)
    sampler = optuna.samplers.TPESampler(
        seed=seed, multivariate=True, n_startup_trials=max(8, trials // 4), constraints_func=_excess
    )
    study = optuna.create_study(directions=["minimize"] * len(names), sampler=sampler)
    for values in start:
        study.enqueue_trial(dict(values))
    many = tuple(seeds)
    trial_on = _Trials(client, Path(local_text(data)), reference, names, jobs)
    tried: Dict[str, Candidate] = {}
    done = 0
    while done < trials:
        asked = [study.ask() for _ in range(min(_ROUND, trials - done))]
        policies = [_policy(reference, trial, space) for trial in asked]
        for trial, made in zip(asked, trial_on(policies, loads, many)):
            trial.set_user_attr("excess", made.memory - memory_bound)
            study.tell(trial, list(made.scores.values()))
            tried.setdefault(made.policy, made)
        done += len(asked)
        if progress is not None:
            progress(done, trials)
    front = _front([each for each in tried.values() if each.memory <= memory_bound])
    validated = trial_on([each.policy for each in front], held_back, tuple(held_back_seeds))
    every = list(tried.values())
    return Tuned(
        reference, memory_bound, list(loads), list(held_back), every, front, validated
    )


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise LabError("zonal.tune needs the package optuna: pip install optuna") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _check(
    names: Sequence[str],
    space: Mapping[str, Values],
    loads: Sequence[Load],
    held_back: Sequence[Load],
    trials: int,
    memory_bound: float,
) -> None:
    from . import _native

    figures = [name for name, kind in _native.rows_columns() if kind == "figure"]
    for name in names:
        if name not in figures:
            raise LabError(f"objective {name}; expected one of {', '.join(figures)}")
    if not names or not space:
        raise LabError("an empty search: expected an objective, and values to choose from")
    for key, values in space.items():
        if isinstance(values, (str, bytes)) or not values:
            raise LabError(f"space {key}: {values!r}; expected values, or (low, high)")
    if not loads or not held_back:
        raise LabError("expected loads on both sides, searched and held back")
    # For another time it is the same load.
    searched = {(each.machine, each.workload) for each in loads}
    both = [each for each in held_back if (each.machine, each.workload) in searched]
    if both:
        raise LabError(f"{both[0]} is searched and held back; expected it on one side")
    if trials < 1 or not memory_bound > 0:
        raise LabError(f"trials={trials}, memory_bound={memory_bound}; expected more than 0")


def _excess(trial: Any) -> Tuple[float]:
    """Optuna's form of a bound: at most 0 is within."""
    return (trial.user_attrs.get("excess", 1.0),)


def _policy(reference: str, trial: Any, space: Mapping[str, Values]) -> str:
    text = reference
    for key, values in space.items():
        if isinstance(values, tuple) and len(values) in (2, 3) and _whole(values[:2]):
            low, high = values[:2]
            value: object = trial.suggest_int(key, low, high, log=values[2:] == ("log",))
        else:
            value = trial.suggest_categorical(key, list(values))
        text += f"+{key}={value}"
    return text


def _whole(values: Sequence[object]) -> bool:
    return all(isinstance(value, int) and not isinstance(value, bool) for value in values)


class _Trials:
    """Candidates on loads."""

    def __init__(
        self, client: Any, data: Path, reference: str, names: Sequence[str], jobs: Optional[int]
    ) -> None:
        self._client = client
        self._data = data
        self._reference = reference
        self._names = list(names)
        self._jobs = jobs

    def __call__(
        self, policies: Sequence[str], loads: Sequence[Load], seeds: Tuple[int, ...]
    ) -> List[Candidate]:
        asked = list(dict.fromkeys([self._reference, *policies]))
        rows: Dict[Tuple[Load, str, int], Mapping[str, object]] = {}
        for load, group in _groups(loads):
            made = sweep(
                {"workload": [each.workload for each in group], "policy": asked},
                seeds,
                self._client,
                data=self._data,
                machine=load.machine,
                warm_us=load.warm_us,
                run_us=load.run_us,
                jobs=self._jobs,
            )
            at = 0
            for each in group:
                for policy in asked:
                    for seed in seeds:
                        rows[each, policy, seed] = made.rows[at]
                        at += 1
        return [self._candidate(policy, loads, seeds, rows) for policy in policies]

    def _candidate(
        self,
        policy: str,
        loads: Sequence[Load],
        seeds: Tuple[int, ...],
        rows: Mapping[Tuple[Load, str, int], Mapping[str, object]],
    ) -> Candidate:
        def ratios(name: str, load: Load) -> List[float]:
            place = f"{name} of {self._reference} on {load}"
            pairs = [
                (rows[load, policy, seed][name], rows[load, self._reference, seed][name])
                for seed in seeds
            ]
            return [_ratio(one, other, place) for one, other in pairs]

        def mean(name: str, some: Sequence[Load]) -> float:
            every = [ratio for load in some for ratio in ratios(name, load)]
            if min(every) == 0.0:
                return 0.0
            return math.exp(sum(map(math.log, every)) / len(every))

        return Candidate(
            policy,
            {name: mean(name, loads) for name in self._names},
            max(ratio for load in loads for ratio in ratios(MEMORY, load)),
            {str(load): mean(self._names[0], [load]) for load in loads},
        )


def _ratio(one: object, other: object, place: str) -> float:
    """A figure in multiples of the reference's. Two zeros are the same; nothing is a multiple of
    one."""
    assert isinstance(one, float) and isinstance(other, float)
    if one == other:
        return 1.0
    if other == 0.0:
        raise LabError(f"{place} is 0, and {one:g} is no multiple of it; expected another load")
    return one / other


def _groups(loads: Sequence[Load]) -> List[Tuple[Load, List[Load]]]:
    """Loads that one sweep makes: on the same machine, for the same time."""
    groups: Dict[Tuple[str, int, int], List[Load]] = {}
    for load in loads:
        groups.setdefault((load.machine, load.warm_us, load.run_us), []).append(load)
    return [(group[0], group) for group in groups.values()]


def _front(candidates: Sequence[Candidate]) -> List[Candidate]:
    """Those that no other beats in every objective, the best of the first one first."""

    def beats(one: Candidate, other: Candidate) -> bool:
        pairs = list(zip(one.scores.values(), other.scores.values()))
        return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)

    best = [one for one in candidates if not any(beats(other, one) for other in candidates)]
    return sorted(best, key=lambda each: list(each.scores.values()))
