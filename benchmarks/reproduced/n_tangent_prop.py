"""n-TangentProp: the nth derivative of a dense network by Faà di Bruno's formula, against nested differentiation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.polynomial import polynomial

import nngrad as nn

from ..experiment import Experiment, Point, Table
from ..harness import Step, Way, in_jax, in_torch
from ..models import Field, Parameters, jax_mlp, jet_last, mlp, nested_grad, nested_jvp, nngrad_mlp, tanh_parameters

OURS = "nngrad"
TORCH_NESTED, TORCH_BRUNO = "PyTorch, nested autograd", "PyTorch, n-TangentProp"
BRUNO, JET, JVP, GRAD = "JAX, n-TangentProp", "JAX, jet", "JAX, nested jvp", "JAX, nested grad"
LAST = {TORCH_NESTED: 4, JVP: 4, GRAD: 4}
"""The highest order of those whose cost grows exponentially."""


def partitions(n: int, largest: int | None = None) -> Iterator[dict[int, int]]:
    """The ways to write n as a sum of positive numbers: how often each occurs."""
    if n == 0:
        yield {}
    for part in range(min(n, largest or n), 0, -1):
        for rest in partitions(n - part, part):
            yield {**rest, part: rest.get(part, 0) + 1}


def tanh_polynomials(order: int) -> list[list[float]]:
    """The derivatives of tanh of the orders 0 to `order`, as polynomials p(t) in t = tanh.

    Each is (1 - t^2) dp/dt of the one before.
    """
    found = [np.array([0.0, 1.0])]
    for _ in range(order):
        found.append(polynomial.polymul([1, 0, -1], polynomial.polyder(found[-1])))
    return [p.tolist() for p in found]


def bruno(tanh: Callable[[Any], Any], p: list[Any], x: Any, one: Any, order: int) -> Any:
    """The derivative of `order` of the network, in the arrays that `tanh` takes; `one` is dx/dx."""
    found = [x, one]
    polynomials = tanh_polynomials(order)
    for w, b in zip(p[:-2:2], p[1:-2:2], strict=True):
        u = [y @ w for y in found]
        found = tanh_derivatives(polynomials, tanh(u[0] + b), u, order)
    return found[order] @ p[-2] + (0 if order else p[-1])


def tanh_derivatives(polynomials: list[list[float]], t: Any, u: list[Any], order: int) -> list[Any]:
    """tanh(u) and its derivatives by Faà di Bruno's formula, from t = tanh(u) and the derivatives that u has.

    The nth is the sum over the partitions of n, m_j parts of size j, of

        n! / prod_j (m_j! (j!)^m_j)  tanh^(m_1 + m_2 + ...)(u)  prod_j (u^(j))^m_j
    """
    outer = [horner(coefficients, t) for coefficients in polynomials]
    found = [t]
    for n in range(1, order + 1):
        terms = []
        for parts in partitions(n):
            if max(parts) < len(u):
                count = math.factorial(n)
                term = outer[sum(parts.values())]
                for j, m in parts.items():
                    count //= math.factorial(m) * math.factorial(j) ** m
                    term = term * u[j] ** m
                terms.append(float(count) * term)
        found.append(sum(terms[1:], terms[0]))
    return found


def horner(coefficients: list[float], t: Any) -> Any:
    """A polynomial at `t`."""
    *others, value = coefficients
    for c in reversed(others):
        value = value * t + c
    return value


# ---------------------------------------------------------------- the methods


def in_nngrad(p: Parameters, x: np.ndarray, order: int) -> Step:
    """`nn.nth_derivative`."""
    leaves = [nn.Variable.from_numpy_array(a) for a in (*p, x)]
    y = nn.nth_derivative(nngrad_mlp(leaves[:-1], leaves[-1]), leaves[-1], order)[-1]
    return in_jax(nn.to_jax(y, leaves), *p, x)


def of_jax(derive: Callable[[Field, int], Field], p: Parameters, x: np.ndarray, order: int) -> Step:
    """What makes the derivative of a function, in JAX."""
    return in_jax(lambda p, x: derive(lambda x: jax_mlp(p, x), order)(x), p, x)


def bruno_in_jax(p: Parameters, x: np.ndarray, order: int) -> Step:
    """The paper's method, compiled by JAX."""
    return in_jax(lambda p, x: bruno(jnp.tanh, p, x, jnp.ones_like(x), order), p, x)


def of_torch(nested: bool, p: Parameters, x: np.ndarray, order: int) -> Step:
    """Nested `torch.autograd.grad`, or the paper's method, in eager PyTorch."""
    import torch

    torch.set_num_threads(1)  # arrays are small: a second thread would be waited for
    weights, points = [torch.tensor(a) for a in p], torch.tensor(x, requires_grad=nested)

    def derivative() -> Any:
        if not nested:
            return bruno(torch.tanh, weights, points, torch.ones_like(points), order)
        y = mlp(torch.tanh, weights, points)
        for i in range(order):
            (y,) = torch.autograd.grad(y.sum(), points, create_graph=i < order - 1)
        return y

    return in_torch(derivative)


def ways(order: int, widths: tuple[int, ...], points: int) -> dict[str, Way]:
    """The methods at one order."""
    p = tanh_parameters(np.random.default_rng(0), *widths)
    x = np.linspace(-1, 1, points, dtype="f")[:, None]
    here: dict[str, Way] = {
        OURS: lambda: in_nngrad(p, x, order),
        TORCH_NESTED: lambda: of_torch(True, p, x, order),
        TORCH_BRUNO: lambda: of_torch(False, p, x, order),
        BRUNO: lambda: bruno_in_jax(p, x, order),
    }
    for name, derive in {JET: jet_last, JVP: nested_jvp, GRAD: nested_grad}.items():
        here[name] = lambda derive=derive: of_jax(derive, p, x, order)
    return {name: way for name, way in here.items() if order <= LAST.get(name, order)}


def tables(smoke: bool) -> Iterable[Table]:
    """Over the order."""
    widths, points, orders = ((1, 4, 4, 1), 3, (1, 2)) if smoke else ((1, 24, 24, 24, 1), 256, (1, 2, 4, 7, 10))
    yield Table("nth derivative", "order", [Point(n, ways(n, widths, points), 1e-2) for n in orders])


EXPERIMENT = Experiment("n-TangentProp: the nth derivative of a network", OURS, tables)
