"""Layers of flax.linen, all that take real arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from .agreement import Model, filled, floating, joined

RNG = np.random.default_rng(0)
ROWS = RNG.standard_normal((3, 4))
SEQUENCES = RNG.standard_normal((2, 3, 4))
IMAGES = RNG.standard_normal((2, 5, 6, 2))
INDICES = np.asarray([[0, 2, 1], [3, 0, 2]])
MASK = np.tril(np.ones((3, 3), bool))[None, None]


def of(module: nn.Module, *inputs: Any, **options: Any) -> Model:
    """A layer with its parameters and its inputs; state that it changes is a result."""
    keys = {name: jax.random.key(i) for i, name in enumerate(("params", "dropout"))}
    described = jax.eval_shape(functools.partial(module.init, **options), keys, *inputs)

    def function(given: Any) -> Any:
        variables, arrays = given
        own = joined(arrays, inputs)
        return module.apply(variables, *own, rngs={"dropout": keys["dropout"]}, mutable=["batch_stats"], **options)

    return Model(function, (filled(described), floating(inputs)))


class Residual(nn.Module):
    """A layer for transformations of layers."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        return x + nn.tanh(nn.Dense(4)(x))


class Carried(nn.Module):
    """The same with a carry, for nn.scan."""

    @nn.compact
    def __call__(self, x: Any, _: Any) -> Any:
        y = Residual()(x)
        return y, y.sum()


class Transformer(nn.Module):
    """Blocks of attention and a network of two layers, over embedded indices."""

    layers: int
    width: int = 8

    @nn.compact
    def __call__(self, indices: Any) -> Any:
        h = nn.Embed(5, self.width)(indices)
        h = h + self.param("positions", nn.initializers.normal(), (indices.shape[1], self.width))
        mask = nn.make_causal_mask(indices)
        for _ in range(self.layers):
            h = h + nn.MultiHeadDotProductAttention(2)(nn.LayerNorm()(h), mask=mask)
            h = h + nn.Dense(self.width)(nn.gelu(nn.Dense(2 * self.width)(nn.LayerNorm()(h))))
        return nn.Dense(5)(nn.LayerNorm()(h))


class Applied(nn.Module):
    """A layer for all leading axes at once."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        return nn.BatchApply(nn.Dense(3))(x)


def scanned() -> nn.Module:
    return nn.scan(Carried, variable_axes={"params": 0}, split_rngs={"params": True}, length=3)()


def many() -> nn.Module:
    return nn.vmap(Residual, variable_axes={"params": 0}, split_rngs={"params": True})()


def carried(make: Callable[..., Any], x: Any) -> Model:
    """A cell with its carry."""
    cell = make(param_dtype=jnp.float64)
    return of(cell, jax.tree.map(np.asarray, cell.initialize_carry(jax.random.key(0), x.shape)), x)


MODELS: dict[str, Callable[[], Model]] = {
    "Dense": lambda: of(nn.Dense(3), ROWS),
    "DenseGeneral": lambda: of(nn.DenseGeneral((2, 3), axis=(1, 2)), SEQUENCES),
    "Einsum": lambda: of(nn.Einsum((4, 2, 3), "...a,abc->...bc"), SEQUENCES),
    "Embed": lambda: of(nn.Embed(4, 3), INDICES),
    "Conv": lambda: of(nn.Conv(3, (3, 3), strides=2), IMAGES),
    "Conv with groups": lambda: of(nn.Conv(4, (3,), feature_group_count=2, kernel_dilation=2, padding="CIRCULAR"),
                                   SEQUENCES),
    "Conv, causal": lambda: of(nn.Conv(2, (2,), padding="CAUSAL", mask=np.ones((2, 4, 2))), SEQUENCES),
    "ConvTranspose": lambda: of(nn.ConvTranspose(3, (3, 3), strides=(2, 2)), IMAGES),
    "ConvTranspose, circular": lambda: of(nn.ConvTranspose(2, (3,), strides=(2,), padding="CIRCULAR",
                                                           transpose_kernel=True), SEQUENCES),
    "ConvLocal": lambda: of(nn.ConvLocal(2, (2, 3)), IMAGES),
    "BatchNorm": lambda: of(nn.BatchNorm(use_running_average=False), ROWS),
    "BatchNorm, frozen": lambda: of(nn.BatchNorm(use_running_average=True), ROWS),
    "LayerNorm": lambda: of(nn.LayerNorm(), ROWS),
    "RMSNorm": lambda: of(nn.RMSNorm(), ROWS),
    "GroupNorm": lambda: of(nn.GroupNorm(2), SEQUENCES),
    "InstanceNorm": lambda: of(nn.InstanceNorm(), IMAGES),
    "WeightNorm": lambda: of(nn.WeightNorm(nn.Dense(3)), ROWS),
    "SpectralNorm": lambda: of(nn.SpectralNorm(nn.Dense(3)), ROWS, update_stats=True),
    "Dropout": lambda: of(nn.Sequential([nn.Dense(4), nn.Dropout(0.4, deterministic=False), nn.tanh]), ROWS),
    "PReLU": lambda: of(nn.PReLU(), ROWS),
    "Sequential": lambda: of(nn.Sequential([nn.Dense(4), nn.relu, nn.Dense(2), nn.softmax]), ROWS),
    "BatchApply": lambda: of(Applied(), SEQUENCES),
    "attention": lambda: of(nn.MultiHeadDotProductAttention(2), SEQUENCES, SEQUENCES * 2, mask=MASK),
    "attention with dropout": lambda: of(nn.MultiHeadDotProductAttention(2, dropout_rate=0.3, deterministic=False,
                                                                         normalize_qk=True), SEQUENCES),
    "pooling": lambda: of(nn.Sequential([lambda x: nn.max_pool(x, (2, 2), (2, 1)), lambda x: nn.avg_pool(x, (2, 3)),
                                         lambda x: x**2 - nn.pool(x, 0.0, jax.lax.add, (1, 2), (1, 1), "SAME")]),
                          IMAGES),
    **{cell.__name__: functools.partial(carried, functools.partial(cell, 4), ROWS)
       for cell in (nn.GRUCell, nn.MGUCell, nn.SimpleCell, nn.LSTMCell, nn.OptimizedLSTMCell)},
    "ConvLSTMCell": lambda: carried(functools.partial(nn.ConvLSTMCell, 2, (3, 3)), IMAGES),
    "RNN": lambda: of(nn.RNN(nn.LSTMCell(3, param_dtype=float)), SEQUENCES, seq_lengths=np.asarray([2, 3])),
    "RNN, reversed": lambda: of(nn.RNN(nn.GRUCell(3, param_dtype=float), reverse=True, keep_order=True), SEQUENCES),
    "Bidirectional": lambda: of(nn.Bidirectional(nn.RNN(nn.SimpleCell(3, param_dtype=float)),
                                                 nn.RNN(nn.SimpleCell(2, param_dtype=float))), SEQUENCES),
    "nn.scan": lambda: of(scanned(), ROWS, None),
    "nn.remat": lambda: of(nn.remat(Residual)(), ROWS),
    "nn.vmap": lambda: of(many(), SEQUENCES),
    "a transformer": lambda: of(Transformer(1), INDICES),
}  # fmt: skip
