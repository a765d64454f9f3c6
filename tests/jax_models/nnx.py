"""Layers of flax.nnx, by split and merge, and as pytrees of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from .agreement import Model, filled

RNG = np.random.default_rng(0)
ROWS = RNG.standard_normal((3, 4))
SEQUENCES = RNG.standard_normal((2, 3, 4))
IMAGES = RNG.standard_normal((2, 5, 6, 2))


def of(
    make: Callable[[nnx.Rngs], Any], *inputs: Any, call: Callable[..., Any] | None = None, computed: bool = False
) -> Model:
    """A module, with its parameters and statistics, and its inputs; what it changes is a result.

    Args:
        make: Takes the keys.
        inputs: Arrays.
        call: What is computed of the module and the inputs; by default it is called.
        computed: Whether its initializers are computed, since it keeps arrays beside its parameters.
    """
    module = make(nnx.Rngs(0)) if computed else nnx.eval_shape(lambda: make(nnx.Rngs(0)))
    definition, moving, rest = nnx.split(module, nnx.Any(nnx.Param, nnx.BatchStat), ...)
    rest = jax.tree.map(jnp.asarray, filled(rest))  # counts of draws are added to in place

    def function(given: Any) -> Any:
        module = nnx.merge(definition, given[0], rest, copy=True)
        y = module(*given[1]) if call is None else call(module, *given[1])
        return y, nnx.state(module, nnx.BatchStat)

    return Model(function, (filled(moving), inputs))


class Network(nnx.Module):
    """Layers with a name each, and what they share."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first = nnx.Linear(4, 5, rngs=rngs)
        self.norm = nnx.LayerNorm(5, rngs=rngs)
        self.drop = nnx.Dropout(0.3, rngs=rngs)
        self.last = nnx.Linear(5, 2, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.last(self.drop(nnx.gelu(self.norm(self.first(x)))))


def cell(make: Any) -> Callable[[], Model]:
    def of_cell() -> Model:
        def cell(rngs: nnx.Rngs) -> Any:
            return make(4, 4, dtype=float, param_dtype=float, rngs=rngs)

        described = jax.eval_shape(lambda: cell(nnx.Rngs(0)).initialize_carry((3, 4), nnx.Rngs(0)))
        return of(cell, jax.tree.map(lambda a: np.full(a.shape, 0.1), described), ROWS)

    return of_cell


MODELS: dict[str, Callable[[], Model]] = {
    "Linear": lambda: of(lambda rngs: nnx.Linear(4, 3, rngs=rngs), ROWS),
    "LinearGeneral": lambda: of(lambda rngs: nnx.LinearGeneral((3, 4), (2, 3), axis=(1, 2), rngs=rngs), SEQUENCES),
    "Einsum": lambda: of(lambda rngs: nnx.Einsum("nta,abc->ntbc", (4, 2, 3), (2, 3), rngs=rngs), SEQUENCES),
    "Embed": lambda: of(lambda rngs: nnx.Embed(4, 3, dtype=float, param_dtype=float, rngs=rngs),
                        call=lambda e: e(jnp.asarray([0, 2]))),
    "Conv": lambda: of(lambda rngs: nnx.Conv(2, 3, (3, 3), strides=2, rngs=rngs), IMAGES),
    "ConvTranspose": lambda: of(lambda rngs: nnx.ConvTranspose(2, 3, (3, 3), strides=(2, 2), rngs=rngs), IMAGES),
    "LoRALinear": lambda: of(lambda rngs: nnx.LoRALinear(4, 3, lora_rank=2, rngs=rngs), ROWS),
    "BatchNorm": lambda: of(lambda rngs: nnx.BatchNorm(4, rngs=rngs), ROWS),
    "LayerNorm": lambda: of(lambda rngs: nnx.LayerNorm(4, rngs=rngs), ROWS),
    "RMSNorm": lambda: of(lambda rngs: nnx.RMSNorm(4, rngs=rngs), ROWS),
    "GroupNorm": lambda: of(lambda rngs: nnx.GroupNorm(4, num_groups=2, rngs=rngs), SEQUENCES),
    "InstanceNorm": lambda: of(lambda rngs: nnx.InstanceNorm(2, rngs=rngs), IMAGES),
    "PReLU": lambda: of(lambda rngs: nnx.PReLU(), ROWS),
    "attention": lambda: of(lambda rngs: nnx.MultiHeadAttention(2, 4, decode=False, deterministic=False,
                                                            dropout_rate=0.2, rngs=rngs), SEQUENCES),
    **{make.__name__: cell(make) for make in (nnx.GRUCell, nnx.LSTMCell, nnx.OptimizedLSTMCell, nnx.SimpleCell)},
    "RNN": lambda: of(lambda rngs: nnx.RNN(nnx.SimpleCell(4, 3, dtype=float, param_dtype=float, rngs=rngs), rngs=rngs),
                      SEQUENCES),
    "a network with dropout": lambda: of(Network, ROWS),
    "a network as a pytree": lambda: Model(lambda given: given[0](given[1]),
                                           (filled(nnx.eval_shape(lambda: nnx.Linear(4, 3, rngs=nnx.Rngs(0)))), ROWS)),
    "nnx.vmap": lambda: of(lambda rngs: nnx.Linear(4, 4, rngs=rngs), ROWS,
                           call=lambda m, x: nnx.vmap(lambda m, r: m(r), in_axes=(None, 0))(m, x)),
    "nnx.remat": lambda: of(lambda rngs: nnx.Linear(4, 4, rngs=rngs), ROWS,
                            call=lambda m, x: nnx.remat(lambda m, x: jnp.tanh(m(x)))(m, x)),
    "nnx.grad inside": lambda: of(lambda rngs: nnx.Linear(4, 4, rngs=rngs), ROWS,
                                  call=lambda m, x: jax.tree.leaves(nnx.grad(lambda m: jnp.sum(m(x) ** 3))(m))),
}  # fmt: skip
if hasattr(nnx, "WeightNorm"):  # Flax has them from 0.12.1 on
    MODELS |= {
        "SpectralNorm": lambda: of(lambda rngs: nnx.SpectralNorm(nnx.Linear(4, 3, rngs=rngs), rngs=rngs), ROWS),
        "WeightNorm": lambda: of(lambda rngs: nnx.WeightNorm(nnx.Linear(4, 3, rngs=rngs), rngs=rngs), ROWS,
                                 computed=True),
    }  # fmt: skip
