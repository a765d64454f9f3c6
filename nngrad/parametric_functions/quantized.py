"""Layers with quantised weights (fixed-point numbers, powers of two, levels of a range) or pruned ones."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from functools import partial
from typing import Any

from .. import functions as F
from ..extend import Array, Variable, as_variable
from ..functions.docstrings import entries_of
from ..initializer import ConstantInitializer
from ..parameter import get_parameter_or_create
from .layer_parameters import Init, initial, own_parameters
from .variations import AFFINE, CONVOLUTION, Layer, Level, layer

# ---------------------------------------------------------------- rounded or pruned by a function of F


def _rounded(name: str, switch: str, quantizer: Callable[..., Variable], first: str = "") -> Callable[..., Variable]:
    """A variation that applies a quantiser to W and b. For each of them it has an argument `switch`, which turns the
    quantiser on or off, and the quantiser's own arguments. The quantiser is named after its function in F; `first`
    comes before its other arguments."""
    arguments = sorted(list(inspect.signature(quantizer).parameters.values())[1:], key=lambda p: p.name != first)
    def variation(layer: Layer, **values: Any) -> Variable:
        return layer.quantized(*[
            partial(quantizer, **{p.name: values[f"{p.name}_{side}"] for p in arguments})
            if values[f"{switch}_{side}"]
            else None
            for side in "wb"
        ])  # fmt: skip

    words = entries_of(getattr(F, quantizer.__name__))
    parameters = [inspect.Parameter("layer", inspect.Parameter.POSITIONAL_ONLY)]
    entries = []
    for side in "wb":
        whose = "W" if side == "w" else "b"
        switch_of_side = inspect.Parameter(f"{switch}_{side}", inspect.Parameter.KEYWORD_ONLY, default=True)
        parameters.append(switch_of_side.replace(annotation="bool"))
        entries.append(f"    {switch}_{side}: Whether {whose} is {'pruned' if switch == 'prune' else 'quantised'}.")
        for p in arguments:
            parameters.append(p.replace(name=f"{p.name}_{side}", kind=p.KEYWORD_ONLY))
            text = " ".join(" ".join(words[p.name]).split())
            entries.append(textwrap.fill(f"    {p.name}_{side}: For {whose}: {text}", 112, subsequent_indent=" " * 8))
    variation.__name__ = name
    variation.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    variation.__doc__ = (
        f"`{{kind}}` with W and b {'pruned' if switch == 'prune' else 'rounded'} by `F.{quantizer.__name__}`.\n\n"
        f"{ROUNDED}\n\nArgs:\n" + "\n".join(entries)
    )
    return variation


ROUNDED = (
    "Parameters: {W}, uniform within Glorot's limits; b {outputs}, zeros; W_q and b_q, what comes of them, which each "
    "`forward()` writes, not trained."
)


def fixed_point_quantize(
    w: Variable, sign: bool = True, n: int = 8, delta: float = 0.0625, ste_fine_grained: bool = True
) -> Variable:
    """`F.fixed_point_quantize` with the defaults of layers."""
    return F.fixed_point_quantize(w, sign=sign, n=n, delta=delta, ste_fine_grained=ste_fine_grained)


def pow2_quantize(
    w: Variable, sign: bool = True, with_zero: bool = False, n: int = 8, m: int = 2, ste_fine_grained: bool = True
) -> Variable:
    """`F.pow2_quantize` with the defaults of layers."""
    return F.pow2_quantize(w, sign=sign, with_zero=with_zero, n=n, m=m, ste_fine_grained=ste_fine_grained)


def prune(w: Variable, rate: float = 0.9) -> Variable:
    """`F.prune` with the defaults of layers."""
    return F.prune(w, rate=rate)


_fixed_point = _rounded("fixed_point_quantized", "quantize", fixed_point_quantize)
fixed_point_quantized_affine = layer(AFFINE, "fp_quantized", _fixed_point)
fixed_point_quantized_convolution = layer(CONVOLUTION, "fp_quantized", _fixed_point, channel_last=True)
pow2_quantized_affine = layer(AFFINE, "pow2_quantized", _rounded("pow2_quantized", "quantize", pow2_quantize))
pow2_quantized_convolution = layer(
    CONVOLUTION, "pow2_quantized", _rounded("pow2_quantized", "quantize", pow2_quantize, first="with_zero")
)
_pruned = _rounded("pruned", "prune", prune)
pruned_affine = layer(AFFINE, "pruned", _pruned)
pruned_convolution = layer(CONVOLUTION, "pruned", _pruned, channel_last=True)

# ---------------------------------------------------------------- levels of a range


@own_parameters("min_max_quantize")
def min_max_quantize(
    x: Array, ql_min: Level = 0, ql_max: Level = 255, decay: float = 0.999, x_min_max: bool = False, ema: bool = False,
    ste_fine_grained: bool = True, eps: float = 0.01, qr_min_init: Init = None, qr_max_init: Init = None,
    fix_parameters: bool = False, name: str | None = None,
) -> Variable:
    """`x` rounded to levels of a range, as in `F.min_max_quantize` (Jacob and others, 2018).

    Parameters: qr_min (-6) and qr_max (6), the range, of the shape of `ql_min`, trained unless both `x_min_max` and
    `ema` are set; ql_min and ql_max, if given as numbers, of shape (1, ..., 1) with as many axes as `x`, not trained.
    With `x_min_max` each `forward()` writes the range.

    Args:
        ql_min: The lowest level: a number; or, for separate ranges along axes, an array with as many axes as `x`, each
            of its size or 1.
        ql_max: The highest level, in the same way.
        qr_min_init: Initial qr_min.
        qr_max_init: Initial qr_max.
        fix_parameters: Whether qr_min and qr_max are constants.
        ...: As in `F.min_max_quantize`.

    Raises:
        TypeError: As in `F.min_max_quantize`.
        ValueError: As in `F.min_max_quantize`, or an existing parameter has another shape.
    """
    lowest, highest = _level("ql_min", ql_min, x.ndim), _level("ql_max", ql_max, x.ndim)
    trained = not (x_min_max and ema)
    qr_min, qr_max = [
        get_parameter_or_create(name, lowest.shape, initial(init, ConstantInitializer(default)), trained,
                                trained and not fix_parameters)
        for name, init, default in (("qr_min", qr_min_init, -6), ("qr_max", qr_max_init, 6))
    ]  # fmt: skip
    return F.min_max_quantize(
        x, qr_min, qr_max, lowest, highest, decay=decay, x_min_max=x_min_max, ema=ema,
        ste_fine_grained=ste_fine_grained, eps=eps,
    )


def _level(name: str, value: Level, ndim: int) -> Variable:
    if isinstance(value, int | float):
        return get_parameter_or_create(name, (1,) * ndim, ConstantInitializer(value), False)
    return as_variable(value, name, "min_max_quantize")


def min_max_quantized(
    layer: Layer, *, quantize_w: bool = True, ql_min_w: Level = 0, ql_max_w: Level = 255, w_min_max: bool = False,
    qr_min_w_init: Init = None, qr_max_w_init: Init = None, ste_fine_grained_w: bool = True, quantize_b: bool = True,
    ql_min_b: Level = 0, ql_max_b: Level = 255, b_min_max: bool = False, qr_min_b_init: Init = None,
    qr_max_b_init: Init = None, ste_fine_grained_b: bool = True, eps: float = 0.01,
) -> Variable:  # fmt: skip
    """`{kind}` with W and b rounded by `min_max_quantize`.

    Parameters: {W}, uniform within Glorot's limits; b {outputs}, zeros; W_q and b_q, their rounded values, which each
    `forward()` writes, not trained. min_max_quantize_w/... and min_max_quantize_b/... are those of `min_max_quantize`.

    Args:
        ql_min_w: As in `min_max_quantize`, for W.
        ql_max_w: As in `min_max_quantize`, for W.
        w_min_max: As `x_min_max` of `F.min_max_quantize`, for W.
        qr_min_w_init: Initial qr_min of W; -2 by default.
        qr_max_w_init: Initial qr_max of W; 2 by default.
        ste_fine_grained_w: As `ste_fine_grained` of `F.min_max_quantize`, for W.
        ql_min_b: As in `min_max_quantize`, for b.
        ql_max_b: As in `min_max_quantize`, for b.
        b_min_max: As `x_min_max` of `F.min_max_quantize`, for b.
        qr_min_b_init: Initial qr_min of b; -6 by default.
        qr_max_b_init: Initial qr_max of b; 6 by default.
        ste_fine_grained_b: As `ste_fine_grained` of `F.min_max_quantize`, for b.
        ...: As in `{kind}` and `F.min_max_quantize`.
    """
    quantizer = partial(min_max_quantize, eps=eps, fix_parameters=layer.fixed)
    quantizer_of_w = partial(
        quantizer, ql_min=ql_min_w, ql_max=ql_max_w, x_min_max=w_min_max, ste_fine_grained=ste_fine_grained_w,
        qr_min_init=-2 if qr_min_w_init is None else qr_min_w_init,
        qr_max_init=2 if qr_max_w_init is None else qr_max_w_init, name="min_max_quantize_w",
    )
    quantizer_of_b = partial(
        quantizer, ql_min=ql_min_b, ql_max=ql_max_b, x_min_max=b_min_max, ste_fine_grained=ste_fine_grained_b,
        qr_min_init=qr_min_b_init, qr_max_init=qr_max_b_init, name="min_max_quantize_b",
    )
    return layer.quantized(quantizer_of_w if quantize_w else None, quantizer_of_b if quantize_b else None)


min_max_quantized_affine = layer(AFFINE, "min_max_quantized", min_max_quantized)
min_max_quantized_convolution = layer(CONVOLUTION, "min_max_quantized", min_max_quantized, channel_last=True)
