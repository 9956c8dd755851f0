"""Pools: memory from the near node in blocks of exact size, for arrays and tensors.

>>> import zonal
>>> pool = zonal.Pool(64 << 20)
>>> block = pool.alloc(20_000)
>>> block.nbytes, block.capacity
(20000, 20480)
>>> block.view()[:5] = b"hello"
"""

from __future__ import annotations

import atexit
import ctypes
import json
import math
import operator
import threading
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Iterable, List, Optional, Sequence, Tuple, Union

from . import _native
from ._errors import ArgumentError, PoolError
from ._policy import PolicyLike, text_of
from ._progress import Progress, adapted
from ._results import decoded

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["Buffer", "Held", "NumaEvents", "Pool", "PoolStatistics", "Registration", "Tensor"]

Registration = _native.Registration
Tensor = _native.Tensor


#: Registrations that may be open.
_registered: "weakref.WeakSet[Registration]" = weakref.WeakSet()
#: Held while one is added or they are listed.
_registering = threading.Lock()
#: Whether the interpreter ends. From then on none is added.
_ending = False


@atexit.register
def _close_registered() -> None:
    """Ends all of them while the interpreter is whole: a pool's thread that calls into one that is
    ending would hang for ever."""
    global _ending
    with _registering:
        _ending = True
        left = list(_registered)
    for each in left:
        each.close()


class Buffer(_native.Buffer):
    """Bytes of a pool, in a row, on whole pages. Made by :meth:`Pool.alloc`.

    The pages go back when the buffer and every view of it are gone, in any order, on any thread,
    also after the pool itself; or at once by :meth:`release`, or at the end of ``with``. The bytes
    are those that were there before, unless ``zeroed`` was asked for.

    It has no buffer protocol of its own: a consumer may drop the view and keep the buffer, and then
    nothing would say that its bytes are still used. Hand on :meth:`view`.

    Attributes:
        nbytes: The bytes that were asked for.
        capacity: Bytes of its pages: ``nbytes`` rounded up to 4096.
        address: Address of the first byte; a multiple of 4096.
        views: Arrays, memoryviews and tensors that exist.
        released: Whether its pages went back.
    """

    def view(self) -> memoryview:
        """The bytes: format ``B``, shape ``(nbytes,)``, writable. Keeps the pages.

        Raises:
            ReleasedError: The buffer was released.
        """
        address, lease = self.lease()
        array = (ctypes.c_ubyte * self.nbytes).from_address(address)
        array._lease = lease  # type: ignore[attr-defined]
        return memoryview(array).cast("B")

    def numpy(
        self,
        shape: "Union[int, Sequence[int], None]" = None,
        dtype: "npt.DTypeLike" = "uint8",
        offset: int = 0,
    ) -> "np.ndarray[Any, Any]":
        """A NumPy array over the bytes, without a copy. Keeps the pages.

        Args:
            shape: Its shape; without it one dimension with all that fits.
            dtype: Its type.
            offset: Bytes before its first element.

        Raises:
            ArgumentError: It has more bytes than the buffer.
            ReleasedError: The buffer was released.
        """
        import numpy

        kind = numpy.dtype(dtype)
        if kind.hasobject:
            raise ArgumentError(f"dtype: {kind}; objects of Python cannot lie in a pool")
        offset = _whole("offset", offset, self.nbytes)
        if shape is None:
            shape = (self.nbytes - offset) // max(kind.itemsize, 1)
        try:
            return numpy.ndarray(shape, kind, buffer=self.view(), offset=offset)
        except TypeError as error:
            raise ArgumentError(f"{shape} of {kind} from byte {offset}: {error}") from None

    def __array__(
        self, dtype: Any = None, copy: Optional[bool] = None
    ) -> "np.ndarray[Any, Any]":
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            if copy is False:
                raise ValueError("another type needs a copy, and copy is False")
            return array.astype(dtype)
        return array.copy() if copy else array

    def __dlpack__(
        self,
        *,
        stream: None = None,
        max_version: Optional[Tuple[int, int]] = None,
        dl_device: Optional[Tuple[int, int]] = None,
        copy: Optional[bool] = None,
    ) -> object:
        """The bytes as a tensor of ``uint8``; :meth:`tensor` has other types and shapes."""
        tensor = self.tensor([self.nbytes], "uint8")
        return tensor.__dlpack__(
            stream=stream, max_version=max_version, dl_device=dl_device, copy=copy
        )

    def __dlpack_device__(self) -> Tuple[int, int]:
        return (1, 0)

    def __enter__(self) -> "Buffer":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __repr__(self) -> str:
        state = "released" if self.released else f"at {self.address:#x}"
        return f"<zonal.Buffer of {self.nbytes} bytes, {state}>"


@dataclass(frozen=True)
class Held:
    """Where the pool's bytes are."""

    users_bytes: int
    """Handed out."""
    consumers_bytes: int
    """Handed out to registered consumers, as they say: they would give it up."""
    lists_bytes: int
    """On per-CPU lists."""
    depots_bytes: int
    """In depots."""
    free_resident_bytes: int
    """Free, and in memory."""
    free_absent_bytes: int
    """Free, and not in memory."""
    withheld_bytes: int
    """Kept out of use by the budget."""
    elsewhere_bytes: int
    """In transit between lists."""
    metadata_bytes: int
    """Of the allocator itself, besides the pool's."""


@dataclass(frozen=True)
class NumaEvents:
    """Allocations by nodes, as ``numastat`` counts them."""

    hit: int
    miss: int
    foreign: int
    local: int
    other: int


@dataclass(frozen=True)
class PoolStatistics:
    """Figures of a pool at one moment; other threads go on meanwhile."""

    nbytes: int
    """Bytes of the pool."""
    free_pages: int
    """Pages of 4096 bytes that are free, those on per-CPU lists included."""
    policy: str
    mode: str
    """``rseq``, or ``lock`` and why."""
    held: Held
    allocated_pages: int
    """Pages handed out since it was made."""
    freed_pages: int
    refills: int
    """Times that a per-CPU list was filled."""
    drains: int
    """Times that one was drained."""
    direct_pages: int
    """Pages that came from a zone past the lists."""
    lock_holds: int
    """Times that a zone lock was taken."""
    lock_contended: int
    """Times that one was found taken."""
    trimmed_bytes: int
    """Bytes given back to the system."""
    misuses: int
    """Blocks that could not be freed."""
    numa: List[NumaEvents]
    """By node."""


class Pool(_native.Pool):
    """Memory of this process under the allocator. Safe for all threads, and in a forked child.

    Args:
        size: Bytes, rounded up so that each node gets whole blocks of 4 MiB; with ``node`` a
            multiple of 4096.
        policy: A policy.
        node: The one NUMA node to take memory from; all without.
        strict: Whether memory that cannot be bound to its node is refused.
        huge_pages: ``base``, ``transparent``, or ``2M``: reserved ones, else transparent ones with
            a notice.
        prefault: Whether memory is touched now rather than at first use; ``"parallel"``: by a
            thread on each CPU.
        budget: The most bytes in use.
        poison: Whether freed pages are filled and checked. Slow.
        progress: Called with (bytes touched, bytes) while memory is touched; or a tqdm.

    Raises:
        PoolError: The pool cannot be made.
        ArgumentError, PolicyError: An argument that cannot be.
    """

    def __new__(
        cls,
        size: int,
        *,
        policy: PolicyLike = "zonal",
        node: Optional[int] = None,
        strict: bool = False,
        huge_pages: str = "base",
        prefault: Union[bool, str] = False,
        budget: Optional[int] = None,
        poison: bool = False,
        progress: Optional[Progress] = None,
    ) -> "Pool":
        size = _bytes("size", size)
        budget = None if budget is None else _bytes("budget", budget)
        wanted: _native.Wanted = {
            "size": size,
            "policy": text_of(policy),
            "node": _node(node),
            "strict": strict,
            "huge_pages": huge_pages,
            "prefault": _prefault(prefault),
            "budget": budget,
            "poison": poison,
        }
        with adapted(progress) as told:
            return super().__new__(cls, wanted, told)

    def alloc(
        self,
        nbytes: int,
        *,
        zeroed: bool = False,
        node: Optional[int] = None,
        strict: bool = False,
        packed: bool = False,
    ) -> Buffer:
        """Bytes in a row, on whole pages: no more than ``nbytes`` rounded up to 4096.

        Args:
            nbytes: 1 or more; far above 4 MiB, too.
            zeroed: Whether they are zero.
            node: Node to prefer; the running CPU's without.
            strict: Whether no other node will do.
            packed: At the lowest address that has room: for many buffers of odd sizes that live
                long, which would leave holes otherwise. Slower.

        Raises:
            OutOfMemoryError: No such run is free; names the zone and the watermark.
        """
        made = self.alloc_bytes(_bytes("nbytes", nbytes), zeroed, _node(node), strict, packed)
        return Buffer(made)

    def alloc_many(
        self,
        count: int,
        nbytes: int,
        *,
        zeroed: bool = False,
        node: Optional[int] = None,
        strict: bool = False,
        packed: bool = False,
    ) -> List[Buffer]:
        """``count`` buffers of ``nbytes`` each, or none. As :meth:`alloc`, and faster."""
        count, nbytes = _whole("count", count), _bytes("nbytes", nbytes)
        made = self.alloc_many_bytes(count, nbytes, zeroed, _node(node), strict, packed)
        return [Buffer(each) for each in made]

    def empty(
        self,
        shape: "Union[int, Sequence[int]]",
        dtype: "npt.DTypeLike" = "float64",
        *,
        node: Optional[int] = None,
    ) -> "np.ndarray[Any, Any]":
        """A NumPy array on pages of its own; what it holds is arbitrary. The pages go back when
        the array and its views are gone."""
        return self._array(shape, dtype, node, zeroed=False)

    def zeros(
        self,
        shape: "Union[int, Sequence[int]]",
        dtype: "npt.DTypeLike" = "float64",
        *,
        node: Optional[int] = None,
    ) -> "np.ndarray[Any, Any]":
        """The same, filled with zeros."""
        return self._array(shape, dtype, node, zeroed=True)

    def _array(
        self, shape: Any, dtype: Any, node: Optional[int], zeroed: bool
    ) -> "np.ndarray[Any, Any]":
        import numpy

        given = tuple(shape) if isinstance(shape, Iterable) else (shape,)
        lengths = tuple(_whole("shape", length) for length in given)
        nbytes = math.prod(lengths) * numpy.dtype(dtype).itemsize
        buffer = self.alloc(max(nbytes, 1), zeroed=zeroed, node=node)
        return buffer.numpy(lengths, dtype)

    def on_reclaim(
        self,
        name: str,
        count: Callable[[int], int],
        scan: Callable[[int, int], Optional[int]],
        *,
        object_bytes: int = 4096,
        node_aware: bool = False,
        seeks: int = 2,
    ) -> Registration:
        """Registers a cache that gives memory up when the pool is short of it.

        Args:
            name: Its name, in reports.
            count: ``count(node)``: objects that could be freed now. Called often.
            scan: ``scan(node, objects)``: looks at so many objects, frees what it can, and returns
                how many it freed; None if it can do nothing now.
            object_bytes: Bytes of the pool that an object takes.
            node_aware: Whether it knows which node an object is on; asked of node 0 without.
            seeks: How costly an object is to make again.

        Both are called by threads that allocate and by the pool's own, and may use the pool. What
        they raise counts as nothing freed, and is printed as an unraisable exception: the first
        time, the second, the fourth, the eighth and so on. Give buffers up by ``release()``: on a
        free-threaded interpreter a buffer that is only dropped goes back when the thread that made
        it runs again, and that may be waiting for this very memory.

        Returns:
            The registration. It ends by ``close()``, or when it is gone.

        Raises:
            PoolError: The interpreter is ending.
        """
        if not callable(count) or not callable(scan):
            raise TypeError("count and scan: expected two callables")
        object_bytes = _bytes("object_bytes", object_bytes)
        seeks = _whole("seeks", seeks, (1 << 32) - 1)
        with _registering:
            if _ending:
                raise PoolError(
                    f"on_reclaim: {name} would be called when the interpreter has ended; register "
                    "it before functions of atexit run"
                )
            made = self.register(name, count, scan, object_bytes, node_aware, seeks)
            _registered.add(made)
        return made

    def trim(self, bytes: int) -> int:
        """Gives free memory back to the system, up to so many bytes; returns how many."""
        return super().trim(_whole("bytes", bytes, _WORD_MAX))

    def node_of(self, address: int) -> Optional[int]:
        """Node of an address of the pool; None for any other."""
        return super().node_of(_whole("address", address, _WORD_MAX))

    def statistics(self) -> PoolStatistics:
        """Figures of the pool."""
        read: PoolStatistics = decoded(
            PoolStatistics, json.loads(self.statistics_json()), "statistics"
        )
        return read

    def __repr__(self) -> str:
        return f"<zonal.Pool of {self.nbytes} bytes, {self.free_pages} pages free, {self.mode}>"


#: The highest number of bytes, and the highest address.
_WORD_MAX = (1 << 64) - 1


def _whole(name: str, value: Any, most: int = (1 << 63) - 1, least: int = 0) -> int:
    """The number, also one of NumPy's."""
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        raise TypeError(f"{name}: {type(value).__name__}; expected a whole number")
    number = operator.index(value)
    if not least <= number <= most:
        raise ArgumentError(f"{name}: {number}; expected {least} to {most}")
    return number


def _prefault(wanted: Any) -> str:
    """The word by which the native module knows it."""
    if not isinstance(wanted, str) and wanted in (True, False):  # also one of NumPy's
        return "yes" if wanted else "no"
    if wanted != "parallel":
        raise ArgumentError(f"prefault: {wanted!r}; expected True, False or 'parallel'")
    return "parallel"


def _bytes(name: str, value: Any) -> int:
    return _whole(name, value, least=1)


def _node(node: Optional[int]) -> Optional[int]:
    return None if node is None else _whole("node", node, (1 << 16) - 1)
