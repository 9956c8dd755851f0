"""Pages as tensors of other libraries: they share them, see their shape and type, and keep them."""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from typing import Any, Callable, List, NamedTuple, Tuple

import pytest

import zonal

Together = Callable[[int, Callable[[int], object]], List[object]]

np = pytest.importorskip("numpy")

MIB = 1 << 20
SHAPES = [[7], [3, 5, 7], [1, 1, 1], [4, 256], [2, 0, 3], [0], [], [13, 1, 2, 1, 3]]


class Reader(NamedTuple):
    """A library that reads DLPack. What each function takes is its array."""

    take: Callable[[Any], Any]
    address: Callable[[Any], int]
    shape: Callable[[Any], Tuple[int, ...]]
    #: Bytes between neighbours; empty where the library does not tell.
    strides: Callable[[Any], Tuple[int, ...]]
    dtype: Callable[[Any], str]
    #: Elements as a list of lists.
    elements: Callable[[Any], Any]
    #: How the names of types begin that this release of it does not read.
    lacks: Tuple[str, ...] = ()


def numpy_reader() -> Reader:
    return Reader(
        np.from_dlpack,
        lambda array: int(array.ctypes.data),
        lambda array: tuple(array.shape),
        lambda array: tuple(array.strides),
        lambda array: str(array.dtype),
        lambda array: array.tolist(),
        ("bfloat", "float8"),
    )


def jax_reader() -> Reader:
    jax = pytest.importorskip("jax", reason="SKIPPED: JAX is missing")
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_x64", True)
    return Reader(
        jax.dlpack.from_dlpack,
        lambda array: int(array.unsafe_buffer_pointer()),
        lambda array: tuple(array.shape),
        lambda array: (),
        lambda array: str(array.dtype),
        lambda array: np.asarray(array).tolist(),
        ("float8",) if jax.__version_info__ < (0, 5) else (),
    )


def torch_reader() -> Reader:
    torch = pytest.importorskip("torch", reason="SKIPPED: PyTorch is missing")
    return Reader(
        torch.from_dlpack,
        lambda array: int(array.data_ptr()),
        lambda array: tuple(array.shape),
        lambda array: tuple(step * array.element_size() for step in array.stride()),
        lambda array: str(array.dtype).rpartition(".")[2],
        lambda array: array.tolist(),
    )


@pytest.fixture(params=[numpy_reader, jax_reader, torch_reader])
def reader(request: pytest.FixtureRequest) -> Reader:
    made: Reader = request.param()
    return made


@pytest.fixture
def pool() -> zonal.Pool:
    return zonal.Pool(64 * MIB)


def dropped(pool: zonal.Pool, free: int) -> bool:
    """Whether the pool gets its pages back: a library may free on a thread of its own."""
    for _ in range(200):
        gc.collect()
        if pool.free_pages == free:
            return True
        threading.Event().wait(0.02)
    return False


def resident_mib() -> float:
    """What this process has of memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / MIB


def steps(shape: List[int], size: int) -> Tuple[int, ...]:
    found = []
    for length in reversed(shape):
        found.append(size)
        size *= max(length, 1)
    return tuple(reversed(found))


def test_an_array_shares_the_pages_and_keeps_them(pool: zonal.Pool, reader: Reader) -> None:
    free = pool.free_pages
    buffer = pool.alloc(4096 * 3, zeroed=True)
    array = reader.take(buffer.tensor([3, 1024], "int32"))
    assert (reader.address(array), reader.shape(array)) == (buffer.address, (3, 1024))
    assert buffer.views == 1
    with pytest.raises(BufferError, match="1 views"):
        buffer.release()
    # JAX counts on arrays that nobody writes: it is asked only after the last write.
    buffer.numpy((3, 1024), "int32")[:] = np.arange(3 * 1024).reshape(3, 1024)
    assert reader.elements(array)[2][1023] == 3071
    del buffer
    gc.collect()
    assert pool.free_pages == free - 3
    pool.validate()
    del array
    assert dropped(pool, free)
    pool.validate()


def test_memory_of_arrays_that_are_gone_is_there_for_others(reader: Reader) -> None:
    pool = zonal.Pool(16 * MIB)
    free = pool.free_pages

    def fill() -> List[Any]:
        """Arrays until the pool has nothing left."""
        arrays = []
        while True:
            try:
                arrays.append(reader.take(pool.alloc(MIB).tensor([MIB], "uint8")))
            except zonal.OutOfMemoryError:
                return arrays

    held = fill()
    count = len(held)
    assert count >= 12 and not fill()
    for _ in range(3):
        held.clear()
        assert dropped(pool, free)
        held = fill()
        assert len(held) == count
    del held
    assert dropped(pool, free)
    pool.validate()


def test_an_array_outlives_its_pool_and_ends_on_any_thread(reader: Reader) -> None:
    before = resident_mib()
    for _ in range(20):
        # Each of its pages is there, so pools that stay would be seen.
        pool = zonal.Pool(32 * MIB, prefault=True)
        buffer = pool.alloc(70_000, zeroed=True)
        buffer.numpy()[69_999] = 7
        arrays = [reader.take(buffer)]
        assert reader.address(arrays[0]) == buffer.address
        del pool, buffer
        gc.collect()
        assert reader.elements(arrays[0])[69_999] == 7
        ends = threading.Thread(target=arrays.clear)
        ends.start()
        ends.join()
    for _ in range(200):
        gc.collect()
        if resident_mib() < before + 320:
            break
        threading.Event().wait(0.02)
    assert resident_mib() < before + 320, "20 pools of 32 MiB are gone"


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes_are_row_by_row_without_gaps(
    pool: zonal.Pool, reader: Reader, shape: List[int]
) -> None:
    free = pool.free_pages
    count = int(np.prod(shape, dtype=int))
    buffer = pool.alloc(max(8 * count, 1), zeroed=True)
    buffer.numpy((count,), "float64")[:] = np.arange(count)
    array = reader.take(buffer.tensor(shape, "float64"))
    assert reader.shape(array) == tuple(shape) and reader.dtype(array) == "float64"
    assert reader.elements(array) == np.arange(count, dtype="float64").reshape(shape).tolist()
    assert reader.address(array) == buffer.address or not count
    told = reader.strides(array)
    if told and count:
        longer = [at for at, length in enumerate(shape) if length > 1]
        assert [told[at] for at in longer] == [steps(shape, 8)[at] for at in longer]
    del buffer, array
    assert dropped(pool, free)


@pytest.mark.parametrize("dtype", [
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
    "float32", "float64", "bfloat16", "complex64", "complex128", "bool", "float8_e4m3fn",
    "float8_e5m2",
])  # fmt: skip
def test_types_are_those_that_were_asked_for(pool: zonal.Pool, reader: Reader, dtype: str) -> None:
    free = pool.free_pages
    buffer = pool.alloc(4096, zeroed=True)
    tensor = buffer.tensor([5, 3], dtype)
    assert tensor.nbytes % 15 == 0
    try:
        array = reader.take(tensor)
    except (BufferError, RuntimeError, TypeError, ValueError, NotImplementedError) as error:
        # Whoever refuses keeps nothing.
        assert dtype.startswith(reader.lacks), error
    else:
        assert reader.dtype(array) == dtype and reader.shape(array) == (5, 3)
        assert reader.address(array) == buffer.address
        del array
    del tensor, buffer
    assert dropped(pool, free)


def test_a_part_of_a_buffer_is_read_from_its_offset(pool: zonal.Pool, reader: Reader) -> None:
    free = pool.free_pages
    buffer = pool.alloc(4096, zeroed=True)
    buffer.numpy((1024,), "int32")[:] = np.arange(1024)
    for offset in (64, 4, 4096 - 8):
        # A reader that wants its own alignment may refuse or copy; what it reads is the same.
        try:
            array = reader.take(buffer.tensor([2], "int32", offset))
        except Exception as error:  # noqa: BLE001: each library has exceptions of its own
            assert "align" in str(error).lower() and offset % 64, error
            continue
        assert reader.elements(array) == [offset // 4, offset // 4 + 1]
        assert reader.address(array) == buffer.address + offset or offset % 64
        del array
    del buffer
    assert dropped(pool, free)


def test_arrays_of_many_threads_give_every_page_back(
    pool: zonal.Pool, reader: Reader, together: Together
) -> None:
    free = pool.free_pages

    def work(number: int) -> None:
        for turn in range(30):
            buffer = pool.alloc(4096 * (1 + turn % 3), zeroed=True)
            buffer.numpy()[turn] = 1 + number
            array = reader.take(buffer)
            assert reader.address(array) == buffer.address
            del buffer
            assert reader.elements(array)[turn] == 1 + number, turn
            del array

    together(4, work)
    assert dropped(pool, free)
    pool.validate()


@pytest.mark.parametrize("make", [numpy_reader, torch_reader])
def test_what_a_writable_reader_writes_is_in_the_buffer(
    pool: zonal.Pool, make: Callable[[], Reader]
) -> None:
    reader = make()
    if make is numpy_reader and np.lib.NumpyVersion(np.__version__) < "2.1.0":
        pytest.skip("SKIPPED: NumPy before 2.1 writes to no tensor of others")
    free = pool.free_pages
    buffer = pool.alloc(4096, zeroed=True)
    array = reader.take(buffer.tensor([4, 4], "int16"))
    assert reader.address(array) == buffer.address
    array[3, 3] = 515
    assert bytes(buffer.view()[30:32]) == b"\x03\x02"
    del array, buffer
    assert dropped(pool, free)


def test_a_capsule_that_nobody_takes_gives_the_pages_back(pool: zonal.Pool) -> None:
    free = pool.free_pages
    buffer = pool.alloc(4096)
    tensor = buffer.tensor([2, 2], "bfloat16")
    assert tensor.__dlpack_device__() == (1, 0) and (tensor.dtype, tensor.nbytes) == ("bfloat16", 8)
    for version in (None, (0, 8), (1, 0), (9, 9)):
        capsule = tensor.__dlpack__(max_version=version)
        assert buffer.views == 1
        del capsule
        assert buffer.views == 0
    with pytest.raises(BufferError):
        tensor.__dlpack__(stream=1)
    with pytest.raises(BufferError):
        tensor.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError):
        tensor.__dlpack__(copy=True)
    assert buffer.views == 0
    del buffer, tensor
    gc.collect()
    assert pool.free_pages == free
