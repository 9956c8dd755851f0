"""What calls return: frozen dataclasses, made of the JSON that the libraries write."""

from __future__ import annotations

import dataclasses
import json
from functools import lru_cache
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Dict,
    List,
    Mapping,
    Optional,
    Sequence,
    Type,
    TypeVar,
    Union,
    get_type_hints,
)

from ._errors import Error
from ._html import framed, table
from ._paths import shown

if TYPE_CHECKING:
    import pandas
    import pyarrow

T = TypeVar("T", bound="Result")


class Result:
    """Base of what long calls return.

    Fields and their meanings are those of the program's ``--json``.
    """

    _json: str
    _page: Optional[str]
    row_type: ClassVar[type]

    @classmethod
    def from_json(cls: Type[T], text: str, page: Optional[str] = None) -> T:
        """The result with this JSON, as :meth:`to_json` gave it."""
        try:
            data = json.loads(text)
        except ValueError as error:
            raise Error(f"{cls.__name__}: no JSON: {error}") from None
        if not isinstance(data, dict):
            raise Error(f"{cls.__name__}: expected an object, found {type(data).__name__}")
        result: T = decoded(cls, data, cls.__name__)
        object.__setattr__(result, "_json", text)
        object.__setattr__(result, "_page", page)
        return result

    def to_json(self) -> str:
        """The same as JSON: what the program prints with ``--json``."""
        return self._json

    def to_dict(self) -> Dict[str, Any]:
        """The same as dictionaries and lists."""
        data: Dict[str, Any] = json.loads(self._json)
        return data

    def rows(self) -> Sequence[Any]:
        """The rows that :meth:`to_arrow` has."""
        raise NotImplementedError

    def to_arrow(self) -> "pyarrow.Table":
        """The rows as an Arrow table; nested fields are columns ``outer.inner``.

        Needs pyarrow.
        """
        return arrow_table(self.row_type, self.rows())

    def to_pandas(self) -> "pandas.DataFrame":
        """The rows as a data frame, through Arrow. Needs pyarrow and pandas."""
        return self.to_arrow().to_pandas()

    def html(self) -> str:
        """The page that the program writes for it.

        Raises:
            Error: There is no page for this kind of result.
        """
        if self._page is None:
            raise Error(f"{type(self).__name__} has no page; _repr_html_ gives its table")
        return self._page

    def _caption(self) -> str:
        return type(self).__name__

    def _repr_html_(self) -> str:
        if self._page is not None:
            return framed(self._page)
        columns = _columns(self.row_type)
        rows = [[_cell(row, path) for path, _ in columns] for row in self.rows()]
        return table(self._caption(), [".".join(path) for path, _ in columns], rows)

    def __reduce__(self) -> "tuple[object, ...]":
        return (_rebuilt, (type(self), self._json, self._page))


def _rebuilt(kind: Type[T], text: str, page: Optional[str]) -> T:
    return kind.from_json(text, page)


@lru_cache(maxsize=None)
def _hints(cls: type) -> Dict[str, Any]:
    return {
        name: hint
        for name, hint in get_type_hints(cls).items()
        if name in {field.name for field in dataclasses.fields(cls)}
    }


def _optional(hint: Any) -> Any:
    """The type in an Optional, or the type itself."""
    if getattr(hint, "__origin__", None) is Union and type(None) in hint.__args__:
        rest = [kind for kind in hint.__args__ if kind is not type(None)]
        return rest[0] if len(rest) == 1 else Union[tuple(rest)]
    return hint


def decoded(hint: Any, value: Any, place: str) -> Any:
    """A value of JSON as an object of this type."""
    if value is None:
        return None
    hint = _optional(hint)
    origin = getattr(hint, "__origin__", None)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        if not isinstance(value, dict):
            raise Error(f"{place}: expected an object, found {type(value).__name__}")
        given = {}
        for field in dataclasses.fields(hint):
            if field.name in value:
                kind = _hints(hint)[field.name]
                given[field.name] = decoded(kind, value[field.name], f"{place}.{field.name}")
            elif field.default is dataclasses.MISSING:
                raise Error(f"{place}: field {field.name!r} is missing; was another version used?")
        return hint(**given)
    if origin is list:
        return [decoded(hint.__args__[0], each, f"{place}[]") for each in value]
    if origin is dict:
        return {key: decoded(hint.__args__[1], each, place) for key, each in value.items()}
    return float(value) if hint is float else value


def _columns(row: Any, before: "tuple[str, ...]" = ()) -> "List[tuple[tuple[str, ...], Any]]":
    """Paths and types of the columns of a row."""
    columns: "List[tuple[tuple[str, ...], Any]]" = []
    for name, hint in _hints(row).items():
        kind = _optional(hint)
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            columns += _columns(kind, (*before, name))
        else:
            columns.append(((*before, name), kind))
    return columns


def _cell(row: Any, path: Sequence[str]) -> Any:
    for name in path:
        row = getattr(row, name, None)
    return row


def arrow_table(row: type, rows: Sequence[Any]) -> "pyarrow.Table":
    """Rows of dataclasses as a table: the schema does not depend on the rows."""
    arrow = pyarrow_module()
    plain = {int: arrow.int64(), float: arrow.float64(), str: arrow.string(), bool: arrow.bool_()}
    arrays, fields = [], []
    for path, kind in _columns(row):
        cells = [_cell(each, path) for each in rows]
        data_type = plain.get(kind)
        if data_type is None and getattr(kind, "__origin__", None) is list:
            data_type = arrow.list_(plain.get(_optional(kind.__args__[0]), arrow.string()))
        if data_type is None:  # A value that is one of several types is text.
            data_type = arrow.string()
            cells = [None if cell is None else json.dumps(cell) for cell in cells]
        arrays.append(arrow.array(cells, data_type))
        fields.append(arrow.field(".".join(path), data_type))
    return arrow.table(arrays, schema=arrow.schema(fields))


def pyarrow_module() -> Any:
    """pyarrow, or what to do where it is not."""
    try:
        import pyarrow
    except ImportError:
        raise ImportError("to_arrow needs pyarrow: pip install 'zonal[arrow]'") from None
    return pyarrow


def texts(values: Optional[Mapping[str, object]], what: str) -> "List[tuple[str, str]]":
    """Keys and values as pairs of text."""
    if values is None:
        return []
    if not isinstance(values, Mapping):
        raise TypeError(f"{what}: {type(values).__name__}; expected a mapping of keys to values")
    return [(shown(str(key)), text(value)) for key, value in values.items()]


def text(value: object) -> str:
    """A value as recipes write it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return shown(str(value))
