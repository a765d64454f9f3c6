"""Jacobian-vector, vector-Jacobian and Hessian-vector products."""

from __future__ import annotations

from typing import Any

from ..autodiff.grad import grad
from ..autodiff.request import differentiable
from ..graph import Variable
from .parts import Variables, built, hessian_times, pushed, vectors_for


def jvp(outputs: Variables, inputs: Variables, tangents: Any) -> list[Variable]:
    """Jacobian-vector product: the derivative of each output as the inputs move along tangents (forward mode).

        outputs[i]' = sum_j d outputs[i] / d inputs[j] . tangents[j]

    Args:
        outputs: Variable or Variables to differentiate.
        inputs: Variables that move; leaves, or Variables in the middle of the graph. An input that depends on another
            moves along its own tangent and with the other: the derivatives are those that `grad` gives.
        tangents: The direction: for each input a Variable, an array, an NdArray or a number, of the input's shape. A
            Variable may be a leaf that is written to later, or depend on the inputs; gradients flow into it.

    Returns:
        One Variable per output, of its shape and dtype; zeros if no input moves it.

    Raises:
        TypeError: Something is not a Variable, or not of a floating dtype.
        ValueError: Lengths or shapes do not fit.
        MissingRule: An op on the path has no backward rule.
    """
    outputs, inputs = differentiable(outputs, "outputs"), differentiable(inputs, "inputs")
    vectors = vectors_for(inputs, tangents, "tangents")
    return built([*outputs, *inputs], lambda: pushed(outputs, inputs, vectors))


def vjp(outputs: Variables, inputs: Variables, cotangents: Any) -> list[Variable]:
    """Vector-Jacobian product (reverse mode): the same as `grad` with `grad_outputs=cotangents`.

        gradient j = sum_i cotangents[i] . d outputs[i] / d inputs[j]

    Args:
        outputs: Variable or Variables to differentiate.
        inputs: Variables to differentiate with respect to.
        cotangents: For each output a Variable, an array, an NdArray or a number, of the output's shape.

    Returns:
        One Variable per input, of its shape and dtype.

    Raises:
        TypeError, ValueError, MissingRule: As in `jvp`.
    """
    outputs, inputs = differentiable(outputs, "outputs"), differentiable(inputs, "inputs")
    return grad(outputs, inputs, grad_outputs=vectors_for(outputs, cotangents, "cotangents"))


def hvp(outputs: Variables, inputs: Variables, vectors: Any) -> list[Variable]:
    """Hessian-vector product of the sum of the outputs, by forward over reverse (Pearlmutter 1994); by reverse over
    reverse where there is no forward mode (JAX functions with `custom_vjp`).

        product i = sum_j d^2 (sum of outputs) / (d inputs[i] d inputs[j]) . vectors[j]

    Args:
        outputs: Variable or Variables whose sum is differentiated twice.
        inputs: Variables to differentiate with respect to.
        vectors: For each input a Variable, an array, an NdArray or a number, of the input's shape.

    Returns:
        One Variable per input, of its shape and dtype.

    Raises:
        TypeError, ValueError, MissingRule: As in `jvp`.
    """
    outputs, inputs = differentiable(outputs, "outputs"), differentiable(inputs, "inputs")
    directions = vectors_for(inputs, vectors, "vectors")
    return built([*outputs, *inputs], lambda: hessian_times(outputs, inputs, directions))
