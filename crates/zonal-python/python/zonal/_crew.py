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
from multiprocessing import get_context
from typing import Any, Callable, Deque, Dict, Iterable, Optional, Tuple

from . import _native
from ._errors import LabError

__all__ = ["Dask", "Local", "Tasks", "VersionError", "crew_of"]

#: Tasks under way for each worker: one at work, one that waits.
_AHEAD = 2
#: Seconds between two looks at a request to stop and at the scheduler.
_TICK_S = 0.1
#: Seconds that workers at work have to end by themselves.
_GRACE_S = 2.0
#: Times that a thing may lose its worker before it is tried alone.
_LOSSES = 2


class VersionError(LabError):
    """A worker has another program: its rows do not belong into the same file."""


def worker_version() -> str:
    """The version of rows that this process makes. Runs in workers."""
    return str(_native.rows_version())


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

    def submit(self, function: Callable[[Any], Any], argument: Any) -> Any:
        """A future."""
        try:
            return self._pool.submit(function, argument)
        except BrokenProcessPool:
            # A worker was killed: its pool takes nothing more.
            self._pool.shutdown(wait=False)
            self._pool = self._new()
            return self._pool.submit(function, argument)

    def is_lost(self, error: BaseException) -> bool:
        """Whether the worker was lost, not the task refused."""
        return isinstance(error, BrokenProcessPool)

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

    def check(self) -> None:
        """Refuses workers of another program, or without one."""
        own = _native.rows_version()
        try:
            told = self._client.run(worker_version, on_error="return")
        except Exception as error:
            raise LabError(f"client: the workers do not answer: {error}") from error
        if not told:
            raise LabError("client: the scheduler has no workers; expected one at least")
        for worker, version in told.items():
            if isinstance(version, BaseException):
                what = f"{type(version).__name__}: {version}"
                raise VersionError(
                    f"worker {worker} cannot load the package zonal ({what}); expected zonal {own}"
                )
            if version != own:
                raise VersionError(
                    f"worker {worker} has zonal {version}, and this process zonal {own}; expected "
                    "the same program everywhere, since rows of two do not belong into one file"
                )

    def workers(self) -> int:
        """Tasks that are done at a time; the last number that was told while the scheduler does not
        answer, which ``alive`` tells."""
        with suppress(Exception):
            self._workers = max(1, int(sum(self._client.nthreads().values())))
        return self._workers

    def submit(self, function: Callable[[Any], Any], argument: Any) -> Any:
        """A future."""
        # Not pure: after a scheduler was lost the same is asked for again.
        return self._client.submit(function, argument, pure=False)

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
        self._under_way: Dict[Any, Tuple[int, ...]] = {}
        self._is_alone = False

    def batch(self, waiting: int) -> int:
        """How many things the next task may have."""
        return 1

    def argument(self, numbers: Tuple[int, ...]) -> Any:
        """What the worker's function is called with."""
        raise NotImplementedError

    def took(self, numbers: Tuple[int, ...], result: Any) -> None:
        """A task is done."""
        raise NotImplementedError

    def refuse(self, at: int, why: str) -> None:
        """A worker could not do it."""
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

    def _take(self) -> Tuple[int, ...]:
        if not self._waiting or self._is_alone:
            return ()
        if self._losses.get(self._waiting[0], 0) >= _LOSSES:
            if self._under_way:
                return ()
            self._is_alone = True
            return (self._waiting.popleft(),)
        taken = [self._waiting.popleft()]
        most = max(1, self.batch(len(self._waiting)))
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
        try:
            while stop is None or not stop.is_set():
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
        while len(self._under_way) < _AHEAD * crew.workers():
            numbers = self._take()
            if not numbers:
                break
            try:
                future = crew.submit(function, self.argument(numbers))
            except Exception:
                self._waiting.extendleft(reversed(numbers))
                self._is_alone = False
                if crew.alive():
                    raise
                return False
            self._under_way[future] = numbers
            future.add_done_callback(done.put)
        return True

    def _ended(self, crew: Any, numbers: Tuple[int, ...], future: Any) -> None:
        try:
            result = future.result()
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001: a cancelled one too
            why = f"{type(error).__name__}: {error}"
            lost = crew.is_lost(error)
            for at in numbers:
                if lost:
                    self._lose(at, why)
                else:
                    self.refuse(at, why)
            if lost:
                crew.recover()
            return
        self.took(numbers, result)
