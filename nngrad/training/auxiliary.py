"""Auxiliary results of a training step: Variables of the graph, and measures such as gradient norms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ..graph import Variable
from ..graph.messages import did_you_mean
from ..solvers.gradients import Arrays, norm_of

MEASURES = ("gradient_norm", "gradient_norms", "parameter_norm", "finite")
"""The measures that a step can return by name."""


class Auxiliary:
    """Auxiliary results in the user's structure: Variables and names of `MEASURES`.

    Raises:
        TypeError: `aux` contains anything else.
        ValueError: A name is unknown.
    """

    def __init__(self, aux: Any) -> None:
        paths, self._structure = jax.tree_util.tree_flatten_with_path(aux)
        self._given = [leaf for _, leaf in paths]
        for path, leaf in paths:
            name = f"aux{jax.tree_util.keystr(path)}"
            if isinstance(leaf, str):
                if leaf not in MEASURES:
                    known = ", ".join(map(repr, MEASURES))
                    raise ValueError(f"{name}: must be a Variable or one of {known}, got {leaf!r}"
                                     f"{did_you_mean(leaf, MEASURES)}")
            elif not isinstance(leaf, Variable):
                raise TypeError(f"{name}: expected a Variable or the name of a measure, got {type(leaf).__name__}")
        self.variables = [leaf for leaf in self._given if isinstance(leaf, Variable)]
        """The Variables, which the graph computes."""
        self.is_averaged = [x.shape == () and x.spec.differentiable for x in self.variables]
        """For each Variable, whether it is averaged over the parts of a batch; the others are stacked."""
        self.measures = frozenset([leaf for leaf in self._given if isinstance(leaf, str)])
        """The requested measures."""
        self.described = f"{self._structure}{[x if isinstance(x, str) else '' for x in self._given]}"
        """The structure and the names in it, as text."""
        self._given = [x if isinstance(x, str) else None for x in self._given]  # releases the graph

    def arranged(self, values: Sequence[Any], measured: dict[str, Any]) -> Any:
        """The results in the user's structure, from the graph's `values` and the `measured` values by name."""
        left = iter(values)
        return jax.tree.unflatten(self._structure, [next(left) if m is None else measured[m] for m in self._given])


def measures(wanted: frozenset[str], names: tuple[str, ...], params: Arrays, grads: Sequence[Any], finite: Any) -> Any:
    """The requested measures by name, from the parameters before the step and the gradients without the loss scale.
    `finite` is None if it was not requested."""
    found: dict[str, Callable[[], Any]] = {
        "gradient_norm": lambda: norm_of(grads),
        "gradient_norms": lambda: {name: norm_of([g]) for name, g in zip(names, grads, strict=True)},
        "parameter_norm": lambda: norm_of(params),
        "finite": lambda: jnp.asarray(finite),
    }
    return {name: found[name]() for name in MEASURES if name in wanted}
