"""MovingAverage: averages of parameters, by training steps and by hand."""

from __future__ import annotations

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
import nngrad.solvers as S
from nngrad import Variable
from nngrad.parameter import get_parameter, get_parameters
from tests.two_layers import T, X, anew, close, error, put, values  # noqa: F401 - anew is a fixture


def network() -> tuple[Variable, list[Variable]]:
    x, t = Variable((8, 3)), Variable((8, 2))
    return error(x, t), [x, t]


def averaged(average: nn.MovingAverage) -> dict[str, np.ndarray]:
    return {n: np.array(p.d) for n, p in average.get_parameters().items()}


@pytest.mark.parametrize("in_step", [True, False])
@pytest.mark.parametrize("corrected", [True, False])
def test_it_is_the_weighted_mean_of_the_steps(in_step: bool, corrected: bool) -> None:
    loss, inputs = network()
    average = nn.MovingAverage(get_parameters(), 0.8, bias_correction=corrected)
    seen, weights = ([], []) if corrected else ([values()], [1.0])
    step = nn.train_step(loss, get_parameters(), S.Adam(0.1), inputs=inputs, averages=average if in_step else ())
    for _ in range(5):
        step(X, T)
        if not in_step:
            average.update()
        seen.append(values())
        weights = [0.8 * w for w in weights] + [0.2]
    assert average.count == 5
    means = {n: sum(w * s[n].astype(float) for w, s in zip(weights, seen, strict=True)) / sum(weights) for n in seen[0]}
    close(averaged(average), means, rtol=1e-5, atol=1e-6)


def test_applied_within_a_block_alone() -> None:
    loss, inputs = network()
    average = nn.MovingAverage(get_parameters(), 0.5)
    step = nn.train_step(loss, get_parameters(), S.Adam(0.1), inputs=inputs, averages=average)
    for _ in range(4):
        step(X, T)
    before = values()
    inputs[0].d, inputs[1].d = X, T

    def losses() -> float:
        loss.forward()
        return float(loss.d)

    plain = losses()
    with average.applied():
        close(values(), averaged(average))
        within = losses()
    assert within != plain and losses() == plain
    with pytest.raises(ZeroDivisionError), average.applied():
        1 / 0  # noqa: B018
    close(values(), before)
    step(X, T)
    assert not np.array_equal(values()["two/affine/W"], before["two/affine/W"])


def test_training_within_the_block_is_refused() -> None:
    loss, inputs = network()
    average = nn.MovingAverage(get_parameters(), 0.5)
    step = nn.train_step(loss, get_parameters(), S.Adam(0.1), inputs=inputs, averages=average)
    for _ in range(4):
        step(X, T)
    before = values()
    with pytest.raises(RuntimeError, match="was written to within the block"), average.applied():
        step(X, T)
    close(values(), before)
    for _ in range(4):
        step(X, T)
    assert all(np.isfinite(v).all() for v in values().values())


def test_state_is_restored() -> None:
    loss, inputs = network()
    start = values()

    def run(steps: int, average: nn.MovingAverage, solver: S.Solver) -> None:
        step = nn.train_step(loss, get_parameters(), solver, inputs=inputs, averages=[average])
        for _ in range(steps):
            step(X, T)

    whole, solver = nn.MovingAverage(get_parameters(), 0.9), S.Adam(0.1)
    run(4, whole, solver)
    expected = whole.get_states()
    put(start)
    first, solver = nn.MovingAverage(get_parameters(), 0.9), S.Adam(0.1)
    run(2, first, solver)
    second = nn.MovingAverage(get_parameters(), 0.9)
    second.set_states(first.get_states())
    run(2, second, solver)
    assert list(expected) == ["count", *[f"average:{n}" for n in start]]
    close(second.get_states(), expected)
    for kind, message, states in [
        (TypeError, "expected arrays by name, got list", []),
        (ValueError, r"missing \['count'\], unknown \[\]", {n: v for n, v in expected.items() if n != "count"}),
        (ValueError, r"'count' is a counter and must not be negative", {**expected, "count": np.int32(-1)}),
        (ValueError, r"'average:two/affine/b' must be float32\[2\]",
         {**expected, "average:two/affine/b": np.zeros(3, np.float32)}),
    ]:
        with pytest.raises(kind, match=message):
            second.set_states(states)


def test_running_statistics_and_skipped_steps() -> None:
    x = Variable((8, 3))
    loss = F.mean(PF.affine(PF.batch_normalization(x), 2) ** 2.0)
    everything = get_parameters(grad_only=False)
    solver = S.Sgd(0.1)
    solver.loss_scaling(nn.DynamicLossScale())
    average = nn.MovingAverage(everything, 0.5)
    step = nn.train_step(loss, get_parameters(), solver, inputs=x, averages=average)
    step(X)
    mean = np.array(get_parameter("bn/mean").d)
    step(2 * X)
    expected = (np.array(get_parameter("bn/mean").d) + 0.5 * mean) / 1.5
    np.testing.assert_allclose(averaged(average)["bn/mean"], expected, rtol=1e-5)
    before = average.get_states()
    step(X * np.inf)  # which the loss scale skips
    assert solver.skipped_updates == 1
    close(average.get_states(), before)


def test_averages_in_the_loss() -> None:
    """A teacher that is the average of its pupil."""
    x = Variable((8, 3))
    w = Variable.from_numpy_array(np.ones((3, 1), np.float32), need_grad=True)
    average = nn.MovingAverage({"w": w}, 0.5, bias_correction=False)
    teacher = average.get_parameters()["w"]
    loss = F.mean((F.affine(x, w) - F.affine(x, teacher) - 1.0) ** 2.0)
    step = nn.train_step(loss, [w], S.Sgd(0.1), inputs=x, averages=average)
    expected_w = expected = np.ones((3, 1))
    for _ in range(3):
        difference = X @ expected_w - X @ expected - 1.0
        expected_w = expected_w - 0.1 * 2 * X.T @ difference / 8
        step(X)
        expected = 0.5 * expected + 0.5 * expected_w
        np.testing.assert_allclose(w.d, expected_w, rtol=1e-5)
        np.testing.assert_allclose(teacher.d, expected, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["bfloat16", "float64"])
def test_averages_have_float32_at_least(dtype: str) -> None:
    x = Variable((3,), dtype=dtype)
    w = Variable.from_numpy_array(np.ones(3), need_grad=True, dtype=dtype)
    average = nn.MovingAverage([w], 0.999, bias_correction=False)
    assert average.get_parameters()["0"].dtype == ("float64" if dtype == "float64" else "float32")
    step = nn.train_step(F.sum(w * x), [w], S.Sgd(1.0), inputs=x, averages=average)
    for _ in range(2):
        step(np.ones(3))
    np.testing.assert_allclose(average.get_parameters()["0"].d, 0.999**2 + 0.001 * (0 - 1), rtol=1e-6)
    with average.applied():
        assert w.dtype == dtype and float(w.d[0]) == float(np.asarray(0.997001).astype(w.dtype))
