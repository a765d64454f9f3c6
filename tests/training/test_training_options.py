"""train_step: auxiliary results, changes of gradients, and steps that are not taken."""

from __future__ import annotations

import math

import jax
import numpy as np
import optax
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
import nngrad.solvers as S
from nngrad import Variable
from nngrad.parameter import get_parameter, get_parameters
from tests.two_layers import T, X, anew, close, error, network, put, values  # noqa: F401 - anew is a fixture


def gradients(loss: Variable) -> dict[str, np.ndarray]:
    for p in get_parameters().values():
        p.grad.zero()
    loss.forward()
    loss.backward()
    return {n: np.array(p.g, np.float64) for n, p in get_parameters().items()}


def moved_by(**options) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The parameters before a step of gradient descent at rate 1, by how much it moves them, and their gradients."""
    x, t = Variable.from_numpy_array(X), Variable.from_numpy_array(T)
    loss = error(x, t) * 8.0
    before, g = values(), gradients(loss)
    nn.train_step(loss, get_parameters(), S.Sgd(1.0), inputs=[x, t], **options)(X, T)
    return before, {n: before[n] - v for n, v in values().items()}, g


def norm(arrays) -> float:
    return math.sqrt(sum(float((np.asarray(a, np.float64) ** 2).sum()) for a in arrays))


def test_a_batch_in_parts_by_optax() -> None:
    x, part = (Variable((8, 3)), Variable((8, 2))), (Variable((2, 3)), Variable((2, 2)))
    whole, of_part = error(*x), error(*part)
    start = values()
    for _ in range(2):
        nn.train_step(whole, get_parameters(), S.Sgd(0.5), inputs=x)(X, T)
    expected = values()
    put(start)
    sgd = optax.MultiSteps(optax.sgd(0.5), 4).gradient_transformation()
    step = nn.train_step(of_part, get_parameters(), sgd, inputs=part)
    for i in (0, 1, 2, 3, 0, 1, 2, 3):
        step(X[i::4], T[i::4])
    close(values(), expected, rtol=1e-5, atol=1e-6)


# ---------------------------------------------------------------- auxiliary results


def test_auxiliary_results_have_their_structure() -> None:
    x, t = Variable((8, 3)), Variable((8, 2))
    y = network(x)
    off, size = F.mean((y - t) ** 2.0), F.mean(y**2.0)
    best = F.max(y, axis=1, only_index=True)
    loss = off + 0.5 * size
    aux = {"parts": [off, (size,)], "outputs": y, "best": best, "norm": "gradient_norm", "none": None, "x": x,
           "W": get_parameter("one/affine/W")}
    before, start = values(), None
    step = nn.train_step(loss, get_parameters(), S.Adam(0.1), inputs=[x, t], aux=aux)
    for _ in range(4):
        start = values()
        value, found = step(X, T)
    assert sorted(found) == sorted(aux) and found["none"] is None and isinstance(found["parts"][1], tuple)
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves((value, found)))
    assert found["best"].dtype == best.dtype and found["best"].shape == (8,)
    np.testing.assert_allclose(value, found["parts"][0] + 0.5 * found["parts"][1][0], rtol=1e-6)
    np.testing.assert_array_equal(found["x"], X)
    np.testing.assert_array_equal(found["W"], start["one/affine/W"])  # of before the step, which takes over its memory
    put(start)
    x.d, t.d = X, T
    g = gradients(loss)
    np.testing.assert_allclose(found["outputs"], y.d, rtol=1e-5)
    np.testing.assert_allclose(found["norm"], norm(g.values()), rtol=1e-5)
    assert not np.array_equal(before["one/affine/W"], start["one/affine/W"])


def test_measures_of_the_step_itself() -> None:
    x, t = Variable((8, 3)), Variable((8, 2))
    loss = error(x, t)
    solver = S.Sgd(0.0)
    solver.loss_scaling(2.0**10)
    step = nn.train_step(loss, get_parameters(), solver, inputs=[x, t], clip_grad_by_global_norm=1e-3,
                         aux=["gradient_norm", "gradient_norms", "parameter_norm", "finite"])
    _, (total, each, size, finite) = step(X, T)
    x.d, t.d = X, T
    g = gradients(loss)
    np.testing.assert_allclose(total, norm(g.values()), rtol=1e-5)  # neither scaled nor clipped
    assert list(each) == sorted(g)
    for name, value in each.items():
        np.testing.assert_allclose(value, norm([g[name]]), rtol=1e-5)
    np.testing.assert_allclose(size, norm(values().values()), rtol=1e-6)
    assert finite.dtype == bool and bool(finite)
    assert not bool(step(X + np.inf, T)[1][3])


def test_a_function_that_builds_returns_auxiliary_results() -> None:
    def loss(x: Variable, t: Variable):
        y = network(x)
        return F.mean((y - t) ** 2.0), {"outputs": y, "norm": "gradient_norm"}

    step = nn.train_step(loss, get_parameters, S.Sgd(0.1))
    for rows in (8, 5):
        value, aux = step(X[:rows], T[:rows])
        assert value.shape == () and aux["outputs"].shape == (rows, 2) and float(aux["norm"]) > 0
    plain = nn.train_step(lambda x, t: loss(x, t)[0], get_parameters, S.Sgd(0.1), aux="gradient_norm")
    value, total = plain(X, T)
    assert float(total) > 0
    with pytest.raises(TypeError, match="returns auxiliary results"):
        nn.train_step(loss, get_parameters, S.Sgd(0.1), aux="gradient_norm")(X, T)


# ---------------------------------------------------------------- changes of gradients


def test_clipping_by_value_and_each_gradient_by_norm() -> None:
    _, moved, g = moved_by(clip_grad_by_value=0.1)
    assert any((np.abs(v) > 0.1).any() for v in g.values())
    close(moved, {n: np.clip(g[n], -0.1, 0.1) for n in g}, rtol=1e-4, atol=1e-6)
    limit = 2.0
    _, moved, g = moved_by(clip_grad_by_norm=limit)
    lengths = {n: norm([v]) for n, v in g.items()}
    assert min(lengths.values()) < limit < max(lengths.values())
    close(moved, {n: g[n] * min(1.0, limit / lengths[n]) for n in g}, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("limit", [0.5, 1e3, math.inf])
def test_clipping_all_gradients_by_their_norm(limit: float) -> None:
    _, moved, g = moved_by(clip_grad_by_global_norm=limit)
    factor = min(1.0, limit / norm(g.values()))
    close(moved, {n: g[n] * factor for n in g}, rtol=1e-4, atol=1e-6)


def test_weight_decay_comes_last() -> None:
    before, moved, g = moved_by(
        weight_decay=lambda name: 0.25 if name.endswith("W") else 0, clip_grad_by_value=0.5, clip_grad_by_norm=0.6,
        clip_grad_by_global_norm=0.7,
    )
    changed = {n: np.clip(v, -0.5, 0.5) for n, v in g.items()}
    changed = {n: v * min(1.0, 0.6 / norm([v])) for n, v in changed.items()}
    factor = min(1.0, 0.7 / norm(changed.values()))
    assert factor < 1
    decay = {n: 0.25 * v if n.endswith("W") else 0.0 for n, v in before.items()}
    close(moved, {n: v * factor + decay[n] for n, v in changed.items()}, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dynamic", [False, True])
def test_changes_are_those_of_gradients_that_are_not_scaled(dynamic: bool) -> None:
    x, t = Variable((8, 3)), Variable((8, 2))
    loss = error(x, t)
    start, results = values(), []
    for scaling in (None, nn.DynamicLossScale() if dynamic else 2.0**12):
        put(start)
        solver = S.Momentum(0.1)
        solver.loss_scaling(scaling)
        step = nn.train_step(loss, get_parameters(), solver, inputs=[x, t], clip_grad_by_global_norm=0.05,
                             weight_decay=0.1)
        for _ in range(3):
            step(X, T)
        results.append(values())
    close(results[1], results[0], rtol=1e-5, atol=1e-7)
    assert not any([np.array_equal(v, start[n]) for n, v in results[0].items()])


def test_the_solver_s_own_methods_are_not_ignored_silently() -> None:
    x, t = Variable((8, 3)), Variable((8, 2))
    loss = error(x, t)
    solver = S.Sgd(0.1)
    step = nn.train_step(loss, get_parameters(), solver, inputs=[x, t])
    for change in (lambda: solver.weight_decay(0.1), lambda: solver.clip_grad_by_norm(1.0)):
        change()
        with pytest.warns(UserWarning, match="solver's (weight_decay|clip_grad_by_norm) has no effect") as caught:
            step(X, T)
        assert [w.filename for w in caught] == [__file__]
        step(X, T)  # said once
    solver.weight_decay(0.1)
    solver.update()
    step(X, T)


def test_options_are_checked() -> None:
    x = Variable((8, 3))
    loss = F.mean(network(x) ** 2.0)
    for kind, message, options in [
        (ValueError, "clip_grad_by_norm: must be positive", {"clip_grad_by_norm": 0}),
        (ValueError, "clip_grad_by_value: must be positive", {"clip_grad_by_value": -1}),
        (ValueError, "clip_grad_by_global_norm: must be positive", {"clip_grad_by_global_norm": math.nan}),
        (ValueError, "weight_decay: must be finite and not negative", {"weight_decay": -1}),
        (TypeError, "weight_decay of 'one/affine/W': expected a number", {"weight_decay": lambda name: "x"}),
        (ValueError, "on_nan: must be 'skip', 'raise' or None, got 'stop'", {"on_nan": "stop"}),
        (TypeError, r"averages\[0\]: expected an nn.MovingAverage, got int", {"averages": [1]}),
    ]:
        with pytest.raises(kind, match=message):
            nn.train_step(loss, get_parameters(), S.Sgd(), inputs=x, **options)


# ---------------------------------------------------------------- steps that are not taken


@pytest.mark.parametrize("on_nan", ["skip", "raise"])
def test_nothing_changes_where_something_is_not_finite(on_nan: str) -> None:
    x, t = Variable((8, 3)), Variable((8, 2))
    loss = error(PF.batch_normalization(x), t)
    solver, average = S.Adam(0.1), nn.MovingAverage(get_parameters())
    step = nn.train_step(loss, get_parameters(), solver, inputs=[x, t], on_nan=on_nan, averages=average, aux="finite")
    for _ in range(4):
        assert bool(step(X, T)[1])
    before, state, averaged = values(), solver.named_state(), average.get_states()
    bad = T.copy()
    bad[3, 1] = np.nan
    for _ in range(2):
        if on_nan == "skip":
            value, finite = step(X, bad)
            assert np.isnan(value) and not bool(finite)
        else:
            message = r"the loss is nan, and the gradients of 'bn/beta'.*are not finite"
            with pytest.raises(FloatingPointError, match=message):
                step(X, bad)
        for now, old in [(values(), before), (solver.named_state(), state), (average.get_states(), averaged)]:
            close(now, old)
    step(X, T)
    assert not np.array_equal(values()["bn/mean"], before["bn/mean"])
    assert not np.array_equal(values()["two/affine/W"], before["two/affine/W"])


def test_a_dynamic_scale_shrinks_before_anything_is_raised() -> None:
    x = Variable((4,), dtype="float16")
    w = Variable.from_numpy_array(np.ones(4), need_grad=True, dtype="float16")
    loss = F.sum(F.cast(w * x, "float32"))
    solver = S.Sgd(2.0**-12)
    solver.loss_scaling(nn.DynamicLossScale(scale=2.0**15, minimum=2.0**13))
    step = nn.train_step(loss, [w], solver, inputs=x, on_nan="raise", aux="finite")
    big = np.full(4, 6.0, np.float16)
    assert not bool(step(big)[1])
    assert float(solver.loss_scale) == 2.0**14
    assert not bool(step(big)[1])
    assert float(solver.loss_scale) == 2.0**13 and (np.array(w.d) == 1).all()
    assert bool(step(big)[1]) and (np.array(w.d) < 1).all()
    with pytest.raises(FloatingPointError, match=r"loss is .*gradients of '0' are not finite"):
        step(np.full(4, 60.0, np.float16))
    with pytest.raises(FloatingPointError, match=r"loss is inf"):
        step(np.full(4, np.inf, np.float16))
