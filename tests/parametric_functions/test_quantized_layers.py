"""Layers of PF whose weights are quantised, with their options, against the functions that they are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
from nngrad.extend import Variable
from tests.refusals import refused


@pytest.fixture(autouse=True)
def _empty() -> None:
    nn.clear_parameters()
    nn.seed(0)


def drawn(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def values() -> dict[str, Any]:
    return {name.rpartition("/")[2]: p.d for name, p in nn.get_parameters(grad_only=False).items()}


X, IMAGES = Variable.from_numpy_array(drawn(2, 3, 4)), Variable.from_numpy_array(drawn(2, 4, 6, 6))


QUANTISED: list[tuple[Callable[[], Variable], Callable[..., Variable]]] = [
    (lambda: PF.fixed_point_quantized_affine(X, 3, n_w=4, delta_w=0.1, b_init=0.3, sign_b=False),
     lambda w, b, **_: F.affine(X, F.fixed_point_quantize(w, n=4, delta=0.1), F.fixed_point_quantize(b, sign=False))),
    (lambda: PF.fixed_point_quantized_affine(X, 3, quantize_w=False, quantize_b=False, base_axis=-1),
     lambda w, b: F.affine(X, w, b, base_axis=2)),
    (lambda: PF.fixed_point_quantized_convolution(IMAGES, 4, (3, 2), group=2, channel_last=True, with_bias=False),
     lambda w, **_: F.convolution(IMAGES, F.fixed_point_quantize(w), group=2, channel_last=True)),
    (lambda: PF.pow2_quantized_affine(X, 3, n_w=3, with_zero_w=True, m_w=-1, b_init=3.0, m_b=0),
     lambda w, b, **_: F.affine(X, F.pow2_quantize(w, n=3, m=-1), F.pow2_quantize(b, with_zero=False, m=0))),
    (lambda: PF.pow2_quantized_convolution(IMAGES, 4, (3, 2), pad=1, group=2, sign_w=False),
     lambda w, b, **_: F.convolution(IMAGES, F.pow2_quantize(w, sign=False, with_zero=False, m=2),
                                     F.pow2_quantize(b, with_zero=False, m=2), pad=1, group=2)),
    (lambda: PF.pruned_affine(X, 3, rate_w=0.3, prune_b=False, b_init=drawn(3)),
     lambda w, b, **_: F.affine(X, F.prune(w, rate=0.3), b)),
    (lambda: PF.pruned_convolution(IMAGES, 4, (3, 2), stride=2, dilation=(1, 2), channel_last=True),
     lambda w, b, **_: F.convolution(IMAGES, F.prune(w), b, stride=2, dilation=(1, 2), channel_last=True)),
    (lambda: PF.min_max_quantized_affine(X, 3, ql_max_w=7, w_min_max=True, quantize_b=False),
     lambda w, b, **_: F.affine(X, F.min_max_quantize(w, *ends(2, -2, 2, 7), x_min_max=True), b)),
    (lambda: PF.min_max_quantized_convolution(
        IMAGES, 4, (3, 2), qr_min_w_init=-0.1, qr_max_w_init=0.3, with_bias=False),
     lambda w, **_: F.convolution(IMAGES, F.min_max_quantize(w, *ends(4, -0.1, 0.3, 255)))),
]  # fmt: skip


def ends(axes: int, low: float, high: float, levels: float) -> list[Any]:
    return [np.full((1,) * axes, v, np.float32) for v in (low, high, 0, levels)]


@pytest.mark.parametrize("number", range(len(QUANTISED)))
def test_quantised_layers_are_what_they_are_made_of(number: int) -> None:
    layer, expected = QUANTISED[number]
    y = layer()
    y.forward()
    found = values()
    given = {name.lower(): a for name, a in found.items()}
    np.testing.assert_allclose(y.d, expected(**given).d, rtol=1e-4, atol=1e-5)
    if "W_q" in found:
        (parameter,) = [p for name, p in nn.get_parameters(grad_only=False).items() if name.endswith("/W_q")]
        assert not parameter.need_grad
        assert len(np.unique(found["W_q"])) < len(np.unique(found["W"]))


def test_ranges_along_axes() -> None:
    x = Variable.from_numpy_array(drawn(4, 3))
    lowest, highest = np.zeros((1, 3), np.float32), np.full((1, 3), 255, np.float32)
    y = PF.min_max_quantize(x, lowest, highest, x_min_max=True)
    y.forward()
    assert set(values()) == {"qr_min", "qr_max"}
    np.testing.assert_array_equal(values()["qr_min"], x.d.min(0, keepdims=True))
    np.testing.assert_allclose(y.d, x.d, atol=0.02)
    assert nn.get_parameters()["min_max_quantize/qr_min"].need_grad
    PF.min_max_quantize(x, x_min_max=True, ema=True, name="averaged")
    assert not [name for name in nn.get_parameters() if name.startswith("averaged")]


def test_parameters_that_are_fixed() -> None:
    y = PF.min_max_quantized_affine(X, 3, fix_parameters=True)
    assert not y.need_grad
    assert len(nn.get_parameters()) == 6


# ---------------------------------------------------------------- what is refused

FAILING: list[tuple[str, Callable[[], Any]]] = [
    ("pruned_affine: base_axis", lambda: PF.pruned_affine(X, 5, base_axis=7)),
    (r"pruned_convolution\(.*group=3\): channels must be a multiple of 3, got 4",
     lambda: PF.pruned_convolution(IMAGES, 6, (3, 2), group=3)),
    ("n must be between 2 and 32", lambda: PF.fixed_point_quantized_affine(X, 5, n_w=1)),
    ("ql_max must have the shape of qr_min", lambda: PF.min_max_quantize(X, 0, np.ones((1, 1, 4), np.float32))),
]  # fmt: skip


test_errors = refused(FAILING, after=lambda: not nn.get_parameters(grad_only=False))


def test_arguments_go_by_position_or_by_name() -> None:
    first = PF.fixed_point_quantized_affine(X, 3, 2, 0.3)
    second = PF.fixed_point_quantized_affine(X, w_init=0.3, n_outmaps=3, base_axis=2)
    np.testing.assert_array_equal(first.d, second.d)
    named = PF.pruned_affine(X, 3, 1, None, None, False, None, True, True, 0.5, True, 0.5, "last")
    assert named.shape == (2, 3) and "last/pruned_affine/W" in nn.get_parameters()


@pytest.mark.parametrize(("call", "message"), [
    (lambda: PF.pruned_affine(X), "pruned_affine: missing a required argument: 'n_outmaps'"),
    (lambda: PF.pruned_affine(X, 3, n_outmaps=3), "pruned_affine: multiple values for argument 'n_outmaps'"),
    (lambda: PF.pruned_affine(X, *[3] * 13), "pruned_affine: too many positional arguments"),
    (lambda: PF.pruned_affine(X, 3, rate=0.5), "pruned_affine: .*'rate'.*rate_w"),
    (lambda: PF.min_max_quantized_affine(X, 3, w_min_max="yes"), "w_min_max"),
])
def test_calls_that_do_not_fit_a_signature(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        call()
    assert not nn.get_parameters(grad_only=False)
