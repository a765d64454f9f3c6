"""Fourier transforms of whole arrays and of sliding windows.

A complex array is a real one with a last axis of 2, for the real and the imaginary part.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..graph import Array, Function, Variable, as_variable, composite, op
from ..graph.arguments import AtLeastOne, Ignored, Shape, Static, as_float, between, checked_choice, coerced
from ..graph.leaf import refuse_too_many
from . import movement, slicing
from .arithmetic import alike, floating
from .axes import rowwise
from .shaping import swapaxes
from .transposition import transposed

# ---------------------------------------------------------------- whole arrays


def _transform_axes(f: Function) -> tuple[int, int]:
    return (f.args["signal_ndim"] + 1,) * 2


@op(type_name="FFT", linear=True, axes=rowwise(_transform_axes), precision="high")
def fft(x: Array, /, signal_ndim: Annotated[int, between(1, 3)], normalized: bool = False) -> jax.Array:
    """Discrete Fourier transform over the axes before the last: the sum over t of `exp(-2 pi i k t / n) x[t]`.

    Args:
        x: (*batch, *sizes, 2), with 1 to 3 sizes.
        signal_ndim: The number of axes to transform.
        normalized: Whether the result is divided by the square root of the product of the sizes.

    Returns:
        The shape of x.

    Raises:
        ValueError: The last axis of x does not have 2 elements, `signal_ndim` is not from 1 to 3, or x has too few axes
            or an empty one.
    """
    return _transformed(x, signal_ndim, lax.FftType.FFT, -0.5 if normalized else 0)


@op(type_name="IFFT", linear=True, axes=rowwise(_transform_axes), precision="high")
def ifft(x: Array, /, signal_ndim: Annotated[int, between(1, 3)], normalized: bool = False) -> jax.Array:
    """The inverse of `fft` with the same arguments.

    Args:
        normalized: Whether the sum is divided by the square root of the product of the sizes instead of the product.
        ...: As in `fft`.

    Returns:
        The shape of x.
    """
    return _transformed(x, signal_ndim, lax.FftType.IFFT, 0.5 if normalized else 0)


def _transformed(
    x: jax.Array, signal_ndim: Annotated[int, between(1, 3)], kind: lax.FftType, power: float
) -> jax.Array:
    """The transform that JAX calls `kind`, times a power of the product of the sizes."""
    if x.ndim <= signal_ndim or x.shape[-1] != 2:
        raise ValueError(f"x must have {signal_ndim + 1} axes or more, the last (real, imaginary), got {x.shape}")
    sizes = x.shape[-signal_ndim - 1 : -1]
    if 0 in sizes:
        raise ValueError(f"x must not be empty along the transformed axes, got shape {x.shape}")
    x = floating(x)
    wide = _wide(x)
    real, imaginary = (lax.index_in_dim(wide, i, -1, keepdims=False) for i in (0, 1))
    y = lax.fft(lax.complex(real, imaginary), kind, sizes)
    # Selected rather than concatenated, which XLA for CPUs does number by number along an axis this short.
    of_real = lax.eq(lax.broadcasted_iota(np.int32, x.shape, y.ndim), np.int32(0))
    parts = lax.select(of_real, *[lax.broadcast_in_dim(p, x.shape, range(y.ndim)) for p in (lax.real(y), lax.imag(y))])
    if power:
        parts = parts * parts.dtype.type(math.prod(sizes) ** power)
    return lax.convert_element_type(parts, x.dtype)


def _wide(x: jax.Array) -> jax.Array:
    """`x` in a dtype that transforms support."""
    return lax.convert_element_type(x, jnp.promote_types(x.dtype, jnp.float32))


# ---------------------------------------------------------------- rows of real numbers


@op(multiple_results=True, linear=True, axes=rowwise("(n)->(k)"), precision="high")
def real_fft(x: Array, /) -> tuple[jax.Array, jax.Array]:
    """Real and imaginary part of the Fourier transform of real rows, for the frequencies 0 to n // 2.

    Args:
        x: (*batch, n).

    Returns:
        A tuple of two arrays (*batch, n // 2 + 1).

    Raises:
        ValueError: x has no axis, or the last one is empty.
    """
    if x.ndim == 0 or x.shape[-1] == 0:
        raise ValueError(f"x must have a nonempty last axis, got shape {x.shape}")
    x = floating(x)
    y = lax.fft(_wide(x), lax.FftType.RFFT, x.shape[-1:])
    return lax.convert_element_type(lax.real(y), x.dtype), lax.convert_element_type(lax.imag(y), x.dtype)


@op(linear="together", axes=rowwise("(k)->(n)"), precision="high")
def real_fft_transpose(real: Array, imaginary: Array, /, size: int) -> jax.Array:
    """The transpose of `real_fft`: the sum over k of `cos(2 pi k t / n) real[k] - sin(2 pi k t / n) imaginary[k]`.

    Args:
        real: (*batch, n // 2 + 1).
        imaginary: Of the shape of `real`.
        size: n.

    Returns:
        (*batch, n).
    """
    if size < 1 or real.ndim == 0 or real.shape != imaginary.shape or real.shape[-1] != size // 2 + 1:
        raise ValueError(
            f"real and imaginary must have the same shape, with a last axis of {size // 2 + 1} for size={size}, got "
            f"{real.shape} and {imaginary.shape}"
        )
    real, imaginary = alike(floating(real), floating(imaginary))
    # The inverse transform takes the frequencies above n // 2 to be the conjugates of those below.
    shares = (size / _counts(size)).astype(_wide(real).dtype)
    y = lax.complex(_wide(real) * shares, _wide(imaginary) * shares)
    x: jax.Array = lax.fft(y, lax.FftType.IRFFT, (size,))
    return lax.convert_element_type(x, real.dtype)


def _counts(size: int) -> Any:
    """For each frequency of real rows of `size`, how often it occurs, counting its negative: 1 or 2."""
    counts = np.full(size // 2 + 1, 2.0)
    counts[0] = 1
    if size % 2 == 0:
        counts[-1] = 1
    return counts


# ---------------------------------------------------------------- sliding windows


@op(linear=True, axes=rowwise("(t)->(f,s)"))
def frames(x: Array, /, size: AtLeastOne, stride: AtLeastOne) -> jax.Array:
    """The frames of `size` elements of the last axis that begin at multiples of `stride` and fit.

    Args:
        x: (*batch, t), with t not less than `size`.
        size: Number of elements per frame.
        stride: Distance between the starts of frames.

    Returns:
        (*batch, (t - size) // stride + 1, size).

    Raises:
        ValueError: x is too short.
    """
    if x.ndim == 0 or x.shape[-1] < size:
        raise ValueError(f"x must have at least size={size} elements along its last axis, got shape {x.shape}")
    axis, count = x.ndim - 1, (x.shape[-1] - size) // stride + 1
    starts = lax.iota(jnp.int32, count) * stride
    y: jax.Array = jax.vmap(lambda start: lax.dynamic_slice_in_dim(x, start, size, axis), out_axes=axis)(starts)
    return y


@op(linear=True, axes=rowwise("(f,s)->(t)", shape="shape"))
def frames_transpose(y: Array, /, shape: Shape, size: int, stride: int) -> jax.Array:
    """Frames added where they overlap: the transpose of `frames` of an array of `shape`.

    Args:
        y: Of the shape that `frames` returns.
        ...: As in `frames`.
    """
    return transposed(lambda x: frames.forward(x, size, stride), shape, y, "y")


_WINDOWS = {"hanning": 0.5, "hamming": 0.54, "rectangular": 1.0}
"""The constant term of each window; the rest is a cosine."""


@composite
def stft(
    x: Array, /, window_size: int, stride: AtLeastOne, fft_size: int, window_type: Static = "hanning",
    center: bool = True, pad_mode: str = "reflect", *, onesided: bool = True,
) -> tuple[Variable, Variable]:
    """Short-time Fourier transform: the transform of a signal under a sliding window.

    Args:
        x: (*batch, t).
        window_size: Length of the window, at most `fft_size`; zeros pad it to that length, equally on both sides.
        stride: Step of the window.
        fft_size: Length of the transform, at most 2**27.
        window_type: "hanning", "hamming", or "rectangular" or None for ones, of which the first two are periodic; or
            `window_size` numbers.
        center: Whether windows are centred at multiples of `stride`; then both ends of x are padded by `fft_size // 2`.
        pad_mode: How x is padded, as `mode` of `pad`.
        onesided: Whether to leave out the frequencies above `fft_size // 2`, which are conjugates of those below.

    Returns:
        A tuple of the real and the imaginary part, (*batch, fft_size // 2 + 1, number of windows), or with `fft_size`
        frequencies if not `onesided`.

    Raises:
        ValueError: An argument is out of range, `window_type` is unknown, or x is too short.
    """
    window = _window(window_size, fft_size, window_type)
    margin = fft_size // 2 if center else 0
    if x.ndim == 0 or x.shape[-1] + 2 * margin < fft_size:
        raise ValueError(f"x must be at least fft_size={fft_size} long with padding, got shape {x.shape}")
    if margin:
        x = movement.pad(x, (margin, margin), mode=pad_mode)
    real, imaginary = real_fft(frames(x, size=fft_size, stride=stride) * as_variable(window, floating=x.dtype))
    if not onesided:
        others = slice((fft_size - 1) // 2, 0, -1)
        real, imaginary = (
            movement.concatenate(part, sign * part[..., others], axis=-1) for part, sign in ((real, 1), (imaginary, -1))
        )
    return swapaxes(real, -1, -2), swapaxes(imaginary, -1, -2)


@composite
def istft(
    y_r: Array, y_i: Array, /, window_size: int, stride: AtLeastOne, fft_size: int,
    window_type: Static = "hanning", center: bool = True, pad_mode: Ignored = "reflect", *,
    onesided: bool = True,
) -> Variable:
    """The inverse of `stft`: windowed inverse transforms, added and divided by the sum of squared windows.

    It is the signal whose transform is nearest to the given one (Griffin and Lim, 1984).

    Args:
        y_r: (*batch, fft_size // 2 + 1, number of windows), or with `fft_size` frequencies if not `onesided`: the real
            part.
        y_i: The imaginary part, of the same shape.
        center: As in `stft`: the padding is cut off.
        pad_mode: Ignored, since padding is not part of the result.
        onesided: Whether the frequencies above `fft_size // 2` are left out. Otherwise the real part of the inverse
            transform counts.
        ...: As in `stft`.

    Returns:
        (*batch, t) with t = stride * (number of windows - 1) + fft_size, less `2 * (fft_size // 2)` if `center`.

    Raises:
        ValueError: An argument is out of range, `window_type` is unknown, the shapes do not fit, or squared windows sum
            to 0 somewhere, so that no inverse exists.
    """
    window = _window(window_size, fft_size, window_type)
    frequencies = fft_size // 2 + 1 if onesided else fft_size
    if y_r.shape != y_i.shape or y_r.ndim < 2 or y_r.shape[-2] != frequencies or y_r.shape[-1] == 0:
        raise ValueError(
            f"y_r and y_i must have the same shape, with last axes of {frequencies} frequencies for "
            f"fft_size={fft_size} and of at least one window, got {y_r.shape} and {y_i.shape}"
        )
    margin, count = fft_size // 2 if center else 0, y_r.shape[-1]
    real, imaginary = swapaxes(y_r, -1, -2), swapaxes(y_i, -1, -2)
    if not onesided:  # what the conjugates of the others add to frequencies up to the middle
        others, widths = slice(None, fft_size // 2, -1), (1, fft_size // 2 - (fft_size - 1) // 2)
        real, imaginary = (
            part[..., : fft_size // 2 + 1] + sign * movement.pad(part[..., others], widths)
            for part, sign in ((real, 1), (imaginary, -1))
        )
    counts = as_variable((_counts(fft_size) if onesided else 1) / fft_size, floating=y_r.dtype)
    x = real_fft_transpose(real * counts, imaginary * counts, size=fft_size)
    x = x * as_variable(window, floating=x.dtype)
    length = (count - 1) * stride + fft_size
    x = frames_transpose(x, shape=(*x.shape[:-2], length), size=fft_size, stride=stride)
    shares = as_variable(_shares(window, count, stride, margin), floating=x.dtype)
    return slicing.getitem(x, (..., slice(margin, length - margin))) * shares


def _window(window_size: int, fft_size: int, window_type: Any) -> Any:
    """The window of `fft_size` elements; a ValueError names the argument that is wrong."""
    if not 1 <= window_size <= fft_size:
        raise ValueError(f"window_size must be between 1 and fft_size={fft_size}, got {window_size}")
    refuse_too_many(fft_size, fft_size=fft_size)
    if isinstance(window_type, tuple):
        window = np.array([coerced(as_float, number, "each number of window_type") for number in window_type])
        if window.size != window_size:
            raise ValueError(f"window_type must have window_size={window_size} numbers, got {window.size}")
    elif isinstance(window_type, str | None):
        base = _WINDOWS[checked_choice(window_type or "rectangular", _WINDOWS, "window_type")]
        window = base - (1 - base) * np.cos(2 * np.pi * np.arange(window_size) / window_size)
    else:
        raise TypeError(f"window_type must be a name, or window_size={window_size} numbers, got {window_type!r}")
    before = (fft_size - window_size) // 2
    return np.pad(window, (before, fft_size - window_size - before))


def _shares(window: Any, count: int, stride: int, margin: int) -> Any:
    """One over the sum of `count` squared windows, each `stride` after the one before, without margins."""
    length = (count - 1) * stride + len(window)
    refuse_too_many(length, stride=stride)
    total = np.zeros(length)
    for i in range(count):
        total[i * stride : i * stride + len(window)] += window**2
    total = total[margin : len(total) - margin]
    if len(total) and total.min() < _LEAST:
        raise ValueError(
            f"istft has no inverse: squared windows with stride {stride} sum to 0 at position {int(total.argmin())}. "
            "Use a smaller stride, another window_type, or center=True"
        )
    return 1 / total


_LEAST = 1e-11
