"""Parametric functions: names, shapes and initial values of their parameters, and what they compute."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
from nngrad import Variable
from nngrad.initializer import ConstantInitializer
from nngrad.nnabla.communicators import DataParallelCommunicator
from nngrad.parameter import clear_parameters, get_parameter, get_parameter_or_create, get_parameters, parameter_scope
from nngrad.random import seed
from tests.refusals import refused


@pytest.fixture(autouse=True)
def _empty() -> None:
    clear_parameters()
    seed(5)


def leaf(*shape: int) -> Variable:
    """A leaf with normal numbers."""
    return Variable.from_numpy_array(np.random.default_rng(1).standard_normal(shape).astype(np.float32))


def shapes() -> dict[str, tuple[int, ...]]:
    """Shapes of all parameters."""
    return {name: p.shape for name, p in get_parameters(grad_only=False).items()}


def test_affine_is_what_it_says() -> None:
    x = leaf(2, 3, 4)
    y = PF.affine(x, 5, b_init=np.arange(5.0))
    w, b = get_parameter("affine/W"), get_parameter("affine/b")
    np.testing.assert_allclose(y.d, x.d.reshape(2, 12) @ w.d + b.d, rtol=1e-5)
    gw, gb = nn.grad(F.sum(y), [w, b])
    np.testing.assert_allclose(gw.d, np.repeat(x.d.reshape(2, 12).sum(0)[:, None], 5, 1), rtol=1e-5)
    np.testing.assert_allclose(gb.d, np.full(5, 2.0))


def test_seed_and_rng_decide_initial_values() -> None:
    def weights(**options) -> np.ndarray:
        clear_parameters()
        PF.affine(leaf(2, 3), 4, **options)
        return get_parameter("affine/W").d

    seed(1)
    first, second = weights(), weights()
    seed(1)
    np.testing.assert_array_equal(weights(), first)
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(weights(rng=np.random.RandomState(2)), weights(rng=np.random.RandomState(2)))


def test_fixed_parameters_share_data_but_get_no_gradient() -> None:
    x = leaf(2, 3)
    y = F.sum(PF.affine(x, 4))
    fixed = F.sum(PF.affine(x, 4, fix_parameters=True))
    w = get_parameter("affine/W")
    assert w.need_grad
    fixed.forward()
    with pytest.warns(UserWarning, match="backward: no leaf needs a gradient"):
        fixed.backward()
    assert w.grad.is_zero
    y.forward()
    y.backward()
    assert w.g.any()
    w.d = 0.0
    assert float(fixed.d) != 0
    fixed.forward()
    assert float(fixed.d) == 0


def test_apply_w_and_apply_b() -> None:
    x = leaf(2, 3)
    y = PF.affine(x, 4, b_init=np.ones(4), apply_w=lambda w: w * 0.0, apply_b=lambda b: b * 2.0)
    np.testing.assert_array_equal(y.d, np.full((2, 4), 2.0))
    e = PF.embed(Variable.from_numpy_array([0]), 2, 3, apply_w=lambda w: w * 0.0)
    assert not e.d.any()


def test_batch_normalization_updates_running_statistics() -> None:
    x = leaf(8, 3)
    y = PF.batch_normalization(x, name="layer")
    y.forward()
    np.testing.assert_allclose(y.d, (x.d - x.d.mean(0)) / np.sqrt(x.d.var(0) + 1e-5), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(get_parameter("layer/bn/mean").d[0], 0.1 * x.d.mean(0), rtol=1e-5)
    np.testing.assert_allclose(get_parameter("layer/bn/var").d[0], 0.9 + 0.1 * x.d.var(0, ddof=1), rtol=1e-5)
    test = PF.batch_normalization(x, batch_stat=False, name="layer")
    mean, var = get_parameter("layer/bn/mean").d, get_parameter("layer/bn/var").d
    np.testing.assert_allclose(test.d, (x.d - mean) / np.sqrt(var + 1e-5), rtol=1e-4, atol=1e-5)
    y, mean, var = PF.batch_normalization(x, output_stat=True, name="layer")
    np.testing.assert_allclose(mean.d.ravel(), x.d.mean(0), rtol=1e-4, atol=1e-6)


def test_normalisations_are_those_of_f() -> None:
    x, z = leaf(4, 6, 3), leaf(4, 6, 3) * 2
    beta, gamma = (np.linspace(a, 2, 6).reshape(1, 6, 1) for a in (-1, 0.5))
    given = {"gamma": gamma, "beta": beta}
    one = DataParallelCommunicator()
    one.init()
    for y, expected in [
        (PF.fused_batch_normalization(x, z, param_init=given), F.fused_batch_normalization(x, beta, gamma, z=z)),
        (PF.sync_batch_normalization(x, one, param_init=given, name="b"), F.batch_normalization(x, beta, gamma)),
        (PF.instance_normalization(x, param_init=given), F.instance_normalization(x, beta, gamma)),
        (PF.group_normalization(x, 3, param_init=given), F.group_normalization(x, beta, gamma, num_groups=3)),
    ]:
        np.testing.assert_allclose(y.d, expected.d, rtol=1e-6)
    y, mean, variance = PF.instance_normalization(x, output_stat=True)
    np.testing.assert_allclose(mean.d[..., 0], x.d.mean(2), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(variance.d[..., 0], x.d.var(2), rtol=1e-5)


def test_spectral_norm_finds_the_largest_singular_value() -> None:
    w = leaf(4, 3, 2)
    for dim, itr in ((0, 1), (1, 2), (-1, 1)):
        y = PF.spectral_norm(w, dim=dim, itr=itr, name=f"axis{dim}")
        u = get_parameter(f"axis{dim}/spectral-norm/u")
        for _ in range(60):
            y.forward()
        matrix = np.moveaxis(w.d, dim, 0).reshape(w.shape[dim], -1)
        left, values, _ = np.linalg.svd(matrix)
        np.testing.assert_allclose(y.d, w.d / values[0], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(np.abs(u.d), np.abs(left[:, 0]), rtol=1e-3, atol=1e-4)
        before = u.d.copy()
        PF.spectral_norm(w * leaf(1, 3, 1), dim=dim, test=True, name=f"axis{dim}").forward()
        np.testing.assert_array_equal(u.d, before)


def test_mean_subtraction_averages_over_all_batches() -> None:
    data = np.random.default_rng(0).standard_normal((5, 4, 3)).astype(np.float32)
    x = Variable((4, 3))
    y = PF.mean_subtraction(x)
    for i, batch in enumerate(data, start=1):
        x.d = batch
        y.forward()
        np.testing.assert_allclose(y.d, batch - data[:i].mean((0, 1)), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(get_parameter("mean_subtraction/t").d, [5])
    fixed = PF.mean_subtraction(x, update_running_mean=False)
    fixed.forward()
    np.testing.assert_allclose(fixed.d, data[-1] - data.mean((0, 1)), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(get_parameter("mean_subtraction/t").d, [5])


def test_errors() -> None:
    with pytest.raises(ValueError, match="channels must be a multiple of 2, got 3"):
        PF.convolution(leaf(1, 3, 4), 4, (2,), group=2)
    with pytest.raises(TypeError, match=r"convolution: kernel must be an int or a tuple of ints, got 2.5"):
        PF.convolution(leaf(1, 3, 4), 4, 2.5)
    with pytest.raises(TypeError, match="convolution: argument 'pad' must be an int or a tuple of ints"):
        PF.convolution(leaf(1, 3, 4), 4, 2, pad="same")
    for division in (None, "model"):
        with pytest.raises(TypeError, match="affine: n_outmaps must be an int or a tuple of ints, got 'four'"):
            PF.affine(leaf(2, 3), "four", sharding=division)  # type: ignore[arg-type,call-overload]
    with pytest.raises(ValueError, match="base_axis"):
        PF.affine(leaf(2, 3), 4, base_axis=5)
    with pytest.raises(ValueError, match="param_init has no parameter scale; the parameters"):
        PF.batch_normalization(leaf(2, 3), param_init={"scale": 1.0})
    PF.affine(leaf(2, 3), 4)
    with pytest.raises(ValueError, match=r"'affine/W' exists with shape \(3, 4\), but \(3, 5\) was requested"):
        PF.affine(leaf(2, 3), 5)


X, IMAGE = leaf(2, 3), leaf(2, 3, 5, 5)
FAILING = [
    (TypeError, "affine: inp must be .* got None", lambda: PF.affine(None, 3)),
    (TypeError, "convolution: inp must be .* got None", lambda: PF.convolution(None, 3, (3, 3))),
    (TypeError, "layer_normalization: inp must be .* got 'a'", lambda: PF.layer_normalization("a")),
    (TypeError, "affine: base_axis must be an int, got 1.5", lambda: PF.affine(X, 3, base_axis=1.5)),
    (ValueError, "affine: base_axis -3 is out of range", lambda: PF.affine(X, 3, base_axis=-3)),
    (ValueError, "affine: n_outmaps must be 1 or more, got 0", lambda: PF.affine(X, 0)),
    (ValueError, "affine: n_outmaps must be 1 or more", lambda: PF.affine(X, (2, -1))),
    (ValueError, r"convolution: kernel must be 1 or more, got \(0, 3\)", lambda: PF.convolution(IMAGE, 2, (0, 3))),
    (TypeError, "convolution: kernel must be an int or", lambda: PF.convolution(IMAGE, 2, (3.5, 3))),
    (ValueError, "deconvolution: kernel must be 1 or more", lambda: PF.deconvolution(IMAGE, 2, (0, 3))),
    (ValueError, "depthwise_convolution: kernel", lambda: PF.depthwise_convolution(IMAGE, (0, 3))),
    (ValueError, "depthwise_convolution: multiplier", lambda: PF.depthwise_convolution(IMAGE, (3, 3), multiplier=0)),
    (ValueError, "convolution: outmaps must be 1 or more, got -1", lambda: PF.convolution(IMAGE, -1, (3, 3))),
    (TypeError, "deconvolution: outmaps must be an int, got 2.5", lambda: PF.deconvolution(IMAGE, 2.5, (3, 3))),
    (ValueError, "convolution: group must be 1 or more", lambda: PF.convolution(IMAGE, 2, (3, 3), group=0)),
    (ValueError, "embed: n_features must be 1 or more", lambda: PF.embed([0], 3, 0)),
    (ValueError, r"decay_rate must be between 0 and 1, got 5\.0", lambda: PF.batch_normalization(X, decay_rate=5.0)),
    (ValueError, "decay_rate must be between 0 and 1, got", lambda: PF.batch_normalization(X, decay_rate=float("nan"))),
    (ValueError, r"depthwise_deconvolution\(.*divisor=2\): channels must be a multiple of 2, got 3",
     lambda: PF.depthwise_deconvolution(IMAGE, (3, 3), divisor=2)),
    (TypeError, "comm must be a communicator, or None", lambda: PF.sync_batch_normalization(X, "mpi")),
    (ValueError, "spectral_norm: dim 2 is out of range", lambda: PF.spectral_norm(X, dim=2)),
    (ValueError, "spectral_norm: itr must be at least 1, got 0", lambda: PF.spectral_norm(X, itr=0)),
    (ValueError, "spectral_norm: eps must be positive, got 0", lambda: PF.spectral_norm(X, eps=0.0)),
    (ValueError, "group_normalization: num_groups must divide the.*got 2", lambda: PF.group_normalization(X, 2)),
    (ValueError, "mean_subtraction: base_axis 2 is out of range", lambda: PF.mean_subtraction(X, base_axis=2)),
    (TypeError, "param_init must be a dict", lambda: PF.batch_normalization(X, param_init=3)),
    (TypeError, "affine: apply_w must be a function of a Variable, got 5", lambda: PF.affine(X, 3, apply_w=5)),
    (TypeError, "embed: apply_w must be a function", lambda: PF.embed([0], 3, 2, apply_w=5)),
    (TypeError, "affine: argument 'b_init' must be a function or an array", lambda: PF.affine(X, 3, b_init="zero")),
    (ValueError, r"'affine/b' has shape \(3,\)", lambda: PF.affine(X, 3, b_init=np.ones(4))),
    (ValueError, "kernel spans 9", lambda: PF.convolution(IMAGE, 2, (9, 9))),
    (ValueError, "3 columns meet 2 rows|must have 3 rows", lambda: PF.affine(X, 4, apply_w=lambda w: w[:2])),
    (ZeroDivisionError, "by zero", lambda: PF.affine(X, 4, apply_w=lambda w: PF.affine(w, 3, name="a") / (1 // 0))),
]


test_a_call_that_fails_leaves_no_parameters = refused(FAILING, after=lambda: not shapes())


def test_a_call_that_fails_leaves_older_parameters() -> None:
    w = get_parameter_or_create("affine/W", (3, 4))
    for fails in (True, False):
        with pytest.raises(TypeError, match="apply_b") if fails else nullcontext():
            PF.affine(X, 4, apply_b=5 if fails else None)
        assert get_parameter("affine/W") is w
        assert ("affine/b" in shapes()) is not fails


def test_a_call_within_one_that_fails_is_undone_too() -> None:
    @PF.parametric_function_api("block")
    def block(x: Variable, units: int) -> Variable:
        with pytest.raises(ValueError, match="n_outmaps"):
            PF.affine(x, 0, name="none")
        return PF.affine(PF.affine(x, 3, name="one"), units, name="two")

    with pytest.raises(TypeError, match="n_outmaps"):
        block(X, "four")
    assert not shapes()
    block(X, 4)
    assert len(shapes()) == 4
    with pytest.raises(TypeError, match="block: x must be a Variable, an array or a number, got None"):
        block(None, 4)


def test_a_user_s_own() -> None:
    @PF.parametric_function_api("scale")
    def scale(x: Variable, factor: float = 1.0) -> Variable:
        return x * get_parameter_or_create("s", (), ConstantInitializer(1)) * factor

    with parameter_scope("net"):
        y = scale(leaf(2), 3.0, name="a")
    assert list(get_parameters()) == ["net/a/scale/s"]
    np.testing.assert_allclose(y.d, 3 * leaf(2).d)
