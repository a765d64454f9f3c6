"""Timing: what is measured. No times."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
from nngrad import Variable
from nngrad.inspection.timing import Milliseconds, Timing


class Model:
    """A small loss that is built anew at each call."""

    def __init__(self) -> None:
        self.x = Variable.from_numpy_array(np.ones((2, 3), np.float32))
        self.w = Variable.from_numpy_array(np.full((3, 2), 0.5, np.float32), need_grad=True)
        self.b = Variable.from_numpy_array(np.zeros(2, np.float32), need_grad=True)
        self.built = 0

    def __call__(self) -> Variable:
        self.built += 1
        return F.mean(F.tanh(F.affine(self.x, self.w, self.b)) ** 2)


@pytest.mark.parametrize(("iterations", "warm_up"), [(1, 1), (3, 2)])
def test_each_iteration_builds_twice_and_nothing_is_compiled_after_the_first(iterations: int, warm_up: int) -> None:
    model = Model()
    nn.executables.clear()
    result = nn.timing.measure(model, iterations, warm_up)
    assert model.built == 2 * (iterations + warm_up)
    assert len(result.samples) == iterations
    assert nn.executables.info().misses == 2  # the loss; loss and gradients, which backward() uses as well
    assert all(t >= 0 for sample in result.samples for t in sample._replace(backward=0.0))
    assert result.first >= 0 and result.device == jax.devices()[0]


def test_a_loss_whose_graph_is_there() -> None:
    model = Model()
    model.w.g = model.b.g = 3.0
    loss = model()
    result = nn.timing.measure(loss, iterations=2)
    assert len(result.samples) == 2 and model.built == 1
    assert not model.w.g.any() and not model.b.g.any()  # what was in there before has gone, as it says
    loss.forward()
    loss.backward()
    assert model.w.g.any()


def test_measuring_under_auto_forward_and_with_effects() -> None:
    x = Variable.from_numpy_array(np.random.default_rng(0).standard_normal((4, 3)).astype("f"))

    def loss() -> Variable:
        with nn.parameter_scope("timed"):
            return F.mean(F.dropout(PF.batch_normalization(x)) ** 2)

    with nn.auto_forward():
        result = nn.timing.measure(loss, iterations=2)
        assert nn.get_auto_forward()
    mean = nn.get_parameters(grad_only=False)["timed/bn/mean"]
    assert mean.d.any() and np.isfinite(mean.d).all()
    assert result.device.platform == "cpu"


def test_a_structure_that_changes_is_reported() -> None:
    x = Variable.from_numpy_array([1.0, 2.0], need_grad=True)
    numbers = itertools.count(2)
    with pytest.warns(RuntimeWarning, match="measure: the timings include a compilation after the warm-up"):
        nn.timing.measure(lambda: F.sum(x ** next(numbers)), iterations=2)


def test_arguments_are_checked() -> None:
    x = Variable.from_numpy_array([1.0], need_grad=True)
    for loss, message in (
        (3, "loss: expected a Variable, or a function that builds one, got int"),
        (lambda: 3, "loss: the function must return a Variable, got int"),
        (F.cast(x, dtype="int32"), "loss: must have a floating dtype to be differentiated, got int32"),
    ):
        with pytest.raises(TypeError, match=message):
            nn.timing.measure(loss)
    with pytest.raises(ValueError, match="loss: must be the output of a function, got a leaf"):
        nn.timing.measure(x)
    with pytest.raises(ValueError, match="loss: depends on no leaf with need_grad"):
        nn.timing.measure(F.sum(Variable((3,))))
    for name in ("iterations", "warm_up"):
        with pytest.raises(ValueError, match=f"{name}: must be 1 or more, got 0"):
            nn.timing.measure(F.sum(x), **{name: 0})
        with pytest.raises(TypeError, match=f"{name}: expected an int, got 2.5"):
            nn.timing.measure(F.sum(x), **{name: 2.5})


def test_table() -> None:
    samples = [Milliseconds(1.0, 20.5, 3.25, 40.0, 70.0), Milliseconds(3.0, 21.5, 3.75, 44.0, 80.0)]
    result = Timing(samples, 1500.0, jax.devices("cpu")[0])
    lines = str(result).splitlines()
    assert lines[0].split("  ")[0] == "ms" and lines[0].endswith("backward preparation  backward  iteration")
    assert lines[1].split() == ["average", "2.000", "21.000", "3.500", "42.000", "75.000"]
    assert lines[2].split() == ["minimum", "1.000", "20.500", "3.250", "40.000", "70.000"]
    assert lines[3].split() == ["deviation", "1.414", "0.707", "0.354", "2.828", "7.071"]
    assert lines[4] == "2 iterations on cpu:0; the first one before them, which compiles, took 1.50 s"
    assert repr(result) == "<Timing of 2 iterations, 75 ms each>"
    assert Timing(samples[:1], 0.0, result.device).deviation == (0.0,) * 5
