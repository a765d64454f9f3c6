"""The batches of `nn.fit`, and their position."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Any

from ..feeding import Feed
from ..feeding.sources import BatchSource, Position, source_of


class FitBatches:
    """Batches as `nn.fit` is given them, as arguments of a step. Nothing is read ahead of its use.

    Args:
        data: What `nn.fit` is given.
        epochs: How often it is gone through, as far as that is said.
        steps: How many batches are taken, as far as that is said.

    Raises:
        TypeError: `data` is nothing of that kind.
        ValueError: `epochs` and `steps` do not go with it.
    """

    def __init__(self, data: Any, epochs: int | None, steps: int | None) -> None:
        self.steps = _steps_of(data, epochs, steps)
        """How many there are in all; None where that is not known."""
        self._feed: Feed | None = None
        if data is None:
            if steps is None or epochs is not None:
                raise ValueError("steps: must be given where there is no data, and epochs must not")
            data = repeat(())
        if isinstance(data, Feed):
            if epochs is not None:
                raise ValueError(f"epochs: nn.feed(..., epochs={epochs}) says it for a feed")
            self._feed = data
            return
        if isinstance(data, tuple) or hasattr(data, "__array__"):
            raise TypeError(f"data: expected batches, in an iterable, got {type(data).__name__}; [(x, t)] is a single "
                            "batch for each step")
        once = 1 if steps is None or hasattr(data, "__next__") or _module_of(data) == "grain" else None
        if _counts_epochs(data) and (epochs is not None or steps is None):
            data, epochs = _until(data, epochs or 1), None
        self._source: BatchSource = source_of(data, once if epochs is None else epochs, "data")
        self._position = self._source.position()

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        if self._feed is not None:
            yield from map(_arguments, self._feed)
            return
        batches = self._source.batches()
        try:
            for batch, position in batches:
                self._position = position
                yield _arguments(batch)
        finally:
            batches.close()

    def get_state(self) -> Position:
        """The position after the last batch."""
        return self._position if self._feed is None else self._feed.get_state()

    def set_state(self, state: Position) -> None:
        """Go on from a position that `get_state` gave, of the same data."""
        if self._feed is not None:
            self._feed.set_state(state)
            return
        self._source.check(state)
        self._source.go_to(state)
        self._position = state


def _arguments(batch: Any) -> tuple[Any, ...]:
    return tuple(batch) if isinstance(batch, tuple | list) else (batch,)


def _module_of(data: Any) -> str:
    return type(data).__module__.partition(".")[0]


def _counts_epochs(data: Any) -> bool:
    """Whether it is an iterator of nnabla's, which has no end and knows its epoch."""
    return all([hasattr(data, name) for name in ("next", "epoch", "size", "batch_size")])


def _until(data: Any, epochs: int) -> Iterator[Any]:
    while data.epoch < epochs:
        yield data.next()


def _steps_of(data: Any, epochs: int | None, steps: int | None) -> int | None:
    """How many batches will be taken."""
    known = None
    if _counts_epochs(data):
        known = -(-(epochs or 1) * data.size // data.batch_size) if epochs is not None or steps is None else None
    elif hasattr(data, "__len__") and (epochs is not None or steps is None):
        known = len(data) * (epochs or 1)
    return min([n for n in (known, steps) if n is not None], default=None)
