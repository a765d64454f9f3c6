"""Fourier transforms against NumPy's and SciPy's: more sizes and arguments, inverses, dtypes, and messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.signal

import nngrad as nn
import nngrad.functions as F
from tests.refusals import refused
from tests.together import Test, at_once

RNG = np.random.default_rng(0)


def drawn(*shape: int) -> Any:
    return RNG.standard_normal(shape)


@at_once
@pytest.mark.parametrize("shape, signal_ndim", [((5, 2), 1), ((2, 3, 4, 2), 2), ((2, 3, 4, 5, 2), 3), ((1, 1, 2), 2)])
@pytest.mark.parametrize("normalized", [False, True])
def test_transforms_are_those_of_numpy(shape: tuple[int, ...], signal_ndim: int, normalized: bool) -> Test:
    x = drawn(*shape)
    axes = tuple(range(-signal_ndim, 0))
    norm = "ortho" if normalized else "backward"
    there, back = [f(x, signal_ndim, normalized) for f in (F.fft, F.ifft)]
    *found, again = yield there, back, F.ifft(there, signal_ndim, normalized)
    for y, reference in zip(found, (np.fft.fftn, np.fft.ifftn), strict=True):
        expected = reference(x[..., 0] + 1j * x[..., 1], axes=axes, norm=norm)
        np.testing.assert_allclose(y, np.stack([expected.real, expected.imag], -1), atol=1e-12)
    np.testing.assert_allclose(again, x, atol=1e-12)


WINDOWS: dict[str | None, Any] = {"hanning": "hann", "hamming": "hamming", "rectangular": "boxcar", None: "boxcar"}


@at_once
@pytest.mark.parametrize("window_type", WINDOWS)
@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("window_size, stride, fft_size", [(16, 4, 16), (8, 3, 12), (7, 2, 9)])
def test_short_time_transforms_are_those_of_scipy(
    window_type: str | None, center: bool, window_size: int, stride: int, fft_size: int
) -> Test:
    x = drawn(2, 64)
    before = (fft_size - window_size) // 2
    window = np.zeros(fft_size)
    window[before:before + window_size] = scipy.signal.get_window(WINDOWS[window_type], window_size)
    given = np.pad(x, ((0, 0), (fft_size // 2, fft_size // 2)), "reflect") if center else x
    parts = np.lib.stride_tricks.sliding_window_view(given, fft_size, axis=-1)[:, ::stride]
    expected = np.fft.rfft(parts * window).swapaxes(1, 2)
    arguments = window_size, stride, fft_size, window_type, center
    parts = F.stft(x, *arguments)
    if vanishes := not center and window[0] < 1e-6:
        with pytest.raises(ValueError, match=r"sum to 0 at position 0.*center=True"):
            F.istft(*parts, *arguments)
    real, imaginary, *back = yield *parts, *([] if vanishes else [F.istft(*parts, *arguments)])
    np.testing.assert_allclose(real + 1j * imaginary, expected, atol=1e-11)
    for found in back:
        np.testing.assert_allclose(found, x[:, :found.shape[1]], atol=1e-11)
        assert found.shape[1] > 64 - stride - fft_size % 2


@at_once
def test_signals_shorter_than_their_margins() -> Test:
    x = drawn(3)
    real, _ = F.stft(x, 8, 1, 8)
    assert real.shape == (5, 4)
    one, other = yield real, F.stft(np.pad(x, 4, "reflect"), 8, 1, 8, center=False)[0]
    np.testing.assert_allclose(one, other, atol=1e-12)


test_wrong_arguments_are_named = refused([
    ("signal_ndim", lambda: F.fft(nn.Variable((2, 3, 2)), 0)),
    ("signal_ndim", lambda: F.ifft(nn.Variable((2, 2, 2, 2, 2)), 4)),
    ("x must have a nonempty last axis", lambda: F.real_fft(nn.Variable((0,)))),
    ("size=4", lambda: F.real_fft_transpose(nn.Variable((2,)), nn.Variable((2,)), size=4)),
    ("x must have at least size=5 elements along its last", lambda: F.frames(nn.Variable((4,)), size=5, stride=1)),
    ("window_size must be between 1 and fft_size=8, got 9", lambda: F.stft(nn.Variable((1, 16)), 9, 4, 8)),
    ("y_r and y_i must have the same shape", lambda: F.istft(nn.Variable((1, 4, 3)), nn.Variable((1, 4, 3)), 8, 4, 8)),
])
