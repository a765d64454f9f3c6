"""PyTorch's operators as functions of F: a table from the name of an ATen operator to a function of Variables.

Each function takes `out`, what PyTorch says of the result, and then the operator's own arguments, with Variables in
place of tensors. Its result is cast to PyTorch's dtype afterwards.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from .. import functions as F
from ..extend import Variable
from ..jax.from_jax import from_jax

Reader = Callable[..., Any]
OPERATORS: dict[str, Reader] = {}
"""Functions by the name of the operator, with its overload where overloads differ (`aten.add`, `aten.max.dim`)."""
KEPT = frozenset([
    "dropout", "log_sigmoid", "mish", "silu", "softplus", "softshrink",
])
"""Operators that PyTorch would decompose, and that have a function here which is more exact or has fewer parts."""


class Result(NamedTuple):
    """What PyTorch says of an operator's result; of the first of several."""

    shape: tuple[int, ...]
    dtype: str
    """A NumPy name, or that of bfloat16."""


class Unsupported(Exception):
    """An operator, or a choice among its arguments, that has no function here; the message says which."""


def reads(*names: str) -> Callable[[Reader], Reader]:
    """Enter a function into the table under the names of operators."""

    def enter(function: Reader) -> Reader:
        OPERATORS.update(dict.fromkeys(names, function))
        return function

    return enter


def in_dtype(x: Any, dtype: str) -> Any:
    """A Variable in a dtype; numbers stay as they are."""
    return F.cast(x, dtype=dtype) if isinstance(x, Variable) and x.dtype.name != dtype else x


def constant(value: float, out: Result) -> Variable:
    """A constant of the result's shape and dtype."""
    return F.constant(value, out.shape, dtype=out.dtype)


def each(value: Any, count: int) -> tuple[int, ...]:
    """A number for each of `count` axes, given as one, as several, or as none for all."""
    values = [value] if isinstance(value, int) else list(value)
    return tuple(values * count if len(values) == 1 else values)


def axes(dim: Any, ndim: int) -> tuple[int, ...]:
    """The axes that `dim` names, of which no or an empty list names all."""
    if dim is None or dim == []:
        return tuple(range(ndim))
    return tuple([d % ndim if ndim else 0 for d in ([dim] if isinstance(dim, int) else dim)])


# ---------------------------------------------------------------- element by element


def _unary(function: Reader) -> Reader:
    return lambda out, x: function(in_dtype(x, out.dtype))


OPERATORS |= {
    f"aten.{name}": _unary(getattr(F, ours or name))
    for name, ours in {
        "acos": "", "acosh": "", "asin": "", "asinh": "", "atan": "", "atanh": "", "ceil": "", "cos": "", "cosh": "",
        "digamma": "", "erf": "", "erfc": "", "erfinv": "", "exp": "", "expm1": "", "floor": "", "lgamma": "",
        "log": "", "log10": "", "log1p": "", "log2": "", "log_sigmoid": "", "mish": "", "reciprocal": "", "relu": "",
        "round": "rounded", "rsqrt": "", "sigmoid": "", "sign": "signum", "silu": "swish", "sin": "", "sinh": "",
        "sqrt": "", "tan": "", "tanh": "",
        "alias": "identity", "clone": "identity", "contiguous": "identity", "detach": "identity", "lift_fresh_copy":
        "identity", "_to_copy": "identity",
    }.items()
}  # fmt: skip


def _binary(function: Callable[[Any, Any], Any]) -> Reader:
    def read(out: Result, x: Any, y: Any, *, alpha: float = 1) -> Any:
        x, y = in_dtype(x, out.dtype), in_dtype(y, out.dtype)
        return function(x, y if alpha == 1 else y * alpha)

    return read


def _compared(function: Callable[[Any, Any], Any]) -> Reader:
    def read(out: Result, x: Any, y: Any) -> Any:
        if isinstance(x, Variable) and isinstance(y, Variable) and x.dtype != y.dtype:
            common = jnp.promote_types(x.dtype, y.dtype).name
            x, y = in_dtype(x, common), in_dtype(y, common)
        return function(x, y)

    return read


def _by_jax(function: Reader) -> Reader:
    return lambda out, *arguments: from_jax(function)(*arguments)


OPERATORS |= {
    "aten.add": _binary(operator.add), "aten.sub": _binary(operator.sub), "aten.mul": _binary(operator.mul),
    "aten.pow": _binary(operator.pow), "aten.atan2": _binary(F.atan2),
    "aten.maximum": _binary(F.maximum2), "aten.minimum": _binary(F.minimum2),
    "aten.fmod": _binary(lambda x, y: F.mod2(x, y, fmod=True)), "aten.remainder": _binary(operator.mod),
    "aten.eq": _compared(F.equal), "aten.ne": _compared(F.not_equal), "aten.gt": _compared(F.greater),
    "aten.ge": _compared(F.greater_equal), "aten.lt": _compared(F.less), "aten.le": _compared(F.less_equal),
    "aten.logical_and": _compared(F.logical_and), "aten.logical_or": _compared(F.logical_or),
    "aten.logical_xor": _compared(F.logical_xor), "aten.logical_not": lambda out, x: F.logical_not(x),
    "aten.bitwise_and": _by_jax(jnp.bitwise_and), "aten.bitwise_or": _by_jax(jnp.bitwise_or),
    "aten.bitwise_xor": _by_jax(jnp.bitwise_xor), "aten.bitwise_not": _by_jax(jnp.bitwise_not),
    "aten.neg": lambda out, x: -x, "nngrad.stop": _unary(F.unlink),
    "aten.isnan": lambda out, x: F.isnan(x), "aten.isinf": lambda out, x: F.isinf(x),
}  # fmt: skip
OPERATORS["aten.leaky_relu"] = lambda out, x, slope=0.01: F.leaky_relu(x, slope)


@reads("aten.abs")
def _abs(out: Result, x: Variable) -> Any:
    """Whose derivative at 0 is 0, where that of `F.abs` is 1."""
    return x * F.unlink(F.signum(x))


@reads("aten.trunc")
def _trunc(out: Result, x: Variable) -> Any:
    return F.signum(x) * F.floor(_abs(out, x))


@reads("aten.div")
def _div(out: Result, x: Any, y: Any, *, rounding_mode: str | None = None) -> Any:
    x, y = in_dtype(x, out.dtype), in_dtype(y, out.dtype)
    if rounding_mode is None:
        return x / y
    if out.dtype.startswith("int"):
        return from_jax(jnp.floor_divide if rounding_mode == "floor" else _truncated)(x, y)
    return F.floor(x / y) if rounding_mode == "floor" else _trunc(out, x / y)


def _truncated(x: Any, y: Any) -> Any:
    return jnp.sign(x) * jnp.sign(y) * (jnp.abs(x) // jnp.abs(y))


@reads("aten.where")
def _where(out: Result, condition: Variable, x: Any, y: Any) -> Any:
    condition, x, y = [
        F.broadcast(v, out.shape) if isinstance(v, Variable) else constant(v, out)
        for v in (condition, in_dtype(x, out.dtype), in_dtype(y, out.dtype))
    ]
    return F.where(condition, x, y)


@reads("aten.clamp")
def _clamp(out: Result, x: Variable, low: Any = None, high: Any = None) -> Any:
    """Whose derivative at the bounds is 1."""
    x = in_dtype(x, out.dtype)
    if low is not None:
        x = _where(out, x < low, low, x)
    return x if high is None else _where(out, x > high, high, x)


@reads("aten.hardtanh")
def _hardtanh(out: Result, x: Variable, low: float = -1, high: float = 1) -> Any:
    """Whose derivative at the bounds is 0."""
    return _where(out, x <= low, low, _where(out, x >= high, high, x))


@reads("aten.elu")
def _elu(out: Result, x: Variable, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Any:
    below = F.expm1(F.minimum2(x, F.zeros_like(x)) * input_scale) * (alpha * scale)
    return _where(out, x > 0, x * scale, below)


@reads("aten.gelu")
def _gelu(out: Result, x: Variable, *, approximate: str = "none") -> Any:
    return F.gelu(x) if approximate == "tanh" else x * F.ndtr(x)


@reads("aten.softplus")
def _softplus(out: Result, x: Variable, beta: float = 1, threshold: float = 20) -> Any:
    """Also above the threshold, beyond which PyTorch returns `x`."""
    return F.softplus(x * beta) / beta


@reads("aten.softshrink")
def _softshrink(out: Result, x: Variable, bound: float = 0.5) -> Any:
    return _where(out, x > bound, x - bound, _where(out, x < -bound, x + bound, 0))


# ---------------------------------------------------------------- constants and random numbers


for _form in ("aten.full", "aten.full_like", "aten.scalar_tensor"):
    OPERATORS[_form] = lambda out, *arguments: constant(arguments[-1], out)


OPERATORS |= {
    "aten.arange": lambda out, start, stop, step=1: F.arange(start, start + out.shape[0] * step, step, out.dtype),
    "aten.empty": lambda out, *_: constant(0, out),
    "aten.rand": lambda out, *_: F.rand(shape=out.shape), "aten.rand_like": lambda out, *_: F.rand(shape=out.shape),
    "aten.randn": lambda out, *_: F.randn(shape=out.shape), "aten.randn_like": lambda out, *_: F.randn(shape=out.shape),
    "aten.uniform": lambda out, x, low=0, high=1: F.rand(low, high, shape=out.shape),
    "aten.normal_functional": lambda out, x, mean=0, std=1: F.randn(mean, std, shape=out.shape),
    "aten.randint": lambda out, high, *_: F.randint(0, high, shape=out.shape),
    "aten.randint.low": lambda out, low, high, *_: F.randint(low, high, shape=out.shape),
    "aten.bernoulli": lambda out, x: F.less(F.rand(shape=out.shape), in_dtype(x, "float32")),
    "aten.bernoulli.p": lambda out, x, p: F.less(F.rand(shape=out.shape), p),
}  # fmt: skip


@reads("aten.dropout")
def _dropout(out: Result, x: Variable, p: float, train: bool) -> Any:
    if not train:
        return x
    return constant(0, out) if p == 1 else F.dropout(x, p)


OPERATORS["aten.native_dropout"] = lambda *arguments: [_dropout(*arguments)]


# ---------------------------------------------------------------- shapes


@reads("aten.view", "aten.reshape", "aten.squeeze", "aten.unsqueeze")
def _reshape(out: Result, x: Variable, *_: Any) -> Any:
    return F.reshape(x, out.shape)


@reads("aten.expand")
def _expand(out: Result, x: Variable, *_: Any, **__: Any) -> Any:
    return F.broadcast(F.reshape(x, (1,) * (len(out.shape) - x.ndim) + x.shape), out.shape)


@reads("aten.cat")
def _cat(out: Result, xs: Sequence[Variable], dim: int = 0) -> Any:
    return F.concatenate(*[in_dtype(x, out.dtype) for x in xs if x.shape != (0,)], axis=dim % len(out.shape))


def _at(x: Variable, dim: int, key: Any) -> tuple[Any, ...]:
    return (slice(None),) * (dim % x.ndim) + (key,)


@reads("aten.split_with_sizes")
def _split(out: Result, x: Variable, sizes: Sequence[int], dim: int = 0) -> Any:
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return [x[_at(x, dim, slice(end - size, end))] for size, end in zip(sizes, ends, strict=True)]


OPERATORS |= {
    "aten.permute": lambda out, x, dims: F.transpose(x, axes(dims, x.ndim)) if x.ndim else x,
    "aten.repeat": lambda out, x, times: F.tile(F.reshape(x, (1,) * (len(times) - x.ndim) + x.shape), tuple(times)),
    "aten.flip": lambda out, x, dims: F.flip(x, axes(dims, x.ndim)),
    "aten.slice": lambda out, x, dim=0, start=None, stop=None, step=1: x[_at(x, dim, slice(start, stop, step))],
    "aten.select": lambda out, x, dim, index: x[_at(x, dim, index)],
    "aten.diagonal": lambda out, x, offset=0, dim1=0, dim2=1: F.diagonal(x, offset, dim1 % x.ndim, dim2 % x.ndim),
}  # fmt: skip


@reads("aten.constant_pad_nd")
def _pad(out: Result, x: Variable, widths: Sequence[int], value: float = 0) -> Any:
    pairs = [(0, 0)] * (x.ndim - len(widths) // 2) + list(zip(widths[::2], widths[1::2], strict=True))[::-1]
    x = x[tuple([slice(max(-a, 0), x.shape[i] - max(-b, 0)) for i, (a, b) in enumerate(pairs)])]
    return F.pad(x, tuple([max(w, 0) for pair in pairs for w in pair]), constant_value=value)


# ---------------------------------------------------------------- elements by their indices


@reads("aten.index")
def _index(out: Result, x: Variable, indices: Sequence[Variable | None]) -> Any:
    return from_jax(lambda x, listed: x[_key(listed, indices)])(x, [i for i in indices if i is not None])


def _key(listed: Sequence[Any], indices: Sequence[Any]) -> tuple[Any, ...]:
    in_order = iter(listed)
    return tuple([slice(None) if i is None else next(in_order) for i in indices])


@reads("aten.index_put")
def _index_put(
    out: Result, x: Variable, indices: Sequence[Variable | None], y: Variable, accumulate: bool = False
) -> Any:
    def put(x: Any, y: Any, listed: Any) -> Any:
        at = x.at[_key(listed, indices)]
        return at.add(y) if accumulate else at.set(y)

    return from_jax(put)(x, y, [i for i in indices if i is not None])


OPERATORS["aten.index_select"] = lambda out, x, dim, index: from_jax(lambda x, i: jnp.take(x, i, dim))(x, index)


@reads("aten.gather")
def _gather(out: Result, x: Variable, dim: int, index: Variable, **_: Any) -> Any:
    axis = dim % x.ndim
    x = x[tuple([slice(None) if i == axis else slice(n) for i, n in enumerate(index.shape)])]
    return F.take_along_axis(x, index, axis=axis)


@reads("aten.slice_scatter")
def _slice_scatter(
    out: Result, x: Variable, y: Variable, dim: int = 0, start: Any = None, stop: Any = None, step: int = 1
) -> Any:
    return from_jax(lambda x, y: x.at[_at(x, dim, slice(start, stop, step))].set(y))(x, y)


@reads("aten.embedding")
def _embedding(
    out: Result, weight: Variable, indices: Variable, padding_idx: int = -1, scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:  # fmt: skip
    if scale_grad_by_freq:
        raise Unsupported("scale_grad_by_freq")
    if padding_idx >= 0:  # whose row gets no gradient
        row = F.reshape(F.equal(F.arange(0, weight.shape[0], dtype="int32"), padding_idx), (-1, 1))
        weight = F.where(F.broadcast(row, weight.shape), F.unlink(weight), weight)
    return F.embed(indices, weight)


# ---------------------------------------------------------------- reductions


def _reduction(function: Reader) -> Reader:
    def read(out: Result, x: Variable, dim: Any = None, keepdim: bool = False) -> Any:
        return function(in_dtype(x, out.dtype), axis=axes(dim, x.ndim), keepdims=keepdim) if x.ndim else x

    return read


OPERATORS |= {f"aten.{name}": _reduction(getattr(F, name)) for name in ("sum", "mean", "prod", "amax", "amin")}
OPERATORS["aten.max"], OPERATORS["aten.min"] = OPERATORS["aten.amax"], OPERATORS["aten.amin"]


def _truth(function: Reader) -> Reader:
    def read(out: Result, x: Variable, dim: Any = None, keepdim: bool = False) -> Any:
        return from_jax(lambda x: function(x, axes(dim, x.ndim), keepdims=keepdim))(x)

    return read


OPERATORS["aten.any"], OPERATORS["aten.all"] = _truth(jnp.any), _truth(jnp.all)


def _extreme(index_of: Reader) -> tuple[Reader, Reader]:
    """The operators for the index of an extreme element, and for that element with its index."""

    def index(out: Result, x: Variable, dim: int | None = None, keepdim: bool = False) -> Any:
        return index_of(x, axis=None if dim is None else dim % x.ndim, keepdims=keepdim)

    def element(out: Result, x: Variable, dim: int, keepdim: bool = False) -> Any:
        index = index_of(x, axis=dim % x.ndim, keepdims=True)
        return [F.reshape(y, out.shape) for y in (F.take_along_axis(x, index, axis=dim % x.ndim), index)]

    return index, element


OPERATORS["aten.argmax"], OPERATORS["aten.max.dim"] = _extreme(F.argmax)
OPERATORS["aten.argmin"], OPERATORS["aten.min.dim"] = _extreme(F.argmin)


@reads("aten.sort")
def _sort(out: Result, x: Variable, dim: int = -1, descending: bool = False, **_: Any) -> Any:
    return F.sort(x, axis=dim % x.ndim, reverse=descending, with_index=True)


@reads("aten.topk")
def _topk(out: Result, x: Variable, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    return [y[_at(x, dim, slice(k))] for y in _sort(out, x, dim, largest)]


@reads("aten.var")
def _var(out: Result, x: Variable, dim: Any = None, *, correction: float = 1, keepdim: bool = False) -> Any:
    over = axes(dim, x.ndim)
    count = math.prod([x.shape[i] for i in over])
    return F.var(x, axis=over, keepdims=keepdim) * (count / (count - (1 if correction is None else correction)))


@reads("aten.linalg_vector_norm")
def _vector_norm(out: Result, x: Variable, p: float = 2, dim: Any = None, keepdim: bool = False) -> Any:
    if p == math.inf:
        return F.amax(_abs(out, x), axis=axes(dim, x.ndim), keepdims=keepdim)
    if p <= 0:
        raise Unsupported(f"the norm of order {p}")
    return F.norm(in_dtype(x, out.dtype), p, axis=axes(dim, x.ndim), keepdims=keepdim)


def _along(function: Reader) -> Reader:
    return lambda out, x, dim, *_: function(in_dtype(x, out.dtype), axis=dim % x.ndim) if x.ndim else function(x)


OPERATORS |= {
    "aten.cumsum": _along(F.cumsum), "aten.cumprod": _along(F.cumprod), "aten._softmax": _along(F.softmax),
    "aten._log_softmax": _along(F.log_softmax),
}  # fmt: skip


# ---------------------------------------------------------------- products and convolutions


@reads("aten.addmm", "aten.addmv")
def _addmm(out: Result, z: Variable, x: Variable, y: Variable, *, beta: float = 1, alpha: float = 1) -> Any:
    return (z if beta == 1 else z * beta) + F.matmul(x if alpha == 1 else x * alpha, y)


for _form in ("mm", "bmm"):
    OPERATORS[f"aten.{_form}"] = lambda out, x, y: F.matmul(x, y)


@reads("aten.convolution")
def _convolution(
    out: Result, x: Variable, weight: Variable, bias: Variable | None, stride: Any, pad: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int,
) -> Any:  # fmt: skip
    n = weight.ndim - 2
    batch = x.ndim == n + 2
    options: dict[str, Any] = {"pad": each(pad, n), "stride": each(stride, n), "dilation": each(dilation, n),
                               "group": groups}
    operands = (x if batch else F.reshape(x, (1, *x.shape)), weight, bias)
    if transposed:
        y = F.deconvolution(*operands, output_padding=each(output_padding, n), **options)
    else:
        y = F.convolution(*operands, **options)
    return y if batch else F.reshape(y, out.shape)


# ---------------------------------------------------------------- pooling and resizing


def _pooled(n: int) -> None:
    def average(
        out: Result, x: Variable, kernel: Any, stride: Any = None, pad: Any = 0, ceil_mode: bool = False,
        including_pad: bool = True, divisor: int | None = None,
    ) -> Any:  # fmt: skip
        if divisor is not None:
            raise Unsupported("divisor_override")
        return F.average_pooling(
            x, each(kernel, n), each(stride or kernel, n), pad=each(pad, n), including_pad=including_pad,
            ceil_mode=ceil_mode,
        )

    def largest(
        out: Result, x: Variable, kernel: Any, stride: Any = None, pad: Any = 0, dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> Any:  # fmt: skip
        return [F.max_pooling(
            x, each(kernel, n), each(stride or kernel, n), pad=each(pad, n), dilation=each(dilation, n),
            ceil_mode=ceil_mode,
        )]  # fmt: skip

    def adaptive(function: Reader) -> Reader:
        def read(out: Result, x: Variable, size: Any) -> Any:
            wide = x.shape[-n:]
            if any([a % b for a, b in zip(wide, out.shape[-n:], strict=True)]):
                raise Unsupported(f"an output size {out.shape[-n:]} which does not divide the size {wide}")
            parts = [k for a, b in zip(wide, out.shape[-n:], strict=True) for k in (b, a // b)]
            first = x.ndim - n
            return function(F.reshape(x, (*x.shape[:first], *parts)), axis=tuple(range(first + 1, first + 2 * n, 2)))

        return read

    OPERATORS[f"aten.avg_pool{n}d"], OPERATORS[f"aten.max_pool{n}d_with_indices"] = average, largest
    OPERATORS[f"aten._adaptive_avg_pool{n}d"] = adaptive(F.mean)
    OPERATORS[f"aten.adaptive_max_pool{n}d"] = lambda *arguments: [adaptive(F.amax)(*arguments)]


for _n in (1, 2, 3):
    _pooled(_n)


@reads("aten.upsample_bilinear2d")
def _bilinear(out: Result, x: Variable, size: Any, aligned: bool, scales: Any = None) -> Any:
    wide, wanted = x.shape[-2:], out.shape[-2:]
    if scales and any([a * s != b for a, s, b in zip(wide, scales, wanted, strict=True)]):
        raise Unsupported(f"scale_factor={tuple(scales)}, which gives no whole size; pass size=, or "
                          "recompute_scale_factor=True")
    return F.interpolate(x, output_size=wanted, mode="linear", align_corners=aligned, half_pixel=not aligned)


@reads("aten.upsample_nearest2d")
def _nearest(out: Result, x: Variable, size: Any, scales: Any = None) -> Any:
    steps = [1 / s for s in scales] if scales else [a / b for a, b in zip(x.shape[-2:], out.shape[-2:], strict=True)]
    rows, columns = [
        np.minimum(np.arange(b, dtype=np.float32) * np.float32(step), a - 1).astype(np.int32)  # rounded as by PyTorch
        for a, b, step in zip(x.shape[-2:], out.shape[-2:], steps, strict=True)
    ]
    return from_jax(lambda x: x[..., rows[:, None], columns])(x)


# ---------------------------------------------------------------- normalisation


def _scaled(y: Variable, weight: Variable | None, bias: Variable | None, shape: Sequence[int]) -> Variable:
    if weight is not None:
        y = y * F.reshape(weight, shape)
    return y if bias is None else y + F.reshape(bias, shape)


@reads("aten.native_layer_norm")
def _layer_norm(
    out: Result, x: Variable, shape: Sequence[int], weight: Variable | None, bias: Variable | None, eps: float
) -> Any:
    batch = tuple(range(x.ndim - len(shape)))
    return [_scaled(F.layer_normalization(x, batch_axis=batch, eps=eps), weight, bias, (1,) * len(batch) + (*shape,))]


@reads("aten.native_group_norm")
def _group_norm(
    out: Result, x: Variable, weight: Variable | None, bias: Variable | None, n: int, c: int, rest: int, groups: int,
    eps: float,
) -> Any:  # fmt: skip
    y = F.group_normalization(x, num_groups=groups, eps=eps)
    return [_scaled(y, weight, bias, (1, c, *[1] * (x.ndim - 2)))]


@reads("aten._native_batch_norm_legit_functional", "aten._native_batch_norm_legit")
def _batch_norm(
    out: Result, x: Variable, weight: Variable | None, bias: Variable | None, mean: Variable | None,
    var: Variable | None, train: bool, momentum: float, eps: float,
) -> Any:  # fmt: skip
    """The result, two values that nobody reads, and the new running statistics."""
    shape = (1, x.shape[1], *[1] * (x.ndim - 2))
    if not train:
        y = (x - F.reshape(mean, shape)) * F.rsqrt(F.reshape(var, shape) + eps)
        return [_scaled(y, weight, bias, shape), None, None, mean, var]
    y, m, v = F.batch_normalization(x, axes=(1,), eps=eps, output_stat=True)
    if mean is not None and var is not None:
        count = x.size // x.shape[1]
        mean = mean * (1 - momentum) + F.reshape(m, mean.shape) * momentum
        var = var * (1 - momentum) + F.reshape(v, var.shape) * (momentum * count / (count - 1))
    return [_scaled(y, weight, bias, shape), None, None, mean, var]


OPERATORS["aten._native_batch_norm_legit.no_stats"] = (
    lambda out, x, weight, bias, train, *rest: _batch_norm(out, x, weight, bias, None, None, True, *rest)
)
OPERATORS["aten._native_batch_norm_legit_no_training"] = (
    lambda out, x, weight, bias, mean, var, *rest: _batch_norm(out, x, weight, bias, mean, var, False, *rest)
)
