"""Separable physics-informed networks: Helmholtz's equation in three dimensions, and vorticity in two and time."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import nngrad as nn
import nngrad.functions as F

from ..experiment import Experiment, Point, Table
from ..harness import in_jax
from ..models import Field, Parameters, along, jax_mlp, tanh_parameters, taylor

OURS, JVP, JET = "nngrad", "JAX, nested jvp", "JAX, jet of each axis by hand"
RANK, WIDTH = 32, 64
WAVES = (1, 2, 1)
VISCOSITY, WEIGHT = 0.01, 10.0


Axes = Sequence[Any]
Derivative = Callable[..., Any]
"""Of the name of a field and of axes: the field differentiated by these, on the grid."""


class Equation(NamedTuple):
    """An equation with a known solution."""

    title: str
    fields: str
    """The names of the fields that the network gives."""
    ends: tuple[tuple[float, float], ...]
    """Of each axis."""
    solution: Callable[..., list[Any]]
    """The fields at three coordinates."""
    sides: tuple[tuple[int, int], ...]
    """Where the fields are given: an axis, and how many of its ends."""
    residuals: Callable[[Derivative, Axes], list[Any]]
    """What is to be zero, of derivatives and of the three coordinates of the grid."""


def waves(x: Any, y: Any, z: Any) -> list[Any]:
    """The solution of Helmholtz's equation."""
    return [np.sin(WAVES[0] * np.pi * x) * np.sin(WAVES[1] * np.pi * y) * np.sin(WAVES[2] * np.pi * z)]


def vortices(t: Any, x: Any, y: Any) -> list[Any]:
    """Taylor and Green's vortices, which decay."""
    decay = np.exp(-2 * VISCOSITY * t)
    return [-np.cos(x) * np.sin(y) * decay, np.sin(x) * np.cos(y) * decay]


HELMHOLTZ = Equation(
    "Helmholtz", "u", ((-1.0, 1.0),) * 3, waves, ((0, 2), (1, 2), (2, 2)),
    lambda d, at: [
        d("u", 0, 0) + d("u", 1, 1) + d("u", 2, 2) + d("u") - (1 - np.pi**2 * sum(n**2 for n in WAVES)) * waves(*at)[0]
    ],
)  # fmt: skip
VORTICITY = Equation(
    "Navier-Stokes by vorticity", "uv", ((0.0, 1.0), (0.0, 2 * np.pi), (0.0, 2 * np.pi)), vortices,
    ((0, 1), (1, 2), (2, 2)),
    lambda d, at: [
        d("w", 0) + d("u") * d("w", 1) + d("v") * d("w", 2) - VISCOSITY * (d("w", 1, 1) + d("w", 2, 2)),
        d("u", 1) + d("v", 2),
    ],
)  # fmt: skip


def coordinates(axes: Axes) -> list[np.ndarray]:
    """The three coordinates of each place of a grid, to broadcast against each other."""
    return list(np.meshgrid(*axes, indexing="ij", sparse=True))


# ---------------------------------------------------------------- the network


def features(p: Parameters, axis: Any) -> Any:
    """What the network of an axis gives at its points, (points, fields, RANK)."""
    return jax_mlp(p, axis[:, None]).reshape(len(axis), -1, RANK)


def combined(a: Any, b: Any, c: Any) -> Any:
    """The sum over the rank of the products of the features of one field: the field on the grid."""
    return (a[:, None] * b).reshape(-1, RANK).dot(c.T).reshape(len(a), len(b), len(c))


def field(i: int, p: list[Parameters], *axes: Any) -> Any:
    """Field `i` on the grid of three axes."""
    return combined(*[features(part, axis)[:, i] for part, axis in zip(p, axes, strict=True)])


# ---------------------------------------------------------------- the methods


def jvp_derivative(equation: Equation, p: list[Parameters], axes: Axes) -> Derivative:
    """The paper's way: forward mode nested, with one tangent for all points of an axis."""

    def along_axis(f: Field, i: int) -> Field:
        return lambda *axes: along(lambda x: f(*axes[:i], x, *axes[i + 1 :]))(axes[i])

    fields = {name: functools.partial(field, i, p) for i, name in enumerate(equation.fields)}
    if "v" in fields:
        fields["w"] = lambda *axes: along_axis(fields["v"], 1)(*axes) - along_axis(fields["u"], 2)(*axes)
    return lambda name, *by: functools.reduce(along_axis, by, fields[name])(*axes)


def jet_derivative(equation: Equation, p: list[Parameters], axes: Axes) -> Derivative:
    """By hand: the derivatives of the network of each axis, once, by `jet`; fields are products of these."""
    found = [taylor(functools.partial(features, part), axis, 3) for part, axis in zip(p, axes, strict=True)]

    def derivative(name: str, *by: int) -> Any:
        if name == "w":
            return derivative("v", *by, 1) - derivative("u", *by, 2)
        i = equation.fields.index(name)
        return combined(*[[first, *others][by.count(k)][:, i] for k, (first, others) in enumerate(found)])

    return derivative


def nngrad_derivative(equation: Equation, p: list[Any], axes: Axes) -> Derivative:
    """nngrad: `nn.jvp` of what came before, with tangents of ones."""
    fields = {name: nn.from_jax(functools.partial(field, i))(p, *axes) for i, name in enumerate(equation.fields)}

    def derivative(name: str, *by: int) -> Any:
        if name == "w":
            return derivative("v", 1, *by) - derivative("u", 2, *by)
        return functools.reduce(lambda y, k: nn.jvp(y, axes[k], np.ones(axes[k].shape))[0], by, fields[name])

    return derivative


def loss_of(mean: Any, field: Callable[..., Any], d: Derivative, equation: Equation, axes: Axes) -> Any:
    """Mean squares of the residuals, and of what differs from the solution at the sides."""
    loss = sum(mean(r**2) for r in equation.residuals(d, coordinates(axes)))
    for axis, count in equation.sides:
        side = [np.float32(equation.ends[k][:count]) if k == axis else a for k, a in enumerate(axes)]
        for i, wanted in enumerate(equation.solution(*coordinates(side))):
            loss = loss + WEIGHT * mean((field(i, *side) - wanted) ** 2)
    return loss


def jax_loss(derivative: Callable[..., Derivative], equation: Equation, axes: Axes) -> Callable[..., Any]:
    """Loss and gradients of the networks' parameters, in JAX."""

    def loss(p: list[Parameters]) -> Any:
        d = derivative(equation, p, [jnp.asarray(a) for a in axes])
        return loss_of(jnp.mean, lambda i, *side: field(i, p, *side), d, equation, axes)

    return jax.value_and_grad(loss)


def nngrad_loss(equation: Equation, axes: Axes, parameters: list[Parameters]) -> Callable[..., Any]:
    """The same in nngrad."""
    p = jax.tree.map(nn.Variable.from_numpy_array, parameters)
    d = nngrad_derivative(equation, p, [nn.Variable.from_numpy_array(a) for a in axes])
    loss = loss_of(F.mean, lambda i, *side: nn.from_jax(functools.partial(field, i))(p, *side), d, equation, axes)
    leaves, structure = jax.tree.flatten(p)
    return nn.to_jax((loss, jax.tree.unflatten(structure, nn.grad(loss, leaves))), [p])


def methods_of(equation: Equation, points: int) -> tuple[list[Parameters], dict[str, Callable[[], Callable[..., Any]]]]:
    """First parameters, and what makes loss and gradients of each method."""
    rng = np.random.default_rng(0)
    p = [tanh_parameters(rng, 1, WIDTH, WIDTH, RANK * len(equation.fields)) for _ in range(3)]
    axes = [np.linspace(*ends, points, dtype="f") for ends in equation.ends]
    return p, {
        OURS: lambda: nngrad_loss(equation, axes, p),
        JVP: lambda: jax_loss(jvp_derivative, equation, axes),
        JET: lambda: jax_loss(jet_derivative, equation, axes),
    }


def tables(smoke: bool) -> Iterable[Table]:
    """Over the points of an axis."""
    for equation, sizes in [(HELMHOLTZ, (4,))] if smoke else [(HELMHOLTZ, (16, 32, 64)), (VORTICITY, (16, 32, 64))]:
        yield Table(equation.title, "points on each axis", [at(equation, n) for n in sizes])


def at(equation: Equation, points: int) -> Point:
    """Loss and gradients at one size."""
    p, methods = methods_of(equation, points)
    return Point(points, {name: lambda make=make: in_jax(make(), p) for name, make in methods.items()})


EXPERIMENT = Experiment("SPINN: separable physics-informed networks", OURS, tables)
