"""train_step(accumulate=k): a batch in parts, in one executable."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
import nngrad.solvers as S
from nngrad import Variable
from nngrad.parameter import clear_parameters, get_parameter, get_parameters
from tests.two_layers import anew, close, error, put, values  # noqa: F401 - anew is a fixture

RNG = np.random.default_rng(0)
X = RNG.standard_normal((12, 3)).astype(np.float32)
T = RNG.standard_normal((12, 2)).astype(np.float32)


def penalized(x: Variable, t: Variable) -> Variable:
    """A loss with a penalty on gradients, so that its gradient is of second order."""
    x.need_grad = True
    y = PF.affine(F.tanh(PF.affine(x, 4, name="one")), 1, name="two")
    (gx,) = nn.grad([F.sum(y)], [x])
    return F.mean(y * F.sum(t, axis=1, keepdims=True)) + F.mean((F.sum(gx**2.0, axis=1) - 1.0) ** 2.0)


def trained(loss, count: int, scaling=None, start=None, steps: int = 3, make=S.Adam, **options):
    """Losses and parameters of a few steps, from the same start."""
    x, t = Variable((12 // count, 3)), Variable((12 // count, 2))
    graph = loss(x, t)
    put(start or {})
    solver = make(0.05)
    solver.loss_scaling(scaling)
    step = nn.train_step(graph, get_parameters(), solver, inputs=[x, t], accumulate=count, **options)
    return np.array([step(X, T) for _ in range(steps)]), values()


@pytest.mark.parametrize(("loss", "count"), [(error, 12), (penalized, 3)])
def test_same_as_the_whole_batch(loss, count: int) -> None:
    loss(Variable((12, 3)), Variable((12, 2)))
    start = values()
    whole = trained(loss, 1, start=start)
    parts = trained(loss, count, start=start)
    np.testing.assert_allclose(parts[0], whole[0], rtol=1e-5)
    close(parts[1], whole[1], rtol=1e-4, atol=1e-5)
    assert not any([np.array_equal(v, start[n]) for n, v in whole[1].items()])


@pytest.mark.parametrize("options", [
    {"recompute": "sqrt", "clip_grad_by_global_norm": 0.01},
    {"weight_decay": 0.1, "scaling": nn.DynamicLossScale(), "on_nan": "skip"},
])  # fmt: skip
def test_other_options_act_on_the_sum(options: dict) -> None:
    error(Variable((12, 3)), Variable((12, 2)))
    start = values()
    whole = trained(error, 1, start=start, make=S.Momentum, **options)
    parts = trained(error, 4, start=start, make=S.Momentum, **options)
    np.testing.assert_allclose(parts[0], whole[0], rtol=1e-5)
    close(parts[1], whole[1], rtol=1e-4, atol=1e-6)


def test_random_functions_draw_anew_for_each_part() -> None:
    x = Variable((3, 3))
    w = Variable.from_numpy_array(np.ones((3, 2), np.float32), need_grad=True)
    mask = F.dropout(F.constant(1.0, shape=(64,)), 0.5)
    step = nn.train_step(F.mean(F.affine(x, w)) + F.mean(mask), [w], S.Sgd(0.0), inputs=x, accumulate=4, aux=mask)
    first, second = (np.array(step(X)[1]) for _ in range(2))
    assert first.shape == (4, 64)
    assert len({row.tobytes() for row in [*first, *second]}) == 8


def test_running_statistics_are_updated_part_after_part() -> None:
    x, t = Variable((3, 3)), Variable((3, 2))
    loss = error(PF.batch_normalization(x), t)
    step = nn.train_step(loss, get_parameters(), S.Sgd(0.0), inputs=[x, t], accumulate=4)
    expected = np.zeros(3)
    for _ in range(2):
        step(X, T)
        for i in range(4):
            part = X[i::4]
            expected = 0.9 * expected + 0.1 * part.mean(0)
    np.testing.assert_allclose(get_parameter("bn/mean").d[0], expected, rtol=1e-4)


def test_auxiliary_results_are_means_or_stacks() -> None:
    x, t = Variable((3, 3)), Variable((3, 2))
    y = PF.affine(x, 2)
    size, outputs = F.mean(y**2.0), y
    best = F.sum(F.max(y, axis=1, only_index=True))
    step = nn.train_step(F.mean((y - t) ** 2.0), get_parameters(), S.Sgd(0.0), inputs=[x, t], accumulate=4,
                         aux={"size": size, "y": outputs, "best": best, "norm": "gradient_norm"})
    loss, aux = step(X, T)
    expected = X @ get_parameter("affine/W").d + get_parameter("affine/b").d
    np.testing.assert_allclose(aux["y"].swapaxes(0, 1).reshape(12, 2), expected, rtol=1e-5)
    np.testing.assert_allclose(aux["size"], (expected**2).mean(), rtol=1e-5)
    assert aux["best"].shape == (4,) and int(aux["best"].sum()) == expected.argmax(1).sum()
    np.testing.assert_allclose(loss, ((expected - T) ** 2).mean(), rtol=1e-5)
    assert aux["norm"].shape == ()


def test_small_gradients_add_up_in_float32() -> None:
    x = Variable((1,), dtype="float16")
    w = Variable.from_numpy_array(np.zeros(1), need_grad=True, dtype="float16")
    step = nn.train_step(F.sum(w * x), [w], S.Sgd(1.0), inputs=x, accumulate=4096)
    step(np.full(4096, 1.0, np.float16))  # whose sum in float16 stops at 2048
    assert float(w.d[0]) == -1.0


def test_one_bad_part_skips_the_step() -> None:
    x, t = Variable((3, 3)), Variable((3, 2))
    loss = error(PF.batch_normalization(x), t)
    step = nn.train_step(loss, get_parameters(), S.Adam(0.1), inputs=[x, t], accumulate=4, on_nan="skip")
    before = values()
    bad = X.copy()
    bad[4, 1] = np.inf
    step(bad, T)
    close(values(), before)
    step(X, T)
    assert not np.array_equal(values()["bn/mean"], before["bn/mean"])


def memory(rows: int, count: int) -> int:
    """Bytes of temporaries that the compiler plans for a step with so many rows in a part."""
    clear_parameters()
    x, t = Variable((rows, 32)), Variable((rows, 1))
    h = x
    for i in range(3):
        h = F.tanh(PF.affine(h, 64, name=str(i)))
    step = nn.train_step(F.mean((PF.affine(h, 1) - t) ** 2.0), get_parameters(), S.Sgd(0.1), inputs=[x, t],
                         accumulate=count)
    given = np.zeros((rows * count, 32), np.float32), np.zeros((rows * count, 1), np.float32)
    solver = step._solver
    params = tuple(p.data.raw() for p in solver._variables)
    compiled = jax.jit(step._computation).lower(params, solver._flat_state(), (solver._rate, given, [])).compile()
    return compiled.memory_analysis().temp_size_in_bytes


def test_memory_is_that_of_one_part() -> None:
    part, parts, whole = memory(512, 1), memory(512, 8), memory(4096, 1)
    weights = 4 * (33 * 64 + 2 * 65 * 64 + 65)
    assert whole > 6 * part
    # Beside a part there are the sums of the gradients, and a part of the inputs.
    assert parts < part + 3 * weights + 2 * 4 * 512 * 33
