"""A JAX user's model: its derivatives by nngrad.jax against JAX's own, and what became of its equations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import nngrad.jax as nj
from nngrad.jax.report import Opened
from tests.oracle import compiled_cheaply, is_floating


class Model(NamedTuple):
    """A function of a pytree of floating arrays: parameters and inputs, all of which are moved."""

    function: Callable[[Any], Any]
    tree: Any


def filled(tree: Any, seed: int = 0) -> Any:
    """Arrays for a pytree that describes some: random floating numbers, and such near 1 for variances and scales."""
    rng = np.random.default_rng(seed)

    def array(path: Any, described: Any) -> Any:
        if not hasattr(described, "shape"):
            return described
        if jnp.issubdtype(described.dtype, jax.dtypes.prng_key):
            return jax.random.key(0)
        if not is_floating(described):
            return np.zeros(described.shape, described.dtype)
        values = 0.4 * rng.standard_normal(described.shape)
        name = jax.tree_util.keystr(path)
        return 1 + 0.3 * np.tanh(values) if any(part in name for part in ("var", "sigma", "scale")) else values

    return jax.tree_util.tree_map_with_path(array, tree)


def floating(tree: Any) -> Any:
    """A pytree's floating arrays; None in the place of all else."""
    return jax.tree.map(lambda x: x if is_floating(np.asarray(x)) else None, tree)


def joined(moving: Any, tree: Any) -> Any:
    """`tree` with other floating arrays, in the form that `floating` gives them."""
    return jax.tree.map(lambda a, b: b if a is None else a, moving, tree, is_leaf=lambda x: x is None)


def number(model: Model) -> Callable[[Any], Any]:
    """All that a model returns as one number, in which nothing cancels."""

    def run(tree: Any) -> Any:
        leaves = [y for y in jax.tree.leaves(model.function(tree)) if is_floating(y)]
        return sum([jnp.sum(jnp.sin(y) + 0.1 * y) for y in leaves])

    return run


def along(run: Callable[[Any], Any], tree: Any) -> Callable[[Any], Any]:
    """A function of a tree as one of a number: the way along one direction, in which all leaves move."""
    rng = np.random.default_rng(1)
    direction = jax.tree.map(lambda a: rng.standard_normal(np.shape(a)), tree)
    return lambda t: run(jax.tree.map(lambda a, d: a + t * d, tree, direction))


MISCOMPILED = {"Conv, circular", "ConvTranspose1d"} if jax.__version_info__ < (0, 9) else set()
"""Models whose second derivatives come out wrong where JAX compiles them: differences, JAX op by op and newer versions
of JAX agree on others."""


def by_jax(models: Mapping[str, Model]) -> list[Any]:
    """For each model its value, its gradient, and the second and third derivative along a direction."""

    def derivatives(model: Model, tree: Any) -> Any:
        run = number(model)
        second = second_of(along(run, tree))
        return *jax.value_and_grad(run)(tree), *jax.jvp(second, (0.0,), (1.0,))

    compiled = {name: model for name, model in models.items() if name not in MISCOMPILED}
    found = compiled_cheaply(lambda trees: {name: derivatives(m, trees[name]) for name, m in compiled.items()})(
        {name: m.tree for name, m in compiled.items()}
    )
    return [found[name] if name in compiled else derivatives(m, m.tree) for name, m in models.items()]


def second_of(curve: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The second derivative of a function of one number, by JAX."""
    return lambda t: jax.jvp(lambda t: jax.jvp(curve, (t,), (1.0,))[1], (t,), (1.0,))[1]


def by_nngrad(models: Sequence[Model]) -> tuple[Any, list[Opened]]:
    """The same, and the reports of what was opened."""
    reports = []

    def derivatives(model: Model, tree: Any) -> Any:
        run = number(model)
        value_and_gradient = nj.value_and_grad(run)
        results = *value_and_gradient(tree), *nj.derivatives(along(run, tree), [(0, 0), (0, 0, 0)])(0.0)
        reports.append(value_and_gradient.report())
        return results

    results = compiled_cheaply(lambda trees: [derivatives(m, t) for m, t in zip(models, trees, strict=True)])(
        [m.tree for m in models]
    )
    return results, reports


def check(models: Mapping[str, Model]) -> dict[str, Opened]:
    """Compare all derivatives of some models, compiled together.

    Returns:
        What became of the equations of each.
    """
    with jax.enable_x64(True):
        ours, reports = by_nngrad(list(models.values()))
        theirs = by_jax(models)
    for name, a, b in zip(models, ours, theirs, strict=True):
        assert jax.tree.structure(a) == jax.tree.structure(b), name
        for i, (x, y) in enumerate(zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)):
            scale = float(np.max(np.abs(y), initial=0))
            np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-11 + 1e-10 * scale, err_msg=f"{name}, leaf {i}")
        assert abs(float(b[2])) > 1e-6 and abs(float(b[3])) > 1e-6, f"{name} is too flat to show anything"
    return dict(zip(models, reports, strict=True))
