"""Given gradients: at outputs, where a reverse pass starts, and at inputs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import nngrad.functions as F

from ..functions.array import in_dtype
from ..graph import NdArray, Variable, as_variable, contained
from ..graph.messages import warn_user
from ..graph.spec import DType, x64_if
from ..graph.variable import leaf_of
from ..rewrite.builder import emitting

_NUMBERS = int | float | np.integer | np.floating


def seeds_of(outputs: list[Variable], grad_outputs: Any) -> list[Variable | None]:
    """The gradient at each output, as a Variable, or None for ones."""
    grad_outputs = one_each(outputs, grad_outputs)
    return [seed_of(y, gy, f"grad_outputs[{i}]") for i, (y, gy) in enumerate(zip(outputs, grad_outputs, strict=True))]


def one_each(outputs: list[Variable], grad_outputs: Any) -> list[Any]:
    """One of `grad_outputs` for each output, unconverted."""
    if grad_outputs is None or isinstance(grad_outputs, _NUMBERS):
        grad_outputs = [grad_outputs] * len(outputs)
    elif not isinstance(grad_outputs, list | tuple):
        grad_outputs = [grad_outputs]
    if len(grad_outputs) != len(outputs):
        raise ValueError(
            f"grad_outputs: expected a list with one for each of the {len(outputs)} outputs, got {len(grad_outputs)}"
        )
    return list(grad_outputs)


def seed_of(y: Variable, gy: Any, name: str, role: str = "output") -> Variable | None:
    """The gradient `gy` at `y` as a Variable, or None."""
    if gy is None:
        return None
    if isinstance(gy, bool | str | bytes | dict):
        raise TypeError(f"{name}: expected None, a number, an array, an NdArray or a Variable, got {gy!r}")
    if isinstance(gy, _NUMBERS):
        try:
            seed: Variable = F.constant(val=float(gy), shape=y.shape, dtype=y.dtype)
        except OverflowError:
            raise ValueError(f"{name}: {gy!r:.80} is too large") from None
        return seed
    seed = leaf_of(gy) if isinstance(gy, NdArray) else as_variable(gy, name, floating=y.dtype)
    if seed.shape == () and seed.parent is None and not isinstance(gy, Variable):
        seed = F.broadcast(seed, shape=y.shape)
    if seed.shape != y.shape:
        raise ValueError(f"{name}: must have the shape of its {role}, {y.shape}, got {seed.shape}")
    return in_dtype(seed, y.dtype)


def initial_gradients(inputs: list[Variable], grad_inputs: Any) -> list[Variable | None]:
    """The initial gradient at each input, None for nothing; an empty list if none is given."""
    if grad_inputs is None:
        return []
    if not isinstance(grad_inputs, list | tuple):
        grad_inputs = [grad_inputs]
    if len(grad_inputs) != len(inputs):
        raise ValueError(
            f"grad_inputs: expected one for each of the {len(inputs)} inputs, None for zero, got {len(grad_inputs)}"
        )
    for i, (x, gx) in enumerate(zip(inputs, grad_inputs, strict=True)):
        if gx is not None and not x.spec.differentiable:
            raise TypeError(f"grad_inputs[{i}]: must be None, because its input is {x.dtype.name}, without gradient")
    return [
        seed_of(x, gx, f"grad_inputs[{i}]", "input") for i, (x, gx) in enumerate(zip(inputs, grad_inputs, strict=True))
    ]


def scaled_seeds(outputs: list[Variable], seeds: list[Variable | None], loss_scale: Any) -> list[Variable | None]:
    """The gradients at the outputs, each multiplied by `loss_scale`.

    A number becomes a leaf: as a number in the graph it would move to a place where it does not help the gradients, and
    each new value would be a new structure to compile.
    """
    if loss_scale is None:
        return seeds
    return [_scaled(y, seed, loss_scale) for y, seed in zip(outputs, seeds, strict=True)]


def _scaled(y: Variable, seed: Variable | None, loss_scale: Any) -> Variable:
    if isinstance(loss_scale, Variable):
        if loss_scale.shape != () or not loss_scale.spec.differentiable:
            raise ValueError(f"loss_scale: expected a number or a floating Variable of shape (), got {loss_scale.spec}")
        scale = in_dtype(loss_scale, y.dtype)
    else:
        scale = Variable.from_numpy_array(held_scale(loss_scale, y.dtype), dtype=y.dtype)
    result: Variable = F.broadcast(scale, shape=y.shape) if seed is None else seed * scale
    return result


def held_scale(loss_scale: Any, dtype: DType) -> Any:
    """`loss_scale` as an array of shape () in `dtype`, which must hold it. A JAX array, such as a solver's dynamic
    scale, is not checked, since that would wait for the device: the solver detects a scale that is too large."""
    if isinstance(loss_scale, jax.Array) and loss_scale.shape == () and jnp.issubdtype(loss_scale.dtype, jnp.floating):
        with x64_if(dtype.itemsize == 8):
            return loss_scale.astype(dtype)
    if isinstance(loss_scale, np.ndarray) and loss_scale.shape == ():
        loss_scale = loss_scale[()]
    if isinstance(loss_scale, bool) or not isinstance(loss_scale, _NUMBERS):
        raise TypeError(f"loss_scale: expected a number, got {loss_scale!r}")
    if not 0 < loss_scale < float("inf"):
        raise ValueError(f"loss_scale: must be positive and finite, got {loss_scale!r}")
    with np.errstate(over="ignore"):
        scale = np.asarray(loss_scale).astype(dtype)
    if not 0 < float(scale) < float("inf"):
        raise ValueError(f"loss_scale: {loss_scale:g} does not fit in {dtype.name}; compute the loss in float32")
    return scale


def seed_array(output: Variable, gy: Any, loss_scale: float | None, name: str) -> Any:
    """The gradient at `output` as an array, or None for ones."""
    if not output.spec.differentiable:
        raise TypeError(f"backward: the Variable is {output.dtype.name}; only floating dtypes can be differentiated")
    if gy is None and loss_scale is None:
        return None
    if gy is None or (isinstance(gy, _NUMBERS) and not isinstance(gy, bool)):
        seed: Any = np.full(output.shape, 1 if gy is None else gy, output.dtype)
    else:
        seed = _emitted_seed(output, gy, name).data.raw()
    if loss_scale is None:
        return seed
    with x64_if(output.spec.needs_x64):
        return seed * held_scale(loss_scale, output.dtype)


@contained
def _emitted_seed(output: Variable, gy: Any, name: str) -> Variable:
    with emitting([], 1):
        return seed_of(output, gy, name)  # type: ignore[return-value]


def given_gradient(output: Variable, grad: Any) -> Any:
    """The gradient given to `Variable.backward`: None for ones, or a cell with the content of `.grad`."""
    if grad is None:
        if output.grad.is_zero:
            warn_user("backward: grad=None starts from this Variable's .grad, which is not set; set it first")
        return output.grad
    is_one = isinstance(grad, int | float) and not isinstance(grad, bool) and grad == 1
    return None if is_one else grad
