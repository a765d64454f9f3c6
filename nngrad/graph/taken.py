"""The gradients that were taken in a block, of which it has the functions alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from .block import Block
    from .spec import Spec


class GradientTaken(NamedTuple):
    """A gradient of <seeds, outputs> with respect to each of the inputs, by numbers."""

    outputs: tuple[int, ...]
    inputs: tuple[int, ...]
    seeds: tuple[int | None, ...]
    results: tuple[int | None, ...]
    """None for those that have no part in the block."""


class GradientsTaken(NamedTuple):
    """The gradients that were taken in a block."""

    block: Block
    """The block with further steps, which compute what was differentiated where only its gradient is used."""
    each: tuple[GradientTaken, ...]

    def with_inputs(self, inputs: tuple[Spec, ...], places: Sequence[int]) -> GradientsTaken:
        """What `Block.with_inputs` makes of it."""
        def placed(taken: GradientTaken) -> GradientTaken:
            parts: list[Any] = [tuple([places[i] if i is not None and i >= 0 else i for i in part]) for part in taken]
            return GradientTaken(*parts)

        return GradientsTaken(self.block.with_inputs(inputs, places), tuple(map(placed, self.each)))
