"""Workers: processes of this machine, or those of a ``dask.distributed.Client``."""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
from collections import deque
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from typing import AbstractSet, Any, Callable, Deque, Dict, Iterable, Iterator, List, Optional
from typing import Set, Tuple

from . import _native
from ._errors import LabError

__all__ = ["Dask", "Ended", "Local", "Tasks", "VersionError", "checked", "crew_of"]

#: Tasks under way for each worker: one at work, one that waits.
_AHEAD = 2
#: Seconds between two looks at a request to stop and at the scheduler.
_TICK_S = 0.1
#: Seconds between two looks at tasks that only some workers may take.
_LOOK_S = 1.0
#: Seconds that workers at work have to end by themselves.
_GRACE_S = 2.0
#: Times that a thing may lose its worker before it is tried alone.
_LOSSES = 2


class VersionError(LabError):
    """A worker has another program: its rows do not belong into the same file."""


def worker_version() -> str:
    """The version of rows that this process makes. Runs in workers."""
    return str(_native.rows_version())


@dataclass(frozen=True)
class Ended:
    """A task that ended on a worker: with a result, or with the reason why there is none."""

    #: The worker, where others can be asked instead.
    where: Optional[str]
    result: Any
    why: Optional[str] = None


def at_worker(function: Callable[[Any], Any], argument: Any) -> Ended:
    """Calls a function in a worker of Dask, and says which one it was."""
    from distributed import get_worker

    where = str(get_worker().address)
    try:
        return Ended(where, function(argument))
    except Exception as error:  # noqa: BLE001: a reason is told, whatever it is
        return Ended(where, None, _told(error))


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


class Local:
    """Worker processes of this machine."""

    def __init__(self, jobs: Optional[int]) -> None:
        self.jobs = jobs or len(os.sched_getaffinity(0)) or 1
        self._pool = self._new()

    def _new(self) -> ProcessPoolExecutor:
        # Spawned, not forked: the caller may have threads.
        # Ctrl-C is for the caller: it ends the workers.
        ignore = (signal.SIGINT, signal.SIG_IGN)
        return ProcessPoolExecutor(
            self.jobs,
            mp_context=get_context("spawn"),
            initializer=signal.signal,
            initargs=ignore,
        )

    def check(self) -> None:
        """All are this program; refuses a caller whose workers end before they begin."""
        for is_last in (False, True):
            try:
                self._pool.submit(worker_version).result()
                return
            except BrokenProcessPool as error:
                if is_last:
                    raise LabError(
                        "the worker processes end when they start. Each of them loads the "
                        'program\'s main file: does it call zonal outside of `if __name__ == '
                        '"__main__":`? Their own words are on stderr'
                    ) from error
                # One may have been killed by chance.
                self._pool = self._new()

    def workers(self) -> int:
        """Tasks that are done at a time."""
        return self.jobs

    def submit(
        self, function: Callable[[Any], Any], argument: Any, avoid: AbstractSet[str] = frozenset()
    ) -> Any:
        """A future. Processes of one machine are all alike, so none is avoided."""
        try:
            return self._pool.submit(function, argument)
        except BrokenProcessPool:
            # A worker was killed: its pool takes nothing more.
            self._pool.shutdown(wait=False)
            self._pool = self._new()
            return self._pool.submit(function, argument)

    def ended(self, future: Any) -> Ended:
        """What became of a task."""
        return Ended(None, future.result())

    def is_lost(self, error: BaseException) -> bool:
        """Whether the worker was lost, not the task refused."""
        return isinstance(error, BrokenProcessPool)

    def stranded(self, futures: Iterable[Any]) -> "List[Any]":
        """Tasks that no worker can take."""
        return []

    def doubt(self) -> None:
        """They are all this program."""

    def alive(self) -> bool:
        """A pool that lost a worker tells each of its tasks."""
        return True

    def recover(self) -> None:
        """Nothing to wait for: the next task starts a pool."""

    def close(self) -> None:
        """Ends the workers: those that are idle by themselves, others after a moment, since Ctrl-C
        is none of theirs and a row may take hours."""
        workers = list((self._pool._processes or {}).values())
        self._pool.shutdown(wait=False, cancel_futures=True)
        end = time.monotonic() + _GRACE_S
        for worker in workers:
            worker.join(max(0.0, end - time.monotonic()))
            if worker.is_alive():
                worker.kill()
                worker.join()


class Dask:
    """Workers of a ``dask.distributed.Client``."""

    def __init__(self, client: Any, reconnect_s: float) -> None:
        self._client = client
        self._reconnect_s = reconnect_s
        self._workers = 1
        #: When the scheduler was last asked how many there are.
        self._asked = -_LOOK_S
        #: Workers that get nothing, with the reason.
        self._unfit: Dict[str, str] = {}
        #: Workers that may take a task, of tasks that not all may.
        self._only: Dict[Any, Set[str]] = {}

    def check(self) -> None:
        """Refuses workers of another program, or without one."""
        try:
            told = self._client.run(worker_version, on_error="return")
        except Exception as error:
            raise LabError(f"client: the workers do not answer: {error}") from error
        if not told:
            raise LabError("client: the scheduler has no workers; expected one at least")
        for why in self._of_others(told):
            raise VersionError(why)

    def _of_others(self, told: Dict[str, Any]) -> Iterator[str]:
        """Notes workers of another program, or without one, and says why."""
        own = _native.rows_version()
        for worker, version in told.items():
            if version == own:
                continue
            if isinstance(version, BaseException):
                why = (
                    f"worker {worker} cannot load the package zonal ({_told(version)}); expected "
                    f"zonal {own}"
                )
            else:
                why = (
                    f"worker {worker} has zonal {version}, and this process zonal {own}; expected "
                    "the same program everywhere, since rows of two do not belong into one file"
                )
            self._unfit[worker] = why
            yield why

    def doubt(self) -> None:
        """A task ended without a word of who had it: workers that came later than the first check
        may lack the package. Such ones get nothing more."""
        with suppress(Exception):
            list(self._of_others(self._client.run(worker_version, on_error="return")))

    def workers(self) -> int:
        """Tasks that are done at a time; the last number that was told while the scheduler does not
        answer, which ``alive`` tells. Asking costs the scheduler and this process as much as a
        task, so it is not done for each."""
        if time.monotonic() - self._asked >= _LOOK_S:
            with suppress(Exception):
                self._workers = max(1, int(sum(self._client.nthreads().values())))
            self._asked = time.monotonic()
        return self._workers

    def submit(
        self, function: Callable[[Any], Any], argument: Any, avoid: AbstractSet[str] = frozenset()
    ) -> Any:
        """A future. Workers in ``avoid`` do not get the task while there are others."""
        only: Optional[Set[str]] = None
        if avoid or self._unfit:
            fit = self._client.nthreads().keys() - self._unfit.keys()
            if not fit and self._unfit:
                raise VersionError(next(iter(self._unfit.values())))
            only = set(fit - avoid or fit) or None
        # Not pure: after a scheduler was lost the same is asked for again.
        future = self._client.submit(
            at_worker,
            function,
            argument,
            pure=False,
            workers=sorted(only) if only else None,
            allow_other_workers=False,
        )
        if only:
            self._only[future] = only
        return future

    def ended(self, future: Any) -> Ended:
        """What became of a task."""
        self._only.pop(future, None)
        ended: Ended = future.result()
        return ended

    def stranded(self, futures: Iterable[Any]) -> List[Any]:
        """Tasks whose workers are all gone: they would wait for ever."""
        waiting = [future for future in futures if future in self._only]
        if not waiting:
            return []
        with suppress(Exception):
            there = self._client.nthreads().keys()
            lost = [future for future in waiting if not self._only[future] & there]
            for future in lost:
                del self._only[future]
            return lost
        return []

    def is_lost(self, error: BaseException) -> bool:
        """Whether the worker was lost, not the task refused."""
        from asyncio import CancelledError
        from concurrent.futures import CancelledError as Cancelled

        from distributed.client import FutureCancelledError
        from distributed.comm.core import CommClosedError
        from distributed.scheduler import KilledWorker

        lost = (CancelledError, Cancelled, FutureCancelledError, CommClosedError, KilledWorker)
        return isinstance(error, lost + (OSError, TimeoutError))

    def alive(self) -> bool:
        """Whether the client has its scheduler; tasks of one that was lost may never end."""
        return bool(self._client.status == "running")

    def recover(self) -> None:
        """Waits until the client has its scheduler and a worker again."""
        end = time.monotonic() + self._reconnect_s
        while time.monotonic() < end:
            try:
                if self._client.status == "running" and self._client.nthreads():
                    return
            except Exception:  # noqa: BLE001, S110: it is asked again
                pass
            time.sleep(_TICK_S)
        raise LabError(
            f"client: no scheduler with workers for {self._reconnect_s:.0f} s; the rows so far are "
            "in the file, and the same call goes on from there"
        )

    def close(self) -> None:
        """The client is the caller's."""


def checked(jobs: Optional[int], tries: int) -> None:
    """Refuses numbers that cannot be.

    Raises:
        LabError: Fewer than one.
    """
    for name, number in (("tries", tries), ("jobs", jobs)):
        if number is not None and number < 1:
            raise LabError(f"{name}={number}; expected 1 or more")


def crew_of(client: Any, jobs: Optional[int], reconnect_s: float) -> Any:
    """The workers of a client, or local ones without."""
    return Local(jobs) if client is None else Dask(client, reconnect_s)


class Tasks:
    """Things by number that workers do, several in one task. Nothing is given up before it was
    tried ``tries`` times; what lost its worker twice is tried again alone, so that it does not take
    others with it. Everything runs in the calling thread."""

    def __init__(self, numbers: Iterable[int], tries: int) -> None:
        #: Why things were given up, by number.
        self.reasons: Dict[int, str] = {}
        self._waiting: Deque[int] = deque(numbers)
        self._tries = tries
        self._failures: Dict[int, int] = {}
        self._losses: Dict[int, int] = {}
        #: Workers that could not do it, by number.
        self._refused_by: Dict[int, Set[str]] = {}
        self._under_way: Dict[Any, Tuple[int, ...]] = {}
        self._is_alone = False

    def batch(self, waiting: int, workers: int) -> int:
        """How many things the next task may have, for so many workers."""
        return 1

    def argument(self, numbers: Tuple[int, ...]) -> Any:
        """What the worker's function is called with."""
        raise NotImplementedError

    def took(self, numbers: Tuple[int, ...], ended: Ended) -> None:
        """A task is done."""
        raise NotImplementedError

    def refuse(self, at: int, why: str, where: Optional[str]) -> None:
        """A worker could not do it; it is tried on another one."""
        if where is not None:
            self._refused_by.setdefault(at, set()).add(where)
        self._failures[at] = self._failures.get(at, 0) + 1
        self._put_back(at, why, self._failures[at] >= self._tries)

    def _lose(self, at: int, why: str) -> None:
        self._losses[at] = self._losses.get(at, 0) + 1
        lost = f"its worker was lost again and again: {why}"
        self._put_back(at, lost, self._losses[at] >= _LOSSES + self._tries)

    def _put_back(self, at: int, why: str, is_last: bool) -> None:
        if is_last:
            self.reasons[at] = why
        else:
            self._waiting.append(at)

    def _take(self, workers: int) -> Tuple[int, ...]:
        if not self._waiting or self._is_alone:
            return ()
        if self._losses.get(self._waiting[0], 0) >= _LOSSES:
            if self._under_way:
                return ()
            self._is_alone = True
            return (self._waiting.popleft(),)
        taken = [self._waiting.popleft()]
        most = max(1, self.batch(len(self._waiting), workers))
        tried = self._losses.keys() | self._failures.keys() if most > 1 else set()
        while self._waiting and len(taken) < most:
            if taken[-1] in tried or self._waiting[0] in tried:
                break
            taken.append(self._waiting.popleft())
        return tuple(taken)

    def drive(
        self, crew: Any, function: Callable[[Any], Any], stop: Optional[threading.Event]
    ) -> None:
        """Hands tasks to workers until nothing is left, or ``stop`` is set."""
        done: "queue.SimpleQueue[Any]" = queue.SimpleQueue()
        looked = time.monotonic()
        try:
            while stop is None or not stop.is_set():
                if time.monotonic() - looked >= _LOOK_S:
                    self._look(crew)
                    looked = time.monotonic()
                if self._hand_out(crew, function, done) and not self._under_way:
                    return
                try:
                    future = done.get(timeout=_TICK_S)
                except queue.Empty:
                    if not crew.alive():
                        self._waiting.extend(at for all in self._under_way.values() for at in all)
                        self._under_way.clear()
                        self._is_alone = False
                        crew.recover()
                    continue
                if future in self._under_way:
                    numbers = self._under_way.pop(future)
                    self._is_alone = False
                    self._ended(crew, numbers, future)
        finally:
            for future in self._under_way:
                # A client that was closed takes nothing back.
                with suppress(Exception):
                    future.cancel()

    def _hand_out(
        self, crew: Any, function: Callable[[Any], Any], done: "queue.SimpleQueue[Any]"
    ) -> bool:
        """Gives workers what they can take; false if there is nobody to give it to."""
        while len(self._under_way) < _AHEAD * (workers := crew.workers()):
            numbers = self._take(workers)
            if not numbers:
                break
            try:
                avoid = self._refused_by.get(numbers[0], set())
                future = crew.submit(function, self.argument(numbers), avoid)
            except Exception:
                self._waiting.extendleft(reversed(numbers))
                self._is_alone = False
                if crew.alive():
                    raise
                return False
            self._under_way[future] = numbers
            future.add_done_callback(done.put)
        return True

    def _look(self, crew: Any) -> None:
        """Takes back tasks that only workers which are gone may take."""
        for future in crew.stranded(list(self._under_way)):
            self._waiting.extend(self._under_way.pop(future))
            self._is_alone = False
            with suppress(Exception):
                future.cancel()

    def _ended(self, crew: Any, numbers: Tuple[int, ...], future: Any) -> None:
        try:
            ended = crew.ended(future)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001: a cancelled one too
            lost = crew.is_lost(error)
            for at in numbers:
                if lost:
                    self._lose(at, _told(error))
                else:
                    self.refuse(at, _told(error), None)
            if lost:
                crew.recover()
            else:
                crew.doubt()
            return
        if ended.why is None:
            self.took(numbers, ended)
            return
        for at in numbers:
            self.refuse(at, ended.why, ended.where)
