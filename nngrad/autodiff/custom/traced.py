"""What a forward of the user's was found to compute when it was applied: all that it is compared by from then on."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr

from ...functions.jaxpr_structure import array_value, is_opaque, structure_of
from ...graph import Spec, spec_of
from ...graph.jaxpr import does_much, jaxpr_for

Specs = tuple[Spec, ...]


class TracedForward:
    """A forward on JAX arrays as it was traced: two that compute the same are equal, whatever code they come from.

    The arrays that it reads beside its inputs are a part of it, as they were then.
    """

    __slots__ = ("__dict__", "_closed", "_hash", "_key", "outputs")

    outputs: Specs

    def __init__(self, closed: ClosedJaxpr) -> None:
        # As they are now: what JAX makes of a NumPy array may share its memory.
        consts = [c if is_opaque(c) else np.array(c) for c in closed.consts]
        self._closed = closed.replace(consts=consts)
        self.outputs = tuple([spec_of(tuple(aval.shape), aval.dtype) for aval in closed.out_avals])
        self._key = structure_of(closed.jaxpr, derivatives=False), tuple(map(array_value, consts))
        self._hash = hash(self._key)

    @functools.cached_property
    def heavy(self) -> bool:
        """Whether it does much arithmetic for each element."""
        return does_much(self._closed.jaxpr)

    def __call__(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(jax.core.eval_jaxpr(self._closed.jaxpr, self._closed.consts, *arrays))

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, TracedForward) and self._hash == other._hash and self._key == other._key
        )

    def __hash__(self) -> int:
        return self._hash


def traced(function: Callable[..., tuple[Any, ...]], inputs: Specs) -> TracedForward:
    """`function` of JAX arrays, traced for inputs of these shapes and dtypes."""
    return TracedForward(jaxpr_for(function, inputs))
