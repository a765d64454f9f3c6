"""Backward rules of Fourier transforms. They are linear: the rule is the transpose."""

import math

import nngrad.functions as F
from nngrad.graph import Function, Variable

from .rules import adjoint_pair, backward

# ---------------------------------------------------------------- whole arrays


def _size(f: Function) -> int:
    """The product of the sizes along which it is transformed."""
    return math.prod(f.inputs[0].shape[-1 - f.args["signal_ndim"] : -1])


@backward(F.fft)
def fft_backward(f: Function, gy: Variable) -> Variable:
    """The sum with the opposite sign: ifft without its division"""
    gx: Variable = F.ifft(gy, **f.args)
    return gx if f.args["normalized"] else gx * _size(f)


@backward(F.ifft)
def ifft_backward(f: Function, gy: Variable) -> Variable:
    """The sum with the opposite sign: fft, divided as in ifft"""
    gx: Variable = F.fft(gy, **f.args)
    return gx if f.args["normalized"] else gx / _size(f)


# ---------------------------------------------------------------- rows of real numbers


@backward(F.real_fft)
def real_fft_backward(f: Function, real: Variable, imaginary: Variable) -> Variable:
    """The sum of cosines and sines"""
    (x,) = f.inputs
    return F.real_fft_transpose(real, imaginary, size=x.shape[-1])


@backward(F.real_fft_transpose)
def real_fft_transpose_backward(f: Function, gx: Variable) -> tuple[Variable, Variable]:
    """The transform of the gradient"""
    real, imaginary = F.real_fft(gx)
    return real, imaginary


# ---------------------------------------------------------------- windows that move

adjoint_pair(F.frames, F.frames_transpose)
