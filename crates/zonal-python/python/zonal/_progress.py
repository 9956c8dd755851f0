"""What callers may give as ``progress``, as one callable."""

from __future__ import annotations

from typing import Any, Callable, Optional, Protocol, Union

__all__ = ["Progress", "ProgressBar", "adapted"]


class ProgressBar(Protocol):
    """A bar such as ``tqdm()``: ``n`` is done, ``total`` is all, ``update`` adds to ``n``."""

    n: Any
    total: Any

    def update(self, n: Any = ..., /) -> Any:
        """Adds to what is done."""


Told = Callable[[int, Optional[int]], object]
Progress = Union[Told, ProgressBar, "type[Any]"]
"""``f(done, total)`` with total None where it is not known; a tqdm object; or ``tqdm`` itself."""


class _Bar:
    """Calls a bar with what was added."""

    def __init__(self, bar: Any, owned: bool) -> None:
        self.bar = bar
        self.owned = owned

    def __call__(self, done: int, total: Optional[int]) -> None:
        if total is not None and self.bar.total != total:
            self.bar.total = total
        if done >= self.bar.n:
            self.bar.update(done - self.bar.n)
        else:  # Another phase begins.
            self.bar.reset(total=total) if hasattr(self.bar, "reset") else None
            self.bar.update(done)

    def close(self) -> None:
        if self.owned:
            self.bar.close()


class adapted:
    """Context in which ``progress`` is a callable or None; closes a bar that it made."""

    def __init__(self, progress: Optional[Progress]) -> None:
        self._bar: Optional[_Bar] = None
        self._call: Optional[Told] = None
        if progress is None:
            return
        if isinstance(progress, type) and hasattr(progress, "update"):
            self._bar = _Bar(progress(), owned=True)
        elif hasattr(progress, "update") and hasattr(progress, "n"):
            self._bar = _Bar(progress, owned=False)
        elif callable(progress):
            self._call = progress
        else:
            raise TypeError(
                f"progress: {type(progress).__name__}; expected a callable of (done, total), "
                "a tqdm object, or tqdm"
            )

    def __enter__(self) -> Optional[Told]:
        return self._bar if self._bar is not None else self._call

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
