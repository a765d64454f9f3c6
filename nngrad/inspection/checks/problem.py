"""The checked function and its gradients, as one executable of inputs and weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np

from ...extend import Function, Switched, Variable, arrays_of, contained, executables, grad, linearize

Array = np.ndarray[Any, Any]
Arrays = list[Array]


class CheckedFunction:
    """`func` at a point, with its gradients up to an order.

    With weights r0, r1, ... the quantities are s0 = <func(x), r0>, s1 = <ds0/dx, r1>, and so on, where the gradient of
    s_k is taken with respect to x and r0 ... r_(k-1). The point consists of x and all weights except the last.

    Args:
        func: The function of Variables.
        x_data: Its arguments.
        order: The highest order.
        given_weights: r0 and r1 if the user gives them.
        params: Leaves that it uses in addition to its arguments.
        no_grads: For each argument, whether to leave it out of the check.
        dtype: The dtype that floating arrays are cast to.
        seed: The seed of weights and directions.
    """

    @contained
    def __init__(
        self,
        func: Callable[..., Any],
        x_data: Sequence[Any],
        order: int,
        given_weights: Sequence[Sequence[Any] | None],
        params: Sequence[Variable],
        no_grads: Sequence[bool] | None,
        dtype: Any,
        seed: int,
    ) -> None:
        self.name = name_of_function(func)
        if dtype is not None and not jnp.issubdtype(dtype, jnp.floating):
            raise TypeError(f"dtype: expected a floating dtype or None, got {dtype!r}")
        self._seed = seed
        rng = np.random.default_rng(seed)
        arguments = [_leaf(x, dtype) for x in x_data]
        if no_grads is not None and len(no_grads) != len(arguments):
            raise ValueError(f"no_grads: expected one for each of {len(arguments)} arguments, got {len(no_grads)}")
        chosen = [x.spec.differentiable and not (no_grads and no_grads[i]) for i, x in enumerate(arguments)]
        self.moving = [x for x, checked in zip(arguments, chosen, strict=True) if checked]
        self.labels = [f"x[{i}]" for i, checked in enumerate(chosen) if checked]
        for i, x in enumerate(params):
            if not isinstance(x, Variable) or x.parent is not None or not x.spec.differentiable:
                raise TypeError(f"params[{i}]: expected a leaf of a floating dtype, got {x!r}")
            self.moving.append(x)
            self.labels.append(x.name or f"params[{i}]")
        if not self.moving:
            raise ValueError("x_data: expected at least one array of a floating dtype, to check its gradient")
        Switched(auto_forward=False).from_now_on()
        outputs = func(*arguments)
        level = list(outputs) if isinstance(outputs, tuple | list) else [outputs]
        for i, y in enumerate(level):
            if not isinstance(y, Variable):
                raise TypeError(f"{self.name}: output {i} must be a Variable, got {type(y).__name__}")
        level = [y for y in level if y.spec.differentiable]
        if not level:
            raise TypeError(f"func: {self.name} returns no result of a floating dtype, so there is nothing to check")
        self.levels = [level]
        self.moved: list[int] = []
        """For each order, the number of arrays of the point that its gradient is taken with respect to."""
        self.weights: list[Arrays] = []
        for k in range(order):
            weights = [Variable.from_numpy_array(w, dtype=w.dtype) for w in self._weights(k, level, given_weights, rng)]
            self.weights.append([w.d for w in weights])
            self.moved.append(len(self.moving))
            level = grad(level, self.moving, grad_outputs=weights)
            self.levels.append(level)
            if k < order - 1:
                self.moving.extend(weights)
                self.labels.extend([f"{'y_grad' if k == 0 else f'weight {k}'}[{i}]" for i in range(len(weights))])
        flat = [y for level in self.levels for y in level]
        linear = linearize(flat, first=self.moving, effects=False)
        self._run = executables.of(linear.program)
        self._rest = arrays_of(linear.leaves[len(self.moving) :])
        self.functions: list[Function] = linear.functions
        self.point: Arrays = [np.array(x.d) for x in self.moving]

    def _weights(
        self, k: int, level: list[Variable], weights_of_user: Sequence[Sequence[Any] | None], rng: np.random.Generator
    ) -> Arrays:
        """Random weights for the quantities of order `k`."""
        chosen = weights_of_user[k] if k < len(weights_of_user) else None
        name = ("y_grad", "x_grad_grad")[k] if k < 2 else ""
        weights = [weights_away_from_zero(rng, y.shape).astype(y.dtype) for y in level]
        if chosen is not None:
            count = len(level) if k == 0 else self.moved[0]
            if len(chosen) != count:
                raise ValueError(f"{name}: expected {count}, got {len(chosen)}")
            for i, w in enumerate(chosen):
                array = np.asarray(w.d if isinstance(w, Variable) else w)
                if array.shape != level[i].shape:
                    raise ValueError(f"{name}[{i}]: expected shape {level[i].shape}, got {array.shape}")
                weights[i] = array.astype(level[i].dtype)
        return weights

    @property
    def precision(self) -> float:
        """The largest machine epsilon among the floating dtypes in the graph."""
        specs = [s for f in self.functions for s in f.specs] + [x.spec for x in self.moving]
        return max([_resolution(s.dtype) for s in specs if s.differentiable])

    def direction(self, number: int) -> Arrays:
        """A random unit direction without tiny components."""
        rng = np.random.default_rng((self._seed, number, 1))
        parts = [weights_away_from_zero(rng, x.shape) for x in self.moving]
        length = np.sqrt(sum([float(np.sum(v * v)) for v in parts]))
        return [v / max(length, 1e-300) for v in parts]

    def at(self, direction: Arrays, step: float) -> list[Arrays]:
        """The quantities of all orders at a displacement from the point, in float64."""
        arrays = [(x + step * v).astype(x.dtype) for x, v in zip(self.point, direction, strict=True)]
        results = iter(self._run(*arrays, *self._rest))
        return [[np.asarray(next(results)).astype(np.float64) for _ in level] for level in self.levels]


def listed(data: Any) -> list[Any]:
    """One array or a tuple or list of arrays, as a list."""
    return list(data) if isinstance(data, tuple | list) else [data]


def name_of_function(func: Any) -> str:
    """The name of a function for a report."""
    return str(getattr(func, "__name__", None) or repr(func))


def weights_away_from_zero(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Random numbers of either sign with magnitudes from 0.5 to 1.5, so that no small weight hides an error."""
    result: Array = rng.uniform(0.5, 1.5, shape) * rng.choice([-1.0, 1.0], shape)
    return result


def _leaf(x: Any, dtype: Any) -> Variable:
    data = x.d if isinstance(x, Variable) else x
    leaf = Variable.from_numpy_array(data, dtype=getattr(data, "dtype", None))
    if dtype is not None and leaf.spec.differentiable:
        leaf = Variable.from_numpy_array(np.asarray(data).astype(dtype), dtype=dtype)
    leaf.need_grad = leaf.spec.differentiable
    return leaf


def _resolution(dtype: Any) -> float:
    return float(ml_dtypes.finfo(dtype).eps)
