"""Sources of batches, and their positions."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any, Protocol

Position = dict[str, Any]
"""A position in the input, as JSON values."""


class BatchSource(Protocol):
    """Batches, and the position after each of them."""

    is_once: bool
    """Whether it is an iterator, which cannot be restarted."""

    def batches(self) -> Generator[tuple[Any, Position], None, None]:
        """The batches from the current position, each with the position after it."""

    def position(self) -> Position:
        """The position before the first batch."""

    def check(self, position: Position) -> None:
        """Raise a ValueError unless the source can go to a position."""

    def go_to(self, position: Position) -> None:
        """Let `batches` continue from a position."""


class Counted:
    """Batches of reproducible iterables; the position is the number of batches taken. `epoch` returns the iterable of
    an epoch, numbered from 0; `epochs` is None for an endless source."""

    def __init__(self, epoch: Callable[[int], Iterable[Any]], epochs: int | None, is_once: bool) -> None:
        self._epoch = epoch
        self._epochs = epochs
        self._start = (0, 0)
        self.is_once = is_once

    def position(self) -> Position:
        return {"epoch": self._start[0], "batches": self._start[1]}

    def check(self, position: Position) -> None:
        if position.keys() != {"epoch", "batches"}:
            raise ValueError(f"state: expected the keys 'batches' and 'epoch', got {sorted(position)}")

    def go_to(self, position: Position) -> None:
        self._start = position["epoch"], position["batches"]

    def batches(self) -> Generator[tuple[Any, Position], None, None]:
        epoch, taken = self._start
        while self._epochs is None or epoch < self._epochs:
            iterator: Any = iter(self._epoch(epoch))
            try:
                for number in range(taken):
                    try:
                        next(iterator)
                    except StopIteration:
                        raise ValueError(f"cannot resume after {taken} batches of epoch {epoch}: the input has only "
                                         f"{number}; it must be the same as before") from None
                number = taken
                for batch in iterator:
                    number += 1
                    yield batch, {"epoch": epoch, "batches": number}
            finally:
                if not self.is_once and hasattr(iterator, "close"):  # a generator, which releases its resources
                    iterator.close()
            if number == 0 and self._epochs is None:
                raise ValueError(f"the input has no batches in epoch {epoch}, and the number of epochs is unlimited")
            epoch, taken = epoch + 1, 0


class Positioned:
    """Batches of grain's loaders and data sets, whose iterators have `get_state` and `set_state`."""

    is_once = False

    def __init__(self, iterable: Iterable[Any]) -> None:
        self._iterable = iterable
        self._state: Any = None

    def position(self) -> Position:
        return {"grain": None if self._state is None else _as_text(self._state)}

    def check(self, position: Position) -> None:
        if position.keys() != {"grain"}:
            raise ValueError(f"state: expected the key 'grain', got {sorted(position)}")

    def go_to(self, position: Position) -> None:
        state = position["grain"]
        self._state = state["bytes"].encode() if isinstance(state, dict) and state.keys() == {"bytes"} else state

    def batches(self) -> Generator[tuple[Any, Position], None, None]:
        iterator: Any = iter(self._iterable)
        try:
            if self._state is not None:
                iterator.set_state(self._state)
            for batch in iterator:
                yield batch, {"grain": _as_text(iterator.get_state())}
        finally:
            if hasattr(iterator, "close"):
                iterator.close()


def _as_text(state: Any) -> Any:
    """A state of grain as a JSON value; a loader's state is text in bytes."""
    return {"bytes": state.decode()} if isinstance(state, bytes) else state


def is_of_grain(given: Any) -> bool:
    """Whether it is a loader or a data set of grain's."""
    return type(given).__module__.partition(".")[0] == "grain"


def source_of(given: Any, epochs: int | None, name: str = "source") -> BatchSource:
    """The argument of `nn.feed` as a source of batches; `name` is for errors.

    Raises:
        TypeError: `given` is not a source of batches.
        ValueError: The source does not support `epochs`.
    """
    if callable(given) and not hasattr(given, "__iter__"):
        return Counted(given, epochs, is_once=False)
    if not hasattr(given, "__iter__"):
        raise TypeError(f"{name}: expected an iterable, a function of the epoch, or a loader or data set of grain, "
                        f"got {type(given).__name__}")
    if is_of_grain(given):
        if epochs != 1:
            raise ValueError(f"epochs: must be 1 for grain, got {epochs}; use grain's own num_epochs or repeat()")
        if hasattr(given, "to_iter_dataset"):
            given = given.to_iter_dataset()
        return Positioned(given)
    is_once = hasattr(given, "__next__")
    if is_once and epochs != 1:
        raise ValueError(f"epochs: must be 1 for an iterator, which can be used only once, got {epochs}; pass an "
                         "iterable, or a function of the epoch that returns one")
    return Counted(lambda _: given, epochs, is_once)
