"""Layers of equinox.nn, and Equinox's transformations."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import equinox.nn as nn
import jax
import jax.numpy as jnp
import numpy as np

from .agreement import Model, filled

RNG = np.random.default_rng(0)
ROW = RNG.standard_normal(4)
SEQUENCE = RNG.standard_normal((3, 4))
CHANNELS = {n: RNG.standard_normal((2, *(5, 4, 3)[:n])) for n in (1, 2, 3)}
KEY = jax.random.key(0)


def made(make: Callable[..., Any]) -> Any:
    """A module without the work of its initializers."""
    return filled(eqx.filter_eval_shape(make, KEY))


def of(make: Callable[..., Any], *inputs: Any, call: Callable[..., Any] | None = None) -> Model:
    """A module, made from a key, with its inputs: its floating arrays are moved, and all else is what it is.

    Args:
        make: Takes a key.
        inputs: Arrays.
        call: What is computed of the module and the inputs; by default it is called.
    """
    moving, rest = eqx.partition(made(make), eqx.is_inexact_array)

    def function(given: Any) -> Any:
        module = eqx.combine(given[0], rest)
        return module(*given[1]) if call is None else call(module, *given[1])

    return Model(function, (moving, inputs))


def with_state(make: Callable[..., Any], *inputs: Any, batched: bool = False) -> Model:
    """The same of a module with state, which is a result too."""
    module, state = eqx.filter_eval_shape(nn.make_with_state(make), KEY)
    positive = jax.tree.map(lambda a: np.abs(a) + 0.5 if eqx.is_inexact_array(a) else a, filled(state))  # variances
    moving, rest = eqx.partition((filled(module), positive), eqx.is_inexact_array)

    def function(given: Any) -> Any:
        module, state = eqx.combine(given[0], rest)
        if batched:
            module = jax.vmap(module, axis_name="batch", in_axes=(0, None), out_axes=(0, None))
        y, state = module(*given[1], state)
        return y, eqx.filter(state, eqx.is_inexact_array)

    return Model(function, (moving, inputs))


def pooled(layer: Any, **options: Any) -> Callable[[], Model]:
    dimensions = int(layer.__name__[-2])
    return lambda: of(lambda _: layer(**options), CHANNELS[dimensions], call=lambda pool, x: pool(x) ** 2)


def rows(module: Any, x: Any) -> Any:
    return eqx.filter_vmap(eqx.filter_jit(lambda m, r: m(r)), in_axes=(None, 0))(module, x)


def tied(key: Any) -> nn.Shared:
    layers = nn.Sequential([nn.Linear(4, 4, key=key), nn.Lambda(jnp.tanh), nn.Linear(4, 4, key=key)])
    return nn.Shared(layers, lambda s: s[2].weight, lambda s: s[0].weight)


MODELS: dict[str, Callable[[], Model]] = {
    "Linear": lambda: of(lambda key: nn.Linear(4, 3, key=key), ROW),
    "MLP": lambda: of(lambda key: nn.MLP(4, "scalar", 5, 2, jax.nn.gelu, jnp.tanh, key=key), ROW),
    "Identity": lambda: of(lambda _: nn.Identity(), ROW),
    "Embedding": lambda: of(lambda key: nn.Embedding(5, 3, key=key), call=lambda e: jax.vmap(e)(jnp.asarray([0, 2]))),
    "PReLU": lambda: of(lambda _: nn.PReLU(jnp.asarray(0.25)), ROW),
    "Sequential, Lambda and Dropout": lambda: of(
        lambda key: nn.Sequential([nn.Linear(4, 6, key=key), nn.Lambda(jax.nn.silu), nn.Dropout(0.4)]), ROW,
        call=lambda s, x: s(x, key=KEY)),
    "Shared": lambda: of(tied, ROW, call=lambda m, x: m()(x)),
    **{f"Conv{n}d": functools.partial(of, functools.partial(
        lambda layer, n, key: layer(2, 2, 2, stride=(2, 1, 1)[:n], padding=1, groups=2, key=key),
        getattr(nn, f"Conv{n}d"), n), CHANNELS[n]) for n in (1, 2, 3)},
    "Conv, circular": lambda: of(lambda key: nn.Conv(1, 2, 3, 3, padding="SAME", padding_mode="CIRCULAR", key=key),
                                 CHANNELS[1]),
    "Conv, reflected": lambda: of(lambda key: nn.Conv(1, 2, 3, 3, padding=1, padding_mode="REFLECT", key=key),
                                  CHANNELS[1]),
    **{f"ConvTranspose{n}d": functools.partial(of, functools.partial(
        lambda layer, key: layer(2, 3, 2, stride=2, output_padding=1, key=key), getattr(nn, f"ConvTranspose{n}d")),
        CHANNELS[n]) for n in (1, 2, 3)},
    **{layer.__name__: pooled(layer, kernel_size=3, stride=2, padding=1) for layer in (
        nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)},
    **{layer.__name__: pooled(layer, target_shape=2) for layer in (
        nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d, nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d,
        nn.AdaptiveMaxPool3d)},
    "LayerNorm": lambda: of(lambda _: nn.LayerNorm(4), ROW),
    "RMSNorm": lambda: of(lambda _: nn.RMSNorm(4), ROW),
    "GroupNorm": lambda: of(lambda _: nn.GroupNorm(2, 2), CHANNELS[1]),
    "WeightNorm": lambda: of(lambda key: nn.WeightNorm(nn.Linear(4, 3, key=key)), ROW),
    "SpectralNorm": lambda: with_state(lambda key: nn.SpectralNorm(nn.Linear(4, 3, key=key), "weight", key=key), ROW),
    "BatchNorm": lambda: with_state(lambda _: nn.BatchNorm(4, "batch", mode="batch"), SEQUENCE, batched=True),
    "BatchNorm, moving": lambda: with_state(lambda _: nn.BatchNorm(4, "batch", mode="ema"), SEQUENCE, batched=True),
    "BatchNorm, frozen": lambda: with_state(lambda _: nn.BatchNorm(4, "batch", mode="batch", inference=True), SEQUENCE,
                                            batched=True),
    "GRUCell": lambda: of(lambda key: nn.GRUCell(4, 4, key=key), ROW, SEQUENCE[0]),
    "LSTMCell": lambda: of(lambda key: nn.LSTMCell(4, 4, key=key), ROW, SEQUENCE[0], SEQUENCE[1],
                           call=lambda cell, x, h, c: cell(x, (h, c))),
    "MultiheadAttention": lambda: of(
        lambda key: nn.MultiheadAttention(2, 4, dropout_p=0.3, use_query_bias=True, key=key), SEQUENCE,
        call=lambda a, x: a(x, x, x, mask=jnp.tril(jnp.ones((3, 3), bool)), key=KEY)),
    "RotaryPositionalEmbedding": lambda: of(lambda _: nn.RotaryPositionalEmbedding(4), SEQUENCE,
                                            call=lambda r, x: r(x) ** 2),
    "filter_vmap of filter_jit": lambda: of(lambda key: nn.MLP(4, 2, 5, 1, key=key), SEQUENCE, call=rows),
    "filter_grad inside": lambda: of(
        lambda key: nn.MLP(4, "scalar", 5, 1, jnp.tanh, key=key), ROW,
        call=lambda m, x: eqx.filter(eqx.filter_grad(lambda m: m(x))(m), eqx.is_inexact_array)),
    "filter_checkpoint": lambda: of(lambda key: nn.MLP(4, 2, 5, 1, key=key), ROW,
                                    call=lambda m, x: eqx.filter_checkpoint(m)(x)),
    "a scan over layers": lambda: of(lambda key: eqx.filter_vmap(lambda k: nn.Linear(4, 4, key=k))(
        jax.random.split(key, 3)), ROW, call=lambda layers, x: jax.lax.scan(
            lambda h, layer: (jnp.tanh(layer(h)), None), x, layers)[0]),
}  # fmt: skip
