"""Platforms: where JAX runs what it is given, and functions that are computed in one way here and in another there.

JAX traces a function once, and may lower it for a platform that is not at hand, or for several at once. So nothing may
depend on the platform when a function is traced. What does is a primitive of its own, whose ways are traced when it is
lowered, each for the platform that it is for: `lax.platform_dependent` would trace all of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
from jax import lax
from jax.extend.core import ClosedJaxpr, Primitive, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir
from jax.interpreters.partial_eval import dce_jaxpr

from ..graph import Spec
from ..graph.by_jax import along, of_some

Way = Callable[..., tuple[Any, ...]]
"""Arrays in, arrays out."""

_Settings = tuple[bool, Any]
"""Those of JAX's settings on which depends how a function is traced: 64 bits, precision of products."""


def default_device() -> jax.Device:
    """Where JAX puts what is bound to no device."""
    given: Any = jax.config.jax_default_device  # type: ignore[attr-defined]
    if given is None or isinstance(given, str):
        return jax.devices(given)[0]
    device: jax.Device = given
    return device


class Ways:
    """A function that is computed in one way or another, by the platform that it is lowered for.

    Args:
        named: The way on each platform that has one of its own, by the name that JAX has for the platform.
        other: The way on all other platforms.
        takes: Shapes and dtypes of the arrays.
        gives: Shapes and dtypes of the results.
    """

    def __init__(self, named: Mapping[str, Way], other: Way, takes: Sequence[Spec], gives: Sequence[Spec]) -> None:
        self.named = dict(named)
        self.other = other
        self._takes = takes
        self._gives = gives
        self._needs_x64 = any([spec.needs_x64 for spec in (*takes, *gives)])

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        return tuple(_chosen.bind(*arrays, ways=self, settings=_settings_of_now()))

    def on(self, platform: str | None) -> Way:
        """The way on a platform; None for one that has none of its own."""
        return self.other if platform is None else self.named.get(platform, self.other)

    def expanded(self, *arrays: Any) -> tuple[Any, ...]:
        """The same in terms that JAX can transform, and for which it traces all ways."""
        results: tuple[Any, ...] = lax.platform_dependent(*arrays, **self.named, default=self.other)
        return results

    @functools.cached_property
    def jaxpr(self) -> ClosedJaxpr:
        """What is computed on other platforms."""
        return jax.make_jaxpr(self.other)(*[spec.abstract() for spec in self._takes])

    def results(self, avals: Sequence[Any]) -> list[Any]:
        """What the results are like for arrays that are like `avals`."""
        if all(map(_is_like, avals, self._takes)) and (_settings_of_now()[0] or not self._needs_x64):
            return [jax.core.ShapedArray(spec.shape, spec.dtype) for spec in self._gives]
        # They have 32 bits where the function has 64; or they are divided among devices, and so are the results.
        return list(jax.make_jaxpr(self.other)(*avals).out_avals)


def _is_like(aval: Any, spec: Spec) -> bool:
    """Whether `aval` says nothing of an array but shape and dtype, and these are as in `spec`."""
    return bool(aval.update(weak_type=False) == jax.core.ShapedArray(spec.shape, spec.dtype))


_chosen = Primitive("chosen_by_platform")
_chosen.multiple_results = True


def _run(*arrays: Any, ways: Ways, settings: _Settings) -> tuple[Any, ...]:
    places = [array.devices() for array in arrays if isinstance(array, jax.Array) and array.committed]
    device = next(iter(places[0])) if places else default_device()
    return ways.on(device.platform)(*arrays)


def _results(*avals: Any, ways: Ways, settings: _Settings) -> list[Any]:
    return ways.results(avals)


def _differentiated(primals: Sequence[Any], tangents: Sequence[Any], *, ways: Ways, settings: _Settings) -> Any:
    moving = [i for i, t in enumerate(tangents) if not isinstance(t, ad.Zero)]
    return along(ways.expanded, primals, moving, [tangents[i] for i in moving])


def _batched(arrays: Sequence[Any], axes: Sequence[Any], *, ways: Ways, settings: _Settings) -> Any:
    results = jax.vmap(ways.expanded, in_axes=tuple(axes))(*arrays)
    return results, [0] * len(results)


def _transposed(gradients: Sequence[Any], *arrays: Any, ways: Ways, settings: _Settings) -> list[Any]:
    linear = [i for i, array in enumerate(arrays) if ad.is_undefined_primal(array)]
    shapes = [jax.ShapeDtypeStruct(arrays[i].aval.shape, arrays[i].aval.dtype) for i in linear]
    transpose = jax.linear_transpose(of_some(ways.expanded, arrays, linear), *shapes)
    found = transpose(tuple(map(ad.instantiate_zeros, gradients)))
    results: list[Any] = [None] * len(arrays)
    for i, gradient in zip(linear, found, strict=True):
        results[i] = gradient
    return results


_chosen.def_impl(_run)
_chosen.def_abstract_eval(_results)
ad.primitive_jvps[_chosen] = _differentiated
ad.primitive_transposes[_chosen] = _transposed
batching.primitive_batchers[_chosen] = _batched


def _lowered(platform: str | None, context: Any, *operands: Any, ways: Ways, settings: _Settings) -> Any:
    x64, precision = settings
    with jax.enable_x64(x64), jax.default_matmul_precision(precision):  # a traced function may be lowered elsewhere
        return mlir.lower_fun(without_unread(ways.on(platform)))(context, *operands)


def without_unread(function: Way) -> Way:
    """The function without what nobody reads, such as stacks of values in loops. `jax.jit` leaves that out of what it
    traces, but not out of the lowering of a primitive, and XLA not out of loops within loops."""

    def run(*arrays: Any) -> tuple[Any, ...]:
        closed = jax.make_jaxpr(function)(*arrays)
        jaxpr, _ = dce_jaxpr(closed.jaxpr, [True] * len(closed.out_avals), instantiate=True)
        results: tuple[Any, ...] = tuple(jaxpr_as_fun(ClosedJaxpr(jaxpr, closed.consts))(*arrays))
        return results

    return run


def has_ways_on(platform: str) -> None:
    """Functions may be computed in a way of their own on a platform, by the name that JAX has for it."""
    mlir.register_lowering(_chosen, functools.partial(_lowered, platform), platform=platform)


mlir.register_lowering(_chosen, functools.partial(_lowered, None))


def _settings_of_now() -> _Settings:
    config: Any = jax.config
    return bool(config.jax_enable_x64), config.jax_default_matmul_precision


def placement_of(arrays: tuple[Any, ...]) -> tuple[Any, ...]:
    """What an executable is compiled for, besides shapes and dtypes, of which a program has but one each: settings of
    JAX's that users switch from call to call, and where arrays are."""
    config: Any = jax.config
    settings = config.jax_default_device, config.jax_default_matmul_precision, config.jax_enable_x64
    return *settings, *[_place_of(array) for array in jax.tree.leaves(arrays)]


def _place_of(array: Any) -> Any:
    if isinstance(array, jax.Array):
        return array.weak_type, array.sharding if array.committed else None
    return False, getattr(array, "sharding", None)
