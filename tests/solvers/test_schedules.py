"""Learning rates: `lr` for every solver, schedules in place of numbers, and what optax asks for besides gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.solvers as S
from nngrad.nnabla.utils.learning_rate_scheduler import CosineScheduler, StepScheduler

START = np.array([1.0, 2.0], np.float32)


def model() -> tuple[nn.Variable, nn.Variable]:
    """A parameter and a loss."""
    w = nn.Variable.from_numpy_array(START.copy(), need_grad=True)
    return w, F.sum((w - 3) ** 2)


def by_loop(solver: S.Solver, steps: int) -> np.ndarray[Any, Any]:
    """The parameter after the four-line loop."""
    w, loss = model()
    solver.set_parameters({"w": w})
    for _ in range(steps):
        solver.zero_grad()
        loss.forward()
        loss.backward()
        solver.update()
    return np.array(w.d)


def by_step(optimizer: Any, steps: int) -> np.ndarray[Any, Any]:
    """The parameter after training steps."""
    w, loss = model()
    step = nn.train_step(loss, {"w": w}, optimizer)
    for _ in range(steps):
        step()
    return np.array(w.d)


def by_hand(make: Callable[[float], S.Solver], rate: Callable[[int], float], steps: int) -> np.ndarray[Any, Any]:
    """The parameter where the rate is set as a number at each step."""
    w, loss = model()
    solver = make(rate(0))
    step = nn.train_step(loss, {"w": w}, solver)
    for i in range(steps):
        solver.set_learning_rate(rate(i))
        step()
    return np.array(w.d)


def halved(i: int) -> float:
    return 0.1 * 0.5**i


SCHEDULES = {
    "function": (halved, halved),
    "optax": (optax.cosine_decay_schedule(0.1, 6), lambda i: 0.05 * (1 + math.cos(math.pi * i / 6))),
    "nnabla": (CosineScheduler(0.1, 6), lambda i: 0.05 * (1 + math.cos(math.pi * i / 6))),
    "steps": (StepScheduler(0.1, 0.5, [2, 4]), lambda i: 0.1 * 0.5 ** ((i >= 2) + (i >= 4))),
}


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("solver", [S.SgdW, lambda lr: S.Solver.from_optax(optax.adagrad, lr)])
def test_schedules_equal_numbers_set_by_hand(name: str, solver: Any) -> None:
    schedule, rate = SCHEDULES[name]
    wanted = by_hand(lambda lr: solver(lr=lr), rate, 5)
    np.testing.assert_allclose(by_loop(solver(lr=schedule), 5), wanted, rtol=1e-6)
    np.testing.assert_allclose(by_step(solver(lr=schedule), 5), wanted, rtol=1e-6)


def test_schedules_compile_once() -> None:
    w, loss = model()
    step = nn.train_step(loss, {"w": w}, S.Adam(lr=halved))
    for _ in range(4):
        step()
    compiled: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(lambda event, _, **__: compiled.append(event))
    try:
        for _ in range(3):
            step()
    finally:
        jax.monitoring.clear_event_listeners()
    assert not [event for event in compiled if "compile" in event]


def test_schedules_go_on_where_they_were(tmp_path: Path) -> None:
    whole = by_step(S.Adam(lr=halved), 5)
    w, loss = model()
    solver = S.Adam(lr=halved)
    step = nn.train_step(loss, {"w": w}, solver)
    for _ in range(2):
        step()
    assert solver.updates == 2 and solver.learning_rate() == halved(2)
    nn.Checkpointer(tmp_path, solver, parameters={"w": w}).save(2)
    v, loss = model()
    other = S.Adam(lr=halved)
    step = nn.train_step(loss, {"w": v}, other)
    assert nn.Checkpointer(tmp_path, other, parameters={"w": v}).restore() == 2
    assert other.updates == 2
    for _ in range(3):
        step()
    np.testing.assert_array_equal(v.d, whole)


@pytest.mark.parametrize("make", [S.Momentum, S.Sgd])
def test_counts_of_updates(make: type[S.Solver]) -> None:
    """They stay with the state: kept by what keeps the state, and begun anew with it."""
    w, _ = model()
    solver = make(lr=halved)
    solver.set_parameters({"w": w})
    for _ in range(3):
        w.g = START
        solver.update()
    assert solver.updates == 3
    solver.loss_scaling(2.0)
    assert solver.updates == 3
    v, _ = model()
    solver.set_parameters({"v": v}, reset=False)
    assert solver.updates == 3
    solver.set_parameters({"v": v}, retain_state=True)
    assert solver.updates == 3
    solver.set_parameters({"w": w})
    assert solver.updates == 0 and solver.learning_rate() == 0.1


def test_wrong_rates() -> None:
    with pytest.raises(ValueError, match=r"lr: the schedule at update 0: must be finite and not negative, got -1"):
        S.Sgd(lambda i: -1)
    solver = S.Sgd(lr=lambda i: 0.1 if i < 2 else math.nan)
    with pytest.raises(ValueError, match="the schedule at update 2"):
        by_loop(solver, 3)
    solver.set_learning_rate(0.5)
    assert not solver.has_schedule and solver.learning_rate() == 0.5
    w, loss = model()
    step = nn.train_step(loss, {"w": w}, S.Sgd(lr=halved))
    with pytest.raises(ValueError, match="to_jax: the solver's learning rate follows a schedule"):
        step.to_jax()
    with pytest.raises(ValueError, match="to set_learning_rate instead"):
        by_loop(S.AdamW(lr=optax.linear_schedule(0.0, 0.1, 5)), 1)
    warm = S.AdamW(lr=0.1)
    warm.set_learning_rate(optax.linear_schedule(0.0, 0.1, 5))
    np.testing.assert_array_equal(by_loop(warm, 1), START)


@pytest.mark.parametrize("name", [name for name in S.__all__ if isinstance(getattr(S, name), type) and
                                  issubclass(getattr(S, name), S.Solver) and name != "Solver"])
def test_lr_is_understood_everywhere(name: str) -> None:
    kind = getattr(S, name)
    assert kind(lr=0.25).learning_rate() == 0.25 == kind(0.25).learning_rate()
    assert kind(**{kind.rate_name: 0.25}).learning_rate() == 0.25
    if kind.rate_name != "lr":
        for given in ((0.1,), ()):
            named = {} if given else {kind.rate_name: 0.1}
            with pytest.raises(TypeError, match=f"lr: is another name for {kind.rate_name}; give only one"):
                kind(*given, lr=0.1, **named)


def test_subclasses_and_modules() -> None:
    class Half(S.Solver):
        def transformation(self, lr: Any) -> Any:
            return optax.scale(-lr / 2)

    class Mine(S.Adam):
        def __init__(self, lr: float) -> None:
            super().__init__(alpha=2 * lr)

    class Scaled(S.Adam):
        factor: float = 1.0

        def transformation(self, lr: Any) -> Any:
            return super().transformation(self.factor * lr)

    scaled = Scaled(0.1, 0.5, factor=3.0)
    assert (scaled.beta1, scaled.eps, scaled.learning_rate()) == (0.5, 1e-8, 0.1) and Scaled().factor == 1.0
    np.testing.assert_allclose(by_loop(scaled, 1), START - 0.3 * np.sign(START - 3), rtol=1e-5)
    assert not hasattr(S.Adam(), "alpha") and not hasattr(S.Adam, "beta1")
    assert Half().learning_rate() == 1e-3 and Mine(lr=0.5).learning_rate() == 1.0 == Mine(0.5).learning_rate()
    np.testing.assert_allclose(by_loop(Half(lr=0.1), 1), START - 0.1 * (START - 3), rtol=1e-6)

    class Net(nn.Module):
        def __init__(self) -> None:
            self.w = nn.Variable.from_numpy_array(START, need_grad=True)

    net, solver = Net(), S.Sgd()
    solver.set_parameters(net)
    assert list(solver.get_parameters()) == ["w"] and solver.get_parameters()["w"] is net.w


# ---------------------------------------------------------------- what optax asks for


def valley(w: Any) -> Any:
    """Rosenbrock's function."""
    return (1 - w[0]) ** 2 + 100 * (w[1] - w[0] ** 2) ** 2


TRANSFORMATIONS = {
    "zoom": optax.lbfgs,
    "plateau": lambda: optax.chain(optax.sgd(1e-3), optax.contrib.reduce_on_plateau(patience=1, factor=0.5)),
    "backtracking": lambda: optax.chain(
        optax.sgd(1.0), optax.scale_by_backtracking_linesearch(max_backtracking_steps=20, store_grad=True)),
}


@pytest.mark.parametrize(("name", "scale"), [("zoom", 4.0), ("plateau", None), ("backtracking", 4.0)])
def test_extra_arguments_are_as_in_a_loop_of_jax(name: str, scale: float | None) -> None:
    begin, steps = np.array([-1.0, 1.5], np.float32), 8
    tx = TRANSFORMATIONS[name]()
    theirs = jnp.asarray(begin)
    state, losses = tx.init(theirs), []
    for _ in range(steps):
        value, g = jax.value_and_grad(valley)(theirs)
        moved, state = tx.update(g, state, theirs, value=value, grad=g, value_fn=valley)
        theirs = optax.apply_updates(theirs, moved)
        losses.append(value)
    w = nn.Variable.from_numpy_array(begin, need_grad=True)
    solver = S.Solver.from_optax(TRANSFORMATIONS[name]())
    solver.loss_scaling(scale)
    step = nn.train_step(valley(w), {"w": w}, solver)
    ours = [step() for _ in range(steps)]
    np.testing.assert_allclose(ours, losses, rtol=1e-3)
    np.testing.assert_allclose(w.d, theirs, rtol=1e-3)
    assert len(solver.named_state()) == len(jax.tree.leaves(state)) and losses[-1] < losses[0]
    if name == "zoom":
        assert {"0.params:w", "0.updates:w", "0.diff_params_memory:w", "0.count"} <= {
            key.removeprefix("inner.") for key in solver.named_state()}
