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


@at_once
def test_each_is_the_transpose_of_the_other_but_for_a_number() -> Test:
    """<fft(x), y> = 12 <x, ifft(y)> for 12 places, as graphs: the gradient is one transform."""
    x = nn.Variable.from_numpy_array(drawn(2, 3, 4, 2), need_grad=True)
    y = nn.Variable.from_numpy_array(drawn(2, 3, 4, 2))
    (gx,) = nn.grad([F.fft(x, 2)], [x], grad_outputs=[y])
    slope, transformed = yield gx, F.ifft(y, 2)
    np.testing.assert_allclose(slope, 12 * transformed, atol=1e-12)


@at_once
@pytest.mark.parametrize("size", [1, 4, 5])
def test_real_rows(size: int) -> Test:
    x = drawn(3, size)
    parts = F.real_fft(x)
    real, imaginary, back = yield *parts, F.real_fft_transpose(*parts, size=size)
    np.testing.assert_allclose(real + 1j * imaginary, np.fft.rfft(x), atol=1e-12)
    np.testing.assert_allclose(np.sum(real**2 + imaginary**2), np.sum(x * back), atol=1e-12)


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
@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("pad_mode", ["constant", "reflect"])
def test_transposes_by_name_are_the_gradients(center: bool, pad_mode: str) -> Test:
    arguments = {"window_size": 6, "stride": 2, "fft_size": 8, "window_type": "hamming", "center": center,
                 "pad_mode": pad_mode}
    if not center:
        arguments["window_size"] = 8
    x = nn.Variable.from_numpy_array(drawn(2, 16), need_grad=True)
    parts = F.stft(x, **arguments)
    given = [nn.Variable.from_numpy_array(drawn(*parts[0].shape), need_grad=True) for _ in range(2)]
    gradients = [*nn.grad(list(parts), [x], grad_outputs=given),
                 *nn.grad([F.istft(*given, **arguments)], given, grad_outputs=[x])]
    by_name = [F.istft(*given, **arguments, as_stft_backward=True), *F.stft(x, **arguments, as_istft_backward=True)]
    found = yield gradients + by_name
    for one, other in zip(found[:3], found[3:], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)


@at_once
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_dtypes_are_kept(dtype: str) -> Test:
    x = nn.Variable.from_numpy_array(drawn(2, 16), need_grad=True, dtype=dtype)
    pair = F.reshape(x, shape=(2, 8, 2))
    parts = F.stft(x, 8, 4, 8)
    results = [F.fft(pair, 1), F.ifft(pair, 2), *parts, F.istft(*parts, 8, 4, 8)]
    gradients = [nn.grad([F.sum(y * y)], [x])[0] for y in results]
    assert {each.dtype for each in [*results, *gradients]} == {x.dtype}
    (again,) = yield results[-1:]
    np.testing.assert_allclose(np.asarray(again, float), np.asarray(x.d, float),
                               atol={"float16": 1e-2, "bfloat16": 0.1, "float32": 1e-5, "float64": 1e-12}[dtype])


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
    ("x must have 2 axes or more, the last", lambda: F.fft(nn.Variable((2, 3)), 1)),
    ("x must have 2 axes or more, the last", lambda: F.fft(nn.Variable((2,)), 1)),
    ("x must not be empty along the transformed axes", lambda: F.fft(nn.Variable((0, 2)), 1)),
    ("x must have a nonempty last axis", lambda: F.real_fft(nn.Variable((0,)))),
    ("size=4", lambda: F.real_fft_transpose(nn.Variable((2,)), nn.Variable((2,)), size=4)),
    ("x must have at least size=5 elements along its last", lambda: F.frames(nn.Variable((4,)), size=5, stride=1)),
    ("window_size must be between 1 and fft_size=8, got 9", lambda: F.stft(nn.Variable((1, 16)), 9, 4, 8)),
    ("stride", lambda: F.stft(nn.Variable((1, 16)), 8, 0, 8)),
    ("window_type", lambda: F.stft(nn.Variable((1, 16)), 8, 4, 8, "blackman")),
    ("mode", lambda: F.stft(nn.Variable((1, 16)), 8, 4, 8, pad_mode="wrap")),
    ("x must be at least fft_size=8 long with padding", lambda: F.stft(nn.Variable((1, 7)), 8, 4, 8, center=False)),
    ("length", lambda: F.stft(nn.Variable((1, 15)), 8, 4, 8, as_istft_backward=True)),
    ("y_r and y_i must have the same shape", lambda: F.istft(nn.Variable((1, 4, 3)), nn.Variable((1, 4, 3)), 8, 4, 8)),
    ("y_r and y_i must have the same shape", lambda: F.istft(nn.Variable((1, 5, 3)), nn.Variable((1, 5, 2)), 8, 4, 8)),
    ("sum to 0", lambda: F.istft(nn.Variable((1, 5, 3)), nn.Variable((1, 5, 3)), 8, 8, 8)),
])


def test_windows_may_be_arrays_and_must_fit() -> None:
    from_ = nn.Variable.from_numpy_array
    x, window = from_(np.random.default_rng(0).standard_normal(12)), np.hamming(5)[:-1]
    named, given = (F.stft(x, 4, 2, 4, w)[0].d for w in ("hamming", window))
    np.testing.assert_allclose(given, named, rtol=1e-14)
    for wrong, message in [("kaiser", "window_type must be one of"), (np.ones(3), "must have window_size=4 numbers"),
                           (from_(np.ones(4)), "not a Variable"),
                           (3.0, "must be a name, or window_size=4 numbers")]:
        with pytest.raises((TypeError, ValueError), match=message):
            F.stft(x, 4, 2, 4, wrong)
