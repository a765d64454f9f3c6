"""Records of the gradients taken in a block, which itself has only their functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from .block import Block
    from .spec import Spec


class GradientTaken(NamedTuple):
    """A gradient of <seeds, outputs> with respect to each input, all by value numbers."""

    outputs: tuple[int, ...]
    inputs: tuple[int, ...]
    seeds: tuple[int | None, ...]
    results: tuple[int | None, ...]
    """None for those not in the block."""


class GradientsTaken(NamedTuple):
    """The gradients taken in a block."""

    block: Block
    """The block with additional steps, which compute a differentiated output of which only the gradient is used."""
    each: tuple[GradientTaken, ...]

    def with_inputs(self, inputs: tuple[Spec, ...], places: Sequence[int]) -> GradientsTaken:
        """The record for the block that `Block.with_inputs` returns."""
        def placed(taken: GradientTaken) -> GradientTaken:
            parts: list[Any] = [tuple([places[i] if i is not None and i >= 0 else i for i in part]) for part in taken]
            return GradientTaken(*parts)

        return GradientsTaken(self.block.with_inputs(inputs, places), tuple(map(placed, self.each)))
