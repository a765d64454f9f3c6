"""nnabla's fused functions, composed of their parts; the compiler fuses them."""

from __future__ import annotations

from collections.abc import Callable

from ..graph import Array, Variable, composite
from ..graph.arguments import Ints, Static
from . import activation
from .axes import axis_of, per_axis
from .batch_statistics import batch_normalization
from .convolution import convolution
from .movement import pad as padded


@composite
def fused_convolution(
    x: Array, weight: Array, bias: Array | None = None, beta: Array | None = None, gamma: Array | None = None,
    mean: Array | None = None, variance: Array | None = None, z: Array | None = None, /, base_axis: int = 1,
    pad: Ints | None = None, stride: Ints | None = None, dilation: Ints | None = None, group: int = 1,
    channel_last: bool = False, decay_rate: float = 0.9, eps: float = 1e-5, batch_stat: bool = True,
    nonlinearity: str = "relu", nonlinearity_args: Static = (), pad_mode: str = "constant", constant_value: float = 0,
) -> Variable:
    """`nonlinearity(batch_normalization(convolution(pad(x), weight, bias)) + z)`.

    Everything but the convolution is optional.

    Args:
        beta: As in `batch_normalization`, one number for each output channel. If this and the next three are None,
            there is no normalisation; else all must be given.
        z: A term added before the nonlinearity, of the shape of the result; None for 0.
        pad: Padding at both ends of each spatial axis; 0 by default.
        nonlinearity: "identity", "relu", "sigmoid", "tanh", "leaky_relu", "elu" or "relu6".
        nonlinearity_args: (alpha,) for "leaky_relu" and "elu"; if empty, their default.
        pad_mode: As `mode` of `pad`.
        constant_value: As in `pad`.
        ...: As in `convolution` and `batch_normalization`.

    Raises:
        ValueError: As in the functions of which it is composed; or only some of the four arrays of the normalisation
            are given, the shape of `z` does not fit, `nonlinearity` is unknown, or it takes other arguments.
    """
    if nonlinearity not in _NONLINEARITIES:
        raise ValueError(f"nonlinearity must be one of {', '.join(_NONLINEARITIES)}, got {nonlinearity!r}")
    numbers, most = nonlinearity_args, int(nonlinearity in ("leaky_relu", "elu"))
    if not isinstance(numbers, tuple) or len(numbers) > most:
        raise ValueError(f"nonlinearity_args must be a tuple of at most {most} numbers, got {numbers!r}")
    statistics = (beta, gamma, mean, variance)
    if any([statistic is None for statistic in statistics]) != all([statistic is None for statistic in statistics]):
        raise ValueError("beta, gamma, mean and variance must be given together")
    base_axis = axis_of(base_axis, x.ndim, "base_axis")
    if pad_mode != "constant" or constant_value:
        widths = [w for p in per_axis(pad, "pad", x.ndim - base_axis - 1, 0, 0) for w in (p, p)]
        x = padded(x, (*widths, *(0, 0) * channel_last), pad_mode, constant_value)
        pad = None
    y = convolution(
        x, weight, bias, base_axis=base_axis, pad=pad, stride=stride, dilation=dilation, group=group,
        channel_last=channel_last,
    )
    if beta is not None:
        y = batch_normalization(
            y, *statistics, axes=(y.ndim - 1 if channel_last else base_axis,), decay_rate=decay_rate, eps=eps,
            batch_stat=batch_stat,
        )
    if z is not None:
        if z.shape != y.shape:
            raise ValueError(f"z must have the shape of the result, {y.shape}, got {z.shape}")
        y = y + z
    return _NONLINEARITIES[nonlinearity](y, *numbers)


_NONLINEARITIES: dict[str, Callable[..., Variable]] = {
    "identity": lambda y: y, "relu": activation.relu, "sigmoid": activation.sigmoid, "tanh": activation.tanh,
    "leaky_relu": activation.leaky_relu, "elu": activation.elu, "relu6": activation.relu6,
}  # fmt: skip
