"""Samples of the family `fourier`."""

import jax.numpy as jnp
import numpy as np

from . import real, sample


def matrix(size, sign=-1):
    """Cosines and sines of a transform, as (k, t) each."""
    angles = 2 * np.pi * np.outer(np.arange(size), np.arange(size)) / size
    return np.cos(angles), sign * np.sin(angles)


def transformed(x, sign):
    """Along the axis before the last, by the definition."""
    c, s = matrix(x.shape[-2], sign)
    r, i = x[..., 0], x[..., 1]
    return jnp.stack([r @ c.T - i @ s.T, r @ s.T + i @ c.T], -1)


def twice(x, sign):
    x = transformed(x, sign).swapaxes(-3, -2)
    return transformed(x, sign).swapaxes(-3, -2)


def halves(x, count=None):
    c, s = matrix(x.shape[-1])
    k = count or x.shape[-1] // 2 + 1
    return x @ c[:k].T, x @ s[:k].T


HANN = np.hanning(5)[:-1]


def short(x, window, stride, count=None):
    """Window by window, without margins."""
    size = len(window)
    parts = [halves(x[..., i:i + size] * window, count) for i in range(0, x.shape[-1] - size + 1, stride)]
    return tuple(jnp.stack(each, -1) for each in zip(*parts, strict=True))


def back(r, i, window, stride, counts):
    """By its definition: transforms back, added up and divided by the sum of squared windows."""
    size, count = len(window), r.shape[-1]
    c, s = (part[:r.shape[-2]] for part in matrix(size, 1))
    x, total = jnp.zeros((*r.shape[:-2], (count - 1) * stride + size)), np.zeros((count - 1) * stride + size)
    for n in range(count):
        part = slice(n * stride, n * stride + size)
        x = x.at[..., part].add(((r[..., n] * counts) @ c - (i[..., n] * counts) @ s) / size * window)
        total[part] += window**2
    return x, total


SAMPLES = [
    sample("fft", real(2, 3, 2), signal_ndim=1, ref=lambda x: transformed(x, -1)),
    sample("fft", real(2, 3, 2), signal_ndim=2, normalized=True, ref=lambda x: twice(x, -1) / np.sqrt(6)),
    sample("ifft", real(2, 3, 2), signal_ndim=2, ref=lambda x: twice(x, 1) / 6),
    sample("ifft", real(2, 2, 2), signal_ndim=1, normalized=True, ref=lambda x: transformed(x, 1) / np.sqrt(2)),
    sample("real_fft", real(2, 4), ref=halves),
    sample("real_fft_transpose", real(2, 2), real(2, 2), size=3,
           ref=lambda r, i: r @ matrix(3)[0][:2] + i @ matrix(3)[1][:2]),
    sample("frames", real(2, 7), size=4, stride=2, ref=lambda x: jnp.stack([x[:, :4], x[:, 2:6]], 1)),
    sample("frames_transpose", real(2, 3), shape=(6,), size=3, stride=2,
           ref=lambda y: jnp.zeros(6).at[:3].add(y[0]).at[2:5].add(y[1])),
    sample("stft", real(1, 6), window_size=4, stride=2, fft_size=4,
           ref=lambda x: short(jnp.pad(x, ((0, 0), (2, 2)), "reflect"), HANN, 2)),
    sample("istft", real(1, 3, 3), real(1, 3, 3), window_size=4, stride=2, fft_size=4, pad_mode="constant",
           ref=lambda r, i: (lambda x, total: (x[..., 2:-2] / total[2:-2]))(*back(r, i, HANN, 2, np.array([1, 2, 1])))),
    sample("stft", real(1, 6), window_size=3, stride=2, fft_size=3, window_type=(1.0, 2.0, 0.5), center=False,
           onesided=False, ref=lambda x: short(x, np.array([1.0, 2.0, 0.5]), 2, 3)),
    sample("istft", real(1, 4, 2), real(1, 4, 2), window_size=4, stride=2, fft_size=4, window_type=(1.0, 2.0, 0.5, 1.0),
           center=False, onesided=False,
           ref=lambda r, i: jnp.divide(*back(r, i, np.array([1.0, 2.0, 0.5, 1.0]), 2, np.ones(4)))),
    sample("stft", real(1, 4), window_size=4, stride=2, fft_size=4, pad_mode="constant", orders=2,
           ref=lambda x: short(jnp.pad(x, ((0, 0), (2, 2))), HANN, 2)),
]
