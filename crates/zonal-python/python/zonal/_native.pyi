"""The native part. Use `zonal` instead: names here may change."""

import os
from typing import Callable, List, Optional, Sequence, Tuple, TypedDict, Union, final, type_check_only

from typing_extensions import Self, disjoint_base

__all__ = [
    "Batch",
    "Batches",
    "Buffer",
    "Events",
    "Lease",
    "Machine",
    "Made",
    "Pool",
    "RUN_US",
    "Recording",
    "Registration",
    "Rows",
    "Tensor",
    "WARM_US",
    "__version__",
    "advise",
    "conform",
    "from_parquet",
    "lab_compare",
    "lab_lists",
    "lab_once",
    "lab_run",
    "lab_sweep",
    "machine_from_json",
    "machine_host",
    "machine_load",
    "machine_named",
    "machine_names",
    "machine_sized",
    "machine_split",
    "policy_names",
    "policy_values",
    "replay",
    "rows_columns",
    "rows_join",
    "rows_make",
    "rows_version",
    "to_parquet",
]

__version__: str
WARM_US: int
RUN_US: int

_Path = Union[str, "os.PathLike[str]"]
_Told = Optional[Callable[[int, Optional[int]], object]]

@type_check_only
class Run(TypedDict):
    machine: str
    toml: Optional[str]
    policy: str
    workload: str
    busy: Optional[int]
    seed: int
    warm_us: int
    run_us: int
    set: List[Tuple[str, str]]

@disjoint_base
class Recording:
    def __new__(cls, path: Optional[_Path] = None, machine: Optional[_Path] = None) -> Self: ...
    def info_json(self) -> str: ...

@disjoint_base
class Events:
    def __new__(
        cls, recording: Recording, columns: Optional[List[str]], batch_rows: int, from_ns: int
    ) -> Self: ...
    def __arrow_c_stream__(self, requested_schema: Optional[object] = None) -> object: ...
    def __arrow_c_schema__(self) -> object: ...
    def __iter__(self) -> Batches: ...
    @property
    def column_names(self) -> List[str]: ...

@final
class Batches:
    def __iter__(self) -> Batches: ...
    def __next__(self) -> Batch: ...

@final
class Batch:
    def __arrow_c_array__(
        self, requested_schema: Optional[object] = None
    ) -> Tuple[object, object]: ...
    def __len__(self) -> int: ...
    @property
    def num_rows(self) -> int: ...

@disjoint_base
class Machine:
    def __new__(cls, toml: str) -> Self: ...
    def to_toml(self) -> str: ...
    def to_json(self) -> str: ...
    def figures_json(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def about(self) -> str: ...
    @property
    def cpus(self) -> int: ...
    @property
    def nodes(self) -> int: ...

def machine_named(name: str) -> str: ...
def machine_load(path: _Path) -> str: ...
def machine_from_json(text: str) -> str: ...
def machine_sized(toml: str, size: str) -> str: ...
def machine_split(name: str) -> Tuple[str, Optional[str]]: ...
def machine_host(quick: bool, progress: _Told = None) -> str: ...
def machine_names() -> List[str]: ...
def lab_once(run: Run, progress: _Told = None) -> str: ...
def lab_compare(run: Run, other: str, progress: _Told = None) -> str: ...
def lab_run(name: str, seed: int, cpus: List[int], progress: _Told = None) -> Tuple[str, str]: ...
def lab_sweep(
    run: Run,
    axes: List[Tuple[str, List[str]]],
    path: _Path,
    jobs: int,
    progress: _Told = None,
) -> Tuple[str, str]: ...
def lab_lists() -> str: ...
def to_parquet(
    recording: Recording, path: _Path, level: int, progress: _Told = None
) -> Tuple[int, int]: ...
def from_parquet(
    path: _Path, output: _Path, level: int, progress: _Told = None
) -> Tuple[int, int]: ...
def rows_version() -> str: ...
def rows_columns() -> List[Tuple[str, str]]: ...
def rows_make(text: str) -> List[str]: ...
def rows_join(paths: List[_Path]) -> List[List[str]]: ...

@final
class Rows:
    def __new__(
        cls,
        machine: str,
        toml: Optional[str],
        policy: str,
        workload: str,
        busy: Optional[int],
        warm_us: int,
        run_us: int,
        axes: List[Tuple[str, List[str]]],
        path: _Path,
    ) -> Rows: ...
    def __len__(self) -> int: ...
    def missing(self) -> List[int]: ...
    def text(self, at: int) -> str: ...
    def label(self, at: int) -> str: ...
    def add(self, at: int, fields: List[str]) -> None: ...
    def finish(self) -> List[List[str]]: ...

def policy_values(text: str, against: Optional[str] = None) -> str: ...
def policy_names() -> List[str]: ...

@type_check_only
class Asked(TypedDict):
    policy: str
    real: bool
    as_recorded: bool
    limit: Optional[int]
    explain: Optional[int]
    fidelity: bool
    told: List[str]

def replay(
    recording: Recording, asked: Asked, progress: _Told = None
) -> Tuple[str, Optional[str]]: ...
def advise(
    recording: Recording, only: List[str], limit: Optional[int], progress: _Told = None
) -> str: ...
def conform(captures: Sequence[_Path], live: bool, progress: _Told = None) -> str: ...

@type_check_only
class Wanted(TypedDict):
    size: int
    policy: str
    node: Optional[int]
    strict: bool
    huge_pages: str
    prefault: str
    budget: Optional[int]
    poison: bool

@final
class Made: ...
@final
class Lease: ...

@disjoint_base
class Buffer:
    def __new__(cls, made: Made) -> Self: ...
    def lease(self) -> Tuple[int, Lease]: ...
    def release(self) -> None: ...
    def tensor(self, shape: Sequence[int], dtype: str, offset: int = 0) -> Tensor: ...
    def __len__(self) -> int: ...
    @property
    def released(self) -> bool: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def capacity(self) -> int: ...
    @property
    def address(self) -> int: ...
    @property
    def views(self) -> int: ...

@final
class Tensor:
    def __dlpack__(
        self,
        *,
        stream: Optional[object] = None,
        max_version: Optional[Tuple[int, int]] = None,
        dl_device: Optional[Tuple[int, int]] = None,
        copy: Optional[bool] = None,
    ) -> object: ...
    def __dlpack_device__(self) -> Tuple[int, int]: ...
    @property
    def shape(self) -> List[int]: ...
    @property
    def dtype(self) -> str: ...
    @property
    def nbytes(self) -> int: ...

@final
class Registration:
    def close(self) -> None: ...

@disjoint_base
class Pool:
    def __new__(cls, wanted: Wanted, progress: _Told = None) -> Self: ...
    def alloc_bytes(
        self, bytes: int, zeroed: bool, node: Optional[int], strict: bool, packed: bool
    ) -> Made: ...
    def alloc_many_bytes(
        self,
        count: int,
        bytes: int,
        zeroed: bool,
        node: Optional[int],
        strict: bool,
        packed: bool,
    ) -> List[Made]: ...
    def register(
        self,
        name: str,
        count: Callable[[int], int],
        scan: Callable[[int, int], Optional[int]],
        object_bytes: int,
        node_aware: bool,
        seeks: int,
    ) -> Registration: ...
    def trim(self, bytes: int) -> int: ...
    def validate(self) -> None: ...
    def openmetrics(self) -> str: ...
    def statistics_json(self) -> str: ...
    def node_of(self, address: int) -> Optional[int]: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def free_pages(self) -> int: ...
    @property
    def nodes(self) -> int: ...
    @property
    def mode(self) -> str: ...
    @property
    def notices(self) -> List[str]: ...
