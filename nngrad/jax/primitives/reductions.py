"""Reductions, cumulative operations, sorting and windowed reductions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from ... import functions as F
from ...extend import Variable, spec_of
from ...functions.traced import jaxpr_for
from ..values import known
from .elementwise import as_zero_or_one
from .movement import sliced
from .registry import JaxprEquation, controls, opens, require, require_floating


def _opens_reduction(name: str, function: Callable[..., Variable]) -> None:
    @opens(name)
    def rule(equation: JaxprEquation, x: Variable) -> Variable:
        axes = tuple([int(a) for a in equation.params["axes"]])
        return function(x, axis=axes) if axes else x


for _name, _function in {
    "reduce_sum": F.sum, "reduce_max": F.amax, "reduce_min": F.amin, "reduce_prod": F.prod,
}.items():  # fmt: skip
    _opens_reduction(_name, _function)


@opens("psum", "pmax", "pmin")
def _over_mapped_axes(equation: JaxprEquation, *xs: Variable) -> list[Variable]:
    """Collectives under `jax.vmap`, where the named axis is a numbered axis of each array."""
    axes = equation.params["axes"]
    require(all([isinstance(a, int | np.integer) for a in axes]), "it reduces a named axis")
    require(equation.params["axis_index_groups"] is None, "it reduces in groups")
    function: Callable[..., Variable] = {"psum": F.sum, "pmax": F.amax, "pmin": F.amin}[equation.name]
    return [function(x, axis=tuple([int(a) for a in axes])) for x in xs]


@opens("argmax", "argmin")
def _argmax(equation: JaxprEquation, x: Variable) -> Variable:
    (axis,) = equation.params["axes"]
    return (F.argmax if equation.name == "argmax" else F.argmin)(as_zero_or_one(x), axis=int(axis))


@opens("cumsum", "cumprod")
def _cumulative(equation: JaxprEquation, x: Variable) -> Variable:
    function = F.cumsum if equation.name == "cumsum" else F.cumprod
    return function(x, axis=int(equation.params["axis"]), reverse=bool(equation.params["reverse"]))


@opens("cumlogsumexp", "cummax", "cummin")
def _cumulative_by_pairs(equation: JaxprEquation, x: Variable) -> Variable:
    require_floating(equation)
    combine = {"cumlogsumexp": F.logaddexp, "cummax": F.maximum2, "cummin": F.minimum2}[equation.name]
    return F.associative_scan(combine, x, reverse=bool(equation.params["reverse"]), axis=int(equation.params["axis"]))


@opens("sort")
def _sort(equation: JaxprEquation, x: Variable, *others: Variable) -> list[Variable]:
    require(int(equation.params["num_keys"]) == 1, "it sorts by several keys")
    axis = int(equation.params["dimension"])
    order = F.argsort(x, axis=axis) if others else None
    return [F.sort_values(x, axis=axis), *[F.take_along_axis(y, order, axis=axis) for y in others]]


@opens("top_k")
def _top_k(equation: JaxprEquation, x: Variable) -> list[Variable]:
    k, axis = int(equation.params["k"]), int(equation.params.get("axis", -1)) % x.ndim
    order = F.argsort(x, axis=axis, reverse=True)
    chosen = sliced(order, [(0, k if a == axis else n, 1) for a, n in enumerate(x.shape)])
    return [F.take_along_axis(x, chosen, axis=axis), chosen]


# ---------------------------------------------------------------- windows


@controls("reduce_window")
def _reduce_window_by_function(opening: Any, equation: JaxprEquation, values: list[Any]) -> list[Any]:
    """By a function of the user's: its calls, element by element of the windows, which are opened in turn."""
    p = equation.params
    sizes, strides, apart = p["window_dimensions"], p["window_strides"], p["window_dilation"]
    require(math.prod(sizes) <= MOST_IN_WINDOWS, f"its windows have more than {MOST_IN_WINDOWS} elements")
    combine = jax.vmap(jaxpr_as_fun(ClosedJaxpr(p["jaxpr"], p["consts"])))
    shape, count = equation.shape, len(values) // 2
    config = [(low, high, n - 1) for (low, high), n in zip(p["padding"], p["base_dilation"], strict=True)]

    def windowed(*arrays: Any) -> Any:
        padded = [lax.pad(x, start, config) for x, start in zip(arrays[:count], arrays[count:], strict=True)]
        reduced = [lax.broadcast(start, (math.prod(shape),)) for start in arrays[count:]]
        for place in itertools.product(*map(range, sizes)):
            first = [i * d for i, d in zip(place, apart, strict=True)]
            last = [i + (n - 1) * s + 1 for i, n, s in zip(first, shape, strides, strict=True)]
            parts = [lax.reshape(lax.slice(x, first, last, strides), (math.prod(shape),)) for x in padded]
            reduced = combine(*reduced, *parts)
        return [lax.reshape(y, shape) for y in reduced]

    specs = [spec_of(tuple(v.shape), v.dtype) for v in equation.inputs]
    return list(opening.run_closed(jaxpr_for(windowed, specs), values))


MOST_IN_WINDOWS = 64
"""Up to how many elements windows are reduced one by one."""


@opens("reduce_window_max", "reduce_window_min", "reduce_window_sum")
def _reduce_window(equation: JaxprEquation, x: Variable) -> Variable:
    require_floating(equation)
    p = equation.params
    sizes, strides = list(map(int, p["window_dimensions"])), list(map(int, p["window_strides"]))
    pads = [(int(low), int(high)) for low, high in p["padding"]]
    base, apart = [[int(d) for d in p[k]] for k in ("base_dilation", "window_dilation")]
    negative = equation.name == "reduce_window_min"
    fill = 0.0 if equation.name == "reduce_window_sum" else -float("inf")
    if any([d != 1 for d in base]):
        x, pads = _spread(x, base, pads, -fill if negative else fill), [(0, 0)] * x.ndim
    moved = [a for a in range(x.ndim) if (sizes[a], strides[a], pads[a]) != (1, 1, (0, 0))]
    if not moved:
        return x
    require(len(moved) <= 3, "it has more than three axes of windows")
    others, channels = [a for a in range(x.ndim) if a not in moved], x.ndim - 1 not in moved
    last = (*others[: len(others) - channels], *moved, *others[len(others) - channels :])
    y = F.transpose(x, axes=last) if last != tuple(range(x.ndim)) else x
    y = F.mul_scalar(y, val=-1.0) if negative else y
    if any([pads[a] != (0, 0) for a in moved]):
        y = F.pad(y, pad_width=tuple([w for a in last for w in pads[a]]), constant_value=fill)
    pooling = F.sum_pooling if equation.name == "reduce_window_sum" else F.max_pooling
    kernel, stride, dilation = (tuple([of[a] for a in moved]) for of in (sizes, strides, apart))
    y = pooling(y, kernel=kernel, stride=stride, dilation=dilation, channel_last=channels)
    y = F.mul_scalar(y, val=-1.0) if negative else y
    back = tuple([last.index(a) for a in range(x.ndim)])
    return F.transpose(y, axes=back) if back != tuple(range(x.ndim)) else y


def _spread(x: Variable, steps: list[int], pads: list[tuple[int, int]], fill: float) -> Variable:
    """`x` with its elements `steps` apart and padded, with `fill` between and around them."""
    require(all([low >= 0 and high >= 0 for low, high in pads]), "it has spread elements and negative padding")
    wide = tuple([(n - 1) * d + 1 + low + high for n, d, (low, high) in zip(x.shape, steps, pads, strict=True)])
    key = tuple([(low, n, d) for n, d, (low, _) in zip(x.shape, steps, pads, strict=True)])
    filled = np.full(wide, fill, x.dtype)
    filled[tuple([slice(start, start + (n - 1) * d + 1, d) for start, n, d in key])] = 0
    y = F.put_slices(x, key=key, shape=wide)
    return F.where(known(filled == 0).variable(), y, known(filled).variable()) if fill else y

