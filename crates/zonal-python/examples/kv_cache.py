"""The pool of a KV cache on the host, as an inference server has one.

Tokens lie in blocks of 16. A sequence is a list of blocks; a fork shares them, and a block that is
shared is copied before it is written (copy-on-write). Blocks of finished sequences stay, so that a
prompt that begins alike finds them; when the pool is short of memory it asks for them back
(eviction by the pool's reclaim).

    python kv_cache.py              # shows it at work
    python kv_cache.py --measure    # beside numpy.empty and mmap; a table of Markdown
"""

from __future__ import annotations

import argparse
import ctypes
import mmap
import os
import random
import resource
import statistics
import time
from collections import OrderedDict
from contextlib import suppress
from functools import partial
from typing import Any, Callable, Dict, Hashable, List, Optional

import numpy as np

import zonal

Array = np.ndarray[Any, np.dtype[np.uint8]]

TOKENS = 16
"""Tokens of a block."""
BYTES_PER_TOKEN = 2 * 24 * 8 * 128 * 2
"""Key and value, 24 layers, 8 heads of 128 numbers of 2 bytes: 96 KiB."""
BLOCK_BYTES = TOKENS * BYTES_PER_TOKEN


class Block:
    """Keys and values of 16 tokens, shared by the sequences that begin alike."""

    __slots__ = ("buffer", "owners")

    def __init__(self, buffer: zonal.Buffer) -> None:
        self.buffer = buffer
        self.owners = 1


class KvCache:
    """Blocks of 16 tokens out of a pool."""

    def __init__(self, nbytes: int, block_bytes: int = BLOCK_BYTES, **options: object) -> None:
        self.block_bytes = block_bytes
        self.pool = zonal.Pool(nbytes, **options)  # type: ignore[arg-type]
        self.idle: "OrderedDict[Hashable, Block]" = OrderedDict()
        self.evicted = 0
        self.copied = 0
        self._registered = self.pool.on_reclaim(
            "idle blocks", lambda node: len(self.idle), self._evict, object_bytes=block_bytes
        )

    def _evict(self, node: int, objects: int) -> Optional[int]:
        """The pool is short of memory: blocks that no sequence has go, oldest first."""
        freed = 0
        while freed < objects and self.idle:
            block = self.idle.popitem(last=False)[1]
            # At once: without a GIL it would go when the thread that made it comes to that. If
            # somebody still reads it, it goes with the last view.
            with suppress(BufferError):
                block.buffer.release()
            freed += 1
        self.evicted += freed
        return freed

    def block(self) -> Block:
        """A block of its own. Raises zonal.OutOfMemoryError if all are in use."""
        return Block(self.pool.alloc(self.block_bytes, packed=True))

    def drop(self, block: Block, name: Hashable = None) -> None:
        """A sequence is done with a block: it stays under its name, if it has one."""
        block.owners -= 1
        if block.owners == 0:
            if name is None:
                block.buffer.release()
            else:
                self.idle[name] = block

    def find(self, name: Hashable) -> Optional[Block]:
        """The block of this prefix, if it is still there."""
        block = self.idle.pop(name, None)
        if block is not None:
            block.owners = 1
        return block


class Sequence:
    """The blocks of one sequence."""

    def __init__(
        self, cache: KvCache, blocks: Optional[List[Block]] = None, tokens: int = 0
    ) -> None:
        self.cache = cache
        self.blocks = blocks or []
        self.tokens = tokens

    def append(self, values: Array) -> None:
        """Keys and values of the next token."""
        at = self.tokens % TOKENS
        if at == 0:
            self.blocks.append(self.cache.block())
        last = self.blocks[-1]
        if last.owners > 1:
            own = self.cache.block()
            own.buffer.view()[:] = last.buffer.view()
            self.cache.drop(last)
            self.cache.copied += 1
            self.blocks[-1] = last = own
        rows = last.buffer.numpy((TOKENS, self.cache.block_bytes // TOKENS))
        rows[at, : len(values)] = values
        self.tokens += 1

    def fork(self) -> "Sequence":
        """A sequence that begins with the same tokens; nothing is copied yet."""
        for block in self.blocks:
            block.owners += 1
        return Sequence(self.cache, list(self.blocks), self.tokens)

    def token(self, at: int) -> Array:
        """Keys and values of a token."""
        block = self.blocks[at // TOKENS].buffer
        rows: Array = block.numpy((TOKENS, self.cache.block_bytes // TOKENS))[at % TOKENS]
        return rows

    def end(self, names: "Optional[Callable[[int], Hashable]]" = None) -> None:
        """The sequence is done."""
        for at, block in enumerate(self.blocks):
            self.cache.drop(block, names(at) if names else None)
        self.blocks = []


def show() -> None:
    """A prompt, two answers to it, and a crowd of others."""
    cache = KvCache(64 << 20, block_bytes=TOKENS * 4096)

    def mark(number: int) -> Array:
        return np.full(64, number, "uint8")

    prompt = Sequence(cache)
    for number in range(40):
        prompt.append(mark(number))
    one, other = prompt.fork(), prompt.fork()
    one.append(mark(100))
    other.append(mark(200))
    assert (one.token(40)[0], other.token(40)[0], one.token(39)[0]) == (100, 200, 39)
    print(f"three sequences of {one.tokens} tokens: {cache.copied} blocks were copied")
    for each in (prompt, one, other):
        each.end()
    for crowd in range(300):
        sequence = Sequence(cache)
        for number in range(96):
            sequence.append(mark(number))
        sequence.end(lambda at, crowd=crowd: (crowd, at))  # type: ignore[misc]
    assert cache.evicted > 0 and cache.find((299, 5)) is not None and cache.find((0, 0)) is None
    held = cache.pool.statistics().held
    print(f"{len(cache.idle)} blocks stay for the next prompt, {cache.evicted} were evicted")
    in_use = held.users_bytes + held.consumers_bytes
    print(f"{in_use >> 20} MiB of {cache.pool.nbytes >> 20} in use")


# Measurement: the same blocks from a pool, from numpy.empty and from mmap.


def _pool(
    nbytes: int, block: int, packed: bool = False, batch: int = 1
) -> "tuple[Callable[[], object], object]":
    room = nbytes // 16 + 8 * block + (4 << 20)  # For the reserve and the batches.
    pool = zonal.Pool(nbytes + room, prefault="parallel")
    ready: List[object] = []

    def one() -> object:
        return pool.alloc(block, packed=packed)

    def get() -> object:
        if not ready:
            ready.extend(pool.alloc_many(batch, block, packed=packed))
        return ready.pop()

    return (one if batch == 1 else get), pool


def _empty(nbytes: int, block: int) -> "tuple[Callable[[], object], object]":
    return (lambda: np.empty(block, "uint8")), None


def _mmap(nbytes: int, block: int) -> "tuple[Callable[[], object], object]":
    return (lambda: mmap.mmap(-1, block)), None


def _pinned_slots(nbytes: int, block: int) -> "tuple[Callable[[], object], object]":
    """One locked mapping, and a list of its slots of a power of two: what a cache of pinned
    memory does, such as that behind ``torch.empty(pin_memory=True)``, without a GPU."""
    rounded = 1 << (block - 1).bit_length()
    whole = mmap.mmap(-1, nbytes // block * rounded)
    view = memoryview(whole)
    start = ctypes.addressof(ctypes.c_char.from_buffer(whole))
    if ctypes.CDLL(None).mlock(ctypes.c_void_p(start), ctypes.c_size_t(len(whole))) != 0:
        raise SystemExit("mlock was refused; expected a larger limit of locked memory")
    free = list(range(0, len(whole), rounded))

    class Slot:
        __slots__ = ("at",)

        def __init__(self) -> None:
            self.at = free.pop()

        def view(self) -> memoryview:
            return view[self.at : self.at + block]

        def __del__(self) -> None:
            free.append(self.at)

    return Slot, whole


SUBJECTS: "Dict[str, Callable[[int, int], tuple[Callable[[], object], object]]]" = {
    "zonal.Pool.alloc": _pool,
    "zonal.Pool.alloc_many(8)": partial(_pool, batch=8),
    "zonal.Pool.alloc, packed": partial(_pool, packed=True),
    "numpy.empty": _empty,
    "mmap, one a block": _mmap,
    "mmap, mlock, slots of a power of two": _pinned_slots,
}


def _first_bytes(block: object, pages: "range") -> None:
    """Touches each page of a block, as its first user does."""
    known: Any = block
    view = memoryview(known) if type(known) in (np.ndarray, mmap.mmap) else known.view()
    view[pages.start : pages.stop : pages.step] = bytes(len(pages))


def _rss() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def _measured(name: str, nbytes: int, block: int, turns: int) -> str:
    """What :func:`measure_one` returns, as text."""
    before, wall, began = _rss(), time.perf_counter(), time.process_time()
    make, keep = SUBJECTS[name](nbytes, block)
    pages = range(0, block, 4096)
    held = [make() for _ in range(nbytes // block)]
    for at in range(len(held)):
        _first_bytes(held[at], pages)
    start_s, wall = time.process_time() - began, time.perf_counter() - wall
    over = (_rss() - before) / (len(held) * block)
    choice = random.Random(1)
    began = time.process_time()
    for _ in range(turns):
        at = choice.randrange(len(held))
        held[at] = None
        held[at] = make()
        _first_bytes(held[at], pages)
    rate = turns / (time.process_time() - began)
    del keep
    return f"{wall} {start_s} {over} {rate}"


def measure_one(name: str, nbytes: int, block: int, turns: int) -> "tuple[float, ...]":
    """Seconds to begin, by the clock and of CPU time, bytes in memory per byte asked for, and
    blocks a second of CPU time.

    In a child of its own: what one subject leaves is not in the next one's way. Not numbers where
    the subject refuses.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = _measured(name, nbytes, block, turns)
        except zonal.OutOfMemoryError:
            answer = "nan nan nan nan"
        os.write(writing, answer.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return tuple(map(float, text.split()))


def measure(nbytes: int, blocks: List[int], rounds: int, turns: int) -> None:
    """Prints a table: medians of rounds, subjects in random order in each."""
    choice = random.Random(1)
    for block in blocks:
        found: "Dict[str, List[tuple[float, ...]]]" = {name: [] for name in SUBJECTS}
        for _ in range(rounds):
            for name in choice.sample(list(SUBJECTS), len(SUBJECTS)):
                found[name].append(measure_one(name, nbytes, block, turns))
        print(f"\nblocks of {block >> 10} KiB, {nbytes >> 20} MiB of them, {rounds} rounds\n")
        print("| subject | start, ms | CPU ms | bytes in memory per byte | blocks per CPU second |")
        print("|--|--:|--:|--:|--:|")
        for name, figures in found.items():
            wall, start_s, over, rate = (statistics.median(column) for column in zip(*figures))
            if rate != rate:
                print(f"| {name} | refused: no such run is free | | | |")
            else:
                start = f"{wall * 1e3:.0f} | {start_s * 1e3:.0f}"
                print(f"| {name} | {start} | {over:.3f} | {rate:,.0f} |", flush=True)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description="A KV cache in a pool.")
    arguments.add_argument("--measure", action="store_true")
    arguments.add_argument("--mib", type=int, default=512)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--turns", type=int, default=2000)
    arguments.add_argument("--kib", type=int, nargs="+", default=[BLOCK_BYTES >> 10, 80, 20])
    given = arguments.parse_args()
    if given.measure:
        measure(given.mib << 20, [kib << 10 for kib in given.kib], given.rounds, given.turns)
    else:
        show()
