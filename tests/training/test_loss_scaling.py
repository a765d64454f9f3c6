"""Loss scaling: static and dynamic, in the loop and in train_step, in float16, bfloat16 and float32."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nngrad as nn
import nngrad.functions as F
import nngrad.solvers as S
from nngrad import DynamicLossScale, Variable
from tests.solver_states import state_arrays

RNG = np.random.default_rng(0)
X = RNG.standard_normal((32, 8)).astype(np.float32)
T = RNG.standard_normal((32, 1)).astype(np.float32)
TINY = 2.0**-24
"""Multiplies a loss such that its gradients are below what float16 holds, of which this is the smallest."""


RATE = 0.05
"""Learning rate for the loss itself."""


def parameters(dtype: object = "float32") -> dict[str, Variable]:
    """The weights of two layers."""
    rng = np.random.default_rng(1)
    shapes = {"w": (8, 16), "v": (16, 1)}
    return {n: Variable.from_numpy_array(0.3 * rng.standard_normal(s), need_grad=True, dtype=dtype)
            for n, s in shapes.items()}


def network_loss(params: dict[str, Variable], dtype: object, factor: float) -> Variable:
    """A mean squared error that is computed in `dtype`, times `factor`."""
    x, t, w, v = (F.cast(a, dtype=np.dtype(dtype)) for a in (X, T, params["w"], params["v"]))
    return F.mean((F.affine(F.tanh(F.affine(x, w)), v) - t) ** 2) * factor


def run(solver: S.Solver, loss: Variable, params: dict[str, Variable], steps: int, fused: bool = False) -> None:
    """Some steps, in the loop or by `train_step`."""
    if fused:
        step = nn.train_step(loss, params, solver)
        for _ in range(steps):
            step()
        return
    solver.set_parameters(params, reset=False)
    for _ in range(steps):
        loss.forward()
        solver.zero_grad()
        loss.backward(loss_scale=None if solver.scaling is None else solver.loss_scale)
        solver.update()


def trained(
    dtype: object, scaling: Any, kept_as: object = "float32", fused: bool = False, factor: float = TINY, steps: int = 60
) -> tuple[S.Solver, dict[str, Variable]]:
    """A solver and parameters after some steps with the loss computed in `dtype`."""
    params, solver = parameters(kept_as), S.Momentum(RATE / factor)
    solver.set_parameters(params)
    solver.loss_scaling(scaling)
    run(solver, network_loss(params, dtype, factor), params, steps, fused)
    return solver, params


def error_of(params: dict[str, Variable]) -> float:
    """The error of the network in float32."""
    return float(network_loss(params, "float32", 1.0).d)


# ---------------------------------------------------------------- training in half precision


@pytest.mark.filterwarnings("ignore:train_step. the graph computes in float16")
@pytest.mark.parametrize(("kept_as", "fused"), [("float32", False), ("float16", True)])
def test_float16_learns_with_a_scale_what_it_does_not_learn_without(kept_as: str, fused: bool) -> None:
    untrained, start = parameters(kept_as), error_of(parameters(kept_as))
    _, without = trained("float16", None, kept_as, fused)
    for n, p in without.items():  # all gradients are zero
        np.testing.assert_array_equal(p.d, untrained[n].d)
    reference = error_of(trained("float32", None, "float32", fused)[1])
    for scaling in (2.0**15, DynamicLossScale(interval=20)):
        solver, params = trained("float16", scaling, kept_as, fused)
        assert error_of(params) < 0.05 * start
        assert error_of(params) < 2 * reference + 1e-3 * start
        assert all(p.dtype == kept_as for p in params.values())
        assert not solver.skipped_updates or isinstance(scaling, DynamicLossScale)


@pytest.mark.parametrize("fused", [False, True], ids=["loop", "train_step"])
def test_too_large_a_scale_is_fatal_if_static_and_found_out_if_dynamic(fused: bool) -> None:
    with pytest.raises(ValueError, match=r"does not fit in float16"):
        trained("float16", 2.0**24, fused=fused, steps=1)
    _, params = trained("float16", 2.0**15, fused=fused, factor=2.0**6, steps=2)
    assert not any(np.isfinite(p.d).all() for p in params.values())
    solver, params = trained("float16", DynamicLossScale(2.0**24, interval=1000), fused=fused, factor=1.0, steps=100)
    start = error_of(parameters())
    assert error_of(params) < 0.05 * start
    assert solver.skipped_updates >= 9  # a float16 seed is infinite from 2^16 on
    assert float(solver.loss_scale) == 2.0 ** (24 - solver.skipped_updates)


def test_float16_with_a_scale_equals_float32_without_where_both_are_exact() -> None:
    """Every number on the way is a small integer times a power of two. The true gradients are 4 and 5 times 2^-28,
    where the smallest number of float16 is 2^-24."""
    x = np.array([[1.0, 2.0], [3.0, -1.0], [0.0, 4.0]]) * 2.0**-14

    def after(dtype: str, scaling: Any, fused: bool) -> np.ndarray:
        w = Variable.from_numpy_array([[1.0], [-2.0]], need_grad=True)
        loss = F.sum(F.cast(x, dtype=dtype) @ F.cast(w, dtype=dtype)) * 2.0**-14
        solver = S.Sgd(2.0**23)
        solver.loss_scaling(scaling)
        run(solver, loss, {"w": w}, 3, fused)
        return w.d

    for fused in (False, True):
        exact = after("float32", None, fused)
        np.testing.assert_array_equal(exact, [[1 - 3 * 4 / 32], [-2 - 3 * 5 / 32]])
        np.testing.assert_array_equal(after("float16", 2.0**15, fused), exact)
        np.testing.assert_array_equal(after("float16", DynamicLossScale(2.0**10, interval=1), fused), exact)
    np.testing.assert_array_equal(after("float16", None, False), [[1.0], [-2.0]])


# ---------------------------------------------------------------- what the scale does


class Reference:
    """A dynamic loss scale in Python's numbers, with plain gradient descent."""

    def __init__(self, scaling: DynamicLossScale, lr: float) -> None:
        self.scaling, self.lr = scaling, lr
        self.scale, self.good, self.skipped, self.w = scaling.scale, 0, 0, np.array([4.0, -8.0])

    def update(self, gradient: np.ndarray) -> None:
        """One update with the gradient of the loss itself."""
        if not all(math.isfinite(g) for g in gradient):
            self.scale = max(self.scale / self.scaling.factor, self.scaling.minimum)
            self.good, self.skipped = 0, self.skipped + 1
            return
        self.w = self.w - self.lr * gradient
        self.good += 1
        if self.good == self.scaling.interval:
            self.scale, self.good = min(self.scale * self.scaling.factor, self.scaling.maximum), 0


@st.composite
def scalings(draw: st.DrawFn) -> DynamicLossScale:
    """Dynamic loss scales of all kinds."""
    low, middle, high = sorted(draw(st.lists(st.integers(-14, 24), min_size=3, max_size=3)))
    return DynamicLossScale(
        2.0**middle, draw(st.integers(1, 3)), draw(st.sampled_from([2.0, 4.0, 16.0])), 2.0**low, 2.0**high
    )


gradients = st.lists(
    st.tuples(*[st.sampled_from([0.0, 1.0, -3.0, 64.0, math.inf, -math.inf, math.nan, 0.5])] * 2), max_size=8
)


@pytest.mark.parametrize("fused", [False, True], ids=["loop", "train_step"])
@settings(max_examples=10, deadline=None)
@given(scaling=scalings(), sequence=gradients)
def test_updates_follow_the_reference(
    fused: bool, scaling: DynamicLossScale, sequence: list[tuple[float, float]]
) -> None:
    w, x = Variable.from_numpy_array([4.0, -8.0], need_grad=True), Variable((2,))
    solver, reference = S.Sgd(0.25), Reference(scaling, 0.25)
    solver.set_parameters({"w": w})
    solver.loss_scaling(scaling)
    step = nn.train_step(F.sum(w * x), {"w": w}, solver, inputs=x)
    for gradient in sequence:
        if fused:
            value = sum(w * g for w, g in zip(reference.w.tolist(), gradient, strict=True))
            np.testing.assert_equal(float(step(np.float32(gradient))), value)  # the loss is returned unscaled
        else:
            w.g = np.float32(gradient) * np.asarray(solver.loss_scale)
            solver.update()
        reference.update(np.array(gradient))
        np.testing.assert_array_equal(w.d, reference.w)
        assert float(solver.loss_scale) == reference.scale
        assert solver.skipped_updates == reference.skipped


def test_off_the_cpu_each_number_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same on other devices, where there is no branch: what is lowered for them runs here."""
    monkeypatch.setattr(jax.lax, "platform_dependent", lambda before, cpu, default: default(before))
    w = Variable.from_numpy_array([4.0, -8.0], need_grad=True)
    scaling = DynamicLossScale(2.0**4, interval=2)
    solver, reference = S.Momentum(0.25, momentum=0.0), Reference(scaling, 0.25)
    solver.set_parameters({"w": w})
    solver.loss_scaling(scaling)
    for gradient in [(1.0, 2.0), (math.inf, 0.0), (0.0, -1.0), (math.nan, math.nan), (1.0, 0.5), (2.0, 2.0)]:
        w.g = np.float32(gradient) * np.asarray(solver.loss_scale)
        solver.update()
        reference.update(np.array(gradient))
        np.testing.assert_array_equal(w.d, reference.w)
        assert float(solver.loss_scale) == reference.scale
    assert solver.skipped_updates == 2 and np.isfinite(solver.get_states()["w"].pstate["m"].d).all()


SOLVERS = {
    "sgd": lambda: S.Sgd(0.1), "nesterov": lambda: S.Nesterov(0.1), "adam": S.Adam, "adamw": S.AdamW,
    "amsgrad": S.AMSGRAD, "lars": S.Lars, "lamb": S.Lamb, "adagrad": S.Adagrad, "lion": S.Lion,
    "optax": lambda: S.Solver.from_optax(optax.chain(optax.clip_by_global_norm(0.5), optax.adam(0.1))),
}


@settings(max_examples=8, deadline=None)
@given(name=st.sampled_from(sorted(SOLVERS)), power=st.integers(-14, 24), dynamic=st.booleans(),
       seed=st.integers(0, 100))
def test_a_scale_changes_no_bit_of_an_update(name: str, power: int, dynamic: bool, seed: int) -> None:
    """Op by op, that is: XLA rounds the same formula in more than one way."""
    rng = np.random.default_rng(seed)
    start, steps = rng.standard_normal((2, 3)).astype("f"), rng.standard_normal((3, 2, 3)).astype("f")
    results = []
    for scaling in (None, DynamicLossScale(2.0**power, interval=2) if dynamic else 2.0**power):
        solver = SOLVERS[name]()
        solver.set_parameters({"w": Variable.from_numpy_array(start, need_grad=True)})
        solver.loss_scaling(scaling)
        params, state = (start,), solver.state
        for g in steps:
            scale = np.asarray(state.loss_scale.scale if dynamic and scaling else scaling or 1.0, "f")
            with jax.disable_jit():
                params, state = solver.pure_update(params, (g * scale,), state, 0.1)
        results.append(params[0])
    np.testing.assert_array_equal(*results)


def test_a_gradient_inside_the_loss_is_scaled_like_the_rest() -> None:
    def after(scaling: Any, fused: bool) -> np.ndarray:
        w = Variable.from_numpy_array([[1.0, -2.0]], need_grad=True, dtype="float64")
        x = Variable.from_numpy_array([[0.5], [1.5]], dtype="float64")
        y = F.sum(F.tanh(w @ x) ** 2)
        (slope,) = nn.grad([y], [x])
        loss = y + F.mean((F.sum(slope**2) - 1) ** 2)
        solver = S.Momentum(0.01)
        solver.loss_scaling(scaling)
        run(solver, loss, {"w": w}, 3, fused)
        return w.d

    expected = after(None, False)
    for scaling in (2.0**8, DynamicLossScale(2.0**8, interval=1)):
        for fused in (False, True):
            np.testing.assert_allclose(after(scaling, fused), expected, rtol=1e-12)


def test_weight_decay_and_clipping_mean_the_gradients_of_the_loss_itself() -> None:
    results = []
    for scaling in (None, 2.0**7, DynamicLossScale(2.0**7)):
        w = Variable.from_numpy_array([1.0, 2.0, -4.0], need_grad=True, dtype="float64")
        solver = S.Sgd(0.1)
        solver.set_parameters({"w": w})
        solver.loss_scaling(scaling)
        for g in ([3.0, 0.0, 4.0], [0.1, 0.1, 0.1]):
            w.g = np.array(g) * np.asarray(solver.loss_scale, "float64")
            solver.weight_decay(0.01)
            solver.clip_grad_by_norm(1.5)
            solver.scale_grad(0.5)
            solver.update()
        results.append(w.d)
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


# ---------------------------------------------------------------- state


def test_training_goes_on_from_a_file(tmp_path: Path) -> None:
    scaling, kept_as = DynamicLossScale(2.0**20, interval=3), "float16"
    solver, params = trained("float16", scaling, kept_as, steps=7)
    solver.save_states(tmp_path / "s.safetensors")
    scale, skipped = float(solver.loss_scale), solver.skipped_updates
    assert skipped > 0
    others = {n: Variable.from_numpy_array(p.d, need_grad=True) for n, p in params.items()}
    again = S.Momentum(RATE / TINY)
    again.loss_scaling(scaling)
    again.set_parameters(others)
    again.load_states(tmp_path / "s.safetensors")
    assert (float(again.loss_scale), again.skipped_updates) == (scale, skipped)
    for s, p in ((solver, params), (again, others)):
        step = nn.train_step(network_loss(p, "float16", TINY), p, s)
        for _ in range(5):
            step()
    assert float(again.loss_scale) == float(solver.loss_scale)
    for n, p in params.items():
        np.testing.assert_array_equal(others[n].d, p.d)
    plain = S.Momentum()
    plain.set_parameters(parameters())
    with pytest.raises(ValueError, match=r"unknown \['loss_scale\.good_steps', 'loss_scale\.scale', 'loss_scale\.skip"):
        plain.load_states(tmp_path / "s.safetensors")


def test_switching_keeps_what_the_solver_knows() -> None:
    solver, params = trained("float32", None, factor=1.0, steps=3)
    before = state_arrays(solver)
    for scaling in (DynamicLossScale(2.0**5), 4.0, DynamicLossScale(2.0**9), None):
        solver.loss_scaling(scaling)
        states = state_arrays(solver)
        for name, array in before.items():
            np.testing.assert_array_equal(states[name], array)
        expected = 1.0 if scaling is None else scaling if isinstance(scaling, float) else scaling.scale
        assert float(solver.loss_scale) == expected  # a new scale starts where it says
        assert solver.scaling is scaling
    step = nn.train_step(network_loss(params, "float32", 1.0), params, solver)
    step()
    solver.loss_scaling(2.0)
    with pytest.raises(RuntimeError, match="another loss scaling after this training step was made"):
        step()
    solver.loss_scaling(DynamicLossScale(2.0**5))
    solver.set_parameters({"w": params["w"], "v": params["v"]}, retain_state=True)
    assert float(solver.loss_scale) == 2.0**5


# ---------------------------------------------------------------- messages


def test_arguments_are_checked() -> None:
    solver = S.Sgd()
    solver.set_parameters(parameters())
    of_two = r"must be a power of two from 2\^-126 to 2\^127"
    for error, message, *values in [
        (ValueError, f"scale: {of_two}", 0, -2.0, 3.0, math.nan, math.inf, 2.0**200, 2.0**-140),
        (TypeError, "scale: expected a number, got 'dynamic'", "dynamic"),
        (TypeError, "scale: expected a number, got True", True),
    ]:
        for value in values:
            with pytest.raises(error, match=f"loss_scaling: {message}"):
                solver.loss_scaling(value)
    assert solver.loss_scale == 1.0
    for error, message, *options in [
        *[(ValueError, f"{n}: must be a power of two", {n: 1000}) for n in ("scale", "factor", "minimum", "maximum")],
        (ValueError, "factor: must be above 1, got 1", {"factor": 1}),
        (ValueError, "interval: must be 1 or more, got 0", {"interval": 0}),
        (TypeError, "interval: expected an int", {"interval": 2.5}, {"interval": True}, {"interval": "many"}),
        (ValueError, "scale: must be between minimum 8 and maximum .*, got 4", {"scale": 4, "minimum": 8}),
    ]:
        for given_ in options:
            with pytest.raises(error, match=message):
                DynamicLossScale(**given_)
    assert repr(DynamicLossScale()) == "DynamicLossScale(scale=32768, interval=2000, factor=2)"
