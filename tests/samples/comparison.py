"""Samples of comparisons and logic."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from . import Sample, fixed, integers, sample


def in_float(f: Callable[..., Any]) -> Callable[..., Any]:
    """`f` with its booleans as numbers of the inputs' floating dtype."""

    def numbers(*xs: Any) -> Any:
        dtype = jnp.result_type(*xs)
        return f(*xs).astype(dtype if jnp.issubdtype(dtype, jnp.floating) else np.float32)

    return numbers


def comparison(name: str, f: Callable[..., Any]) -> list[Sample]:
    """Two arrays with ties, where differences mean nothing, broadcast ones, integers, an array and a number."""
    ones, halves = in_float(lambda x: f(x, 1.0)), in_float(lambda x: f(x, 0.5))
    floats = {"orders": 1, "numeric": False}
    return [
        sample(name, fixed(-1.0, 0.0, 2.0), fixed(1.0, 0.0, -2.0), ref=in_float(f), **floats),
        sample(name, fixed([-1.0], [2.0]), fixed(-1.0, 0.0, 2.0), ref=in_float(f), note="broadcast", **floats),
        sample(name, integers(0, 3, 6), integers(0, 3, 6), ref=in_float(f), orders=0, note="int"),
        sample(f"{name}_scalar", fixed(-1.0, 0.5, 2.0), val=0.5, ref=halves, **floats),
        sample(f"{name}_scalar", fixed(-1.0, 1.0, 2.0), ref=ones, note="default", **floats),
        sample(f"{name}_scalar", integers(0, 3, 6), val=0.5, ref=halves, orders=0, note="int"),
    ]


def connective(name: str, f: Callable[..., Any]) -> list[Sample]:
    """Two arrays of truths, broadcast ones, integers, an array and a truth."""
    return [
        sample(name, fixed(0.0, 0.0, 2.0, -1.0), fixed(0.0, 3.0, 0.0, 0.5), ref=in_float(f), orders=1),
        sample(name, fixed([0.0], [2.0]), fixed(0.0, 1.0), ref=in_float(f), orders=1, note="broadcast"),
        sample(name, integers(0, 2, 6), integers(0, 3, 6), ref=in_float(f), orders=0, note="int"),
        sample(f"{name}_scalar", fixed(0.0, 2.0), val=True, ref=in_float(lambda x: f(x, True)), orders=1),
        sample(f"{name}_scalar", fixed(0.0, 2.0), val=False, ref=in_float(lambda x: f(x, False)), orders=1),
    ]


SAMPLES = [
    *comparison("equal", jnp.equal),
    *comparison("not_equal", jnp.not_equal),
    *comparison("less", jnp.less),
    *comparison("less_equal", jnp.less_equal),
    *comparison("greater", jnp.greater),
    *comparison("greater_equal", jnp.greater_equal),
    *connective("logical_and", jnp.logical_and),
    *connective("logical_or", jnp.logical_or),
    *connective("logical_xor", jnp.logical_xor),
    sample("logical_not", fixed(0.0, 2.0, -1.0), ref=in_float(jnp.logical_not), orders=1),
    sample("logical_not", integers(0, 2, 6), ref=in_float(jnp.logical_not), orders=0, note="int"),
]
