"""Policies: every choice of the allocator, as data."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Iterator, List, Mapping, Optional, Union

from . import _native
from ._errors import PolicyError
from ._paths import shown

__all__ = ["Policy", "PolicyLike", "Setting", "policies", "policy", "text_of"]


@dataclass(frozen=True)
class Setting:
    """One value of a policy."""

    key: str
    """Its name, such as ``pcp.scale_max``."""
    value: str
    """Its value, as text."""
    accepted: str
    """Values that it can have."""
    help: str
    """Its meaning."""


class Policy(Mapping[str, str]):
    """A policy with all its values; a mapping from key to value. It cannot be changed.

    ``str(policy)`` is its text, ``NAME+KEY=VALUE+...``, which every call takes as ``policy``.

    >>> import zonal
    >>> zonal.policy("linux-6.6")["pcp.scale_max"]
    '5'
    >>> str(zonal.policy("linux-6.6", {"pcp.scale_max": 3}))
    'linux-6.6+pcp.scale_max=3'
    """

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise TypeError(f"policy: {type(text).__name__}; expected a name, or a Policy")
        read = json.loads(_native.policy_values(shown(text)))
        self._text = text
        self._name: str = read["name"]
        self._settings = {value["key"]: Setting(**value) for value in read["values"]}

    @property
    def name(self) -> str:
        """Name of the preset that it began as."""
        return self._name

    @property
    def settings(self) -> List[Setting]:
        """Every value with its meaning and what it can be."""
        return list(self._settings.values())

    def set(self, values: Mapping[str, object]) -> "Policy":
        """The policy with other values: ``{"pcp.scale_max": 3}``.

        Raises:
            PolicyError: No such key, or a value that it cannot have.
        """
        if not isinstance(values, Mapping):
            raise TypeError(f"values: {type(values).__name__}; expected a mapping")
        return Policy(self._text + "".join(f"+{key}={_word(values[key])}" for key in values))

    def differences(self, other: "PolicyLike") -> List[Setting]:
        """The values that differ from those of another policy."""
        read = json.loads(_native.policy_values(self._text, text_of(other)))
        return [Setting(**value) for value in read["values"]]

    def __getitem__(self, key: str) -> str:
        return self._settings[key].value

    def __iter__(self) -> Iterator[str]:
        return iter(self._settings)

    def __len__(self) -> int:
        return len(self._settings)

    def __hash__(self) -> int:
        return hash(self._text)

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"zonal.policy({self._text!r})"

    def _repr_html_(self) -> str:
        from ._html import table

        rows = [[each.key, each.value, each.accepted, each.help] for each in self.settings]
        return table(f"policy {self._text}", ["key", "value", "accepted", "meaning"], rows)

    def __reduce__(self) -> "tuple[object, ...]":
        return (Policy, (self._text,))


PolicyLike = Union[str, Policy]


def _word(value: object) -> str:
    """A value as policies write it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    if "+" in text and "=" in text:
        raise PolicyError(f"policy: value {text!r} is several; give each by its key")
    return text


def policy(name: PolicyLike = "zonal", values: Optional[Mapping[str, object]] = None) -> Policy:
    """A policy by name, with other values.

    Args:
        name: One of :func:`policies`, or ``NAME+KEY=VALUE+...``.
        values: Keys and the values that they get.

    Raises:
        PolicyError: No such policy or key, or a value that it cannot have.
    """
    found = name if isinstance(name, Policy) else Policy(name)
    return found.set(values) if values is not None else found


def policies() -> List[str]:
    """Names of the policies that there are."""
    return _native.policy_names()


def text_of(policy: PolicyLike) -> str:
    """A policy's text. A wrong type is refused here, a wrong name where it is used."""
    if isinstance(policy, (str, Policy)):
        return shown(str(policy))
    raise TypeError(f"policy: {type(policy).__name__}; expected a name, or a Policy")
