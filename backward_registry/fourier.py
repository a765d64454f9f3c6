"""Backward rules of Fourier transforms. They are linear: the rule is the transpose."""

import math

import nngrad.functions as F
from nngrad.graph import Function, Variable

from .rules import adjoint_pair, backward, gradients

# ---------------------------------------------------------------- whole arrays


def _size(x: Variable, signal_ndim: int) -> int:
    """The product of the sizes along which it is transformed."""
    return math.prod(x.shape[-1 - signal_ndim : -1])


gradients(
    F.fft, "The sum with the opposite sign: ifft without its division",
    lambda gy, signal_ndim, normalized: F.ifft(gy, signal_ndim, normalized)
    * (1 if normalized else _size(gy, signal_ndim)),
)  # fmt: skip
gradients(
    F.ifft, "The sum with the opposite sign: fft, divided as in ifft",
    lambda gy, signal_ndim, normalized: F.fft(gy, signal_ndim, normalized)
    / (1 if normalized else _size(gy, signal_ndim)),
)  # fmt: skip

# ---------------------------------------------------------------- rows of real numbers


@backward(F.real_fft)
def real_fft_backward(f: Function, real: Variable, imaginary: Variable) -> Variable:
    """The sum of cosines and sines"""
    (x,) = f.inputs
    return F.real_fft_transpose(real, imaginary, size=x.shape[-1])


gradients(F.real_fft_transpose, "The transform of the gradient", lambda gy: F.real_fft(gy))

# ---------------------------------------------------------------- windows that move

adjoint_pair(F.frames, F.frames_transpose)
