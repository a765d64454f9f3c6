"""Loops of forward, zero_grad, backward and update: what is read on the way changes no number, and holds no memory."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nngrad as nn
import nngrad.functions as F
import nngrad.solvers as S
from nngrad.extend import watch
from nngrad.solvers.solver import Solver
from tests.solver_states import state_arrays

STEPS = 5
Leaves = dict[str, nn.Variable]


def leaves(dtype: Any = "d") -> Leaves:
    rng = np.random.default_rng(0)
    shapes = {"w1": (4, 8), "b1": (8,), "w2": (8, 1)}
    arrays = {name: rng.normal(size=shape).astype(dtype) for name, shape in shapes.items()}
    return {name: nn.Variable.from_numpy_array(array, need_grad=True) for name, array in arrays.items()}


def data(step: int) -> np.ndarray:
    return np.random.default_rng(step).normal(size=(6, 4))


def loss_of(p: Leaves, x: nn.Variable) -> nn.Variable:
    return F.mean(F.affine(F.tanh(F.affine(x, p["w1"], p["b1"])), p["w2"]) ** 2)


Between = Callable[[int, Leaves, nn.Variable], Any]


def train(solver: Solver, between: Between = lambda i, p, loss: None, anew: bool = True) -> list[np.ndarray]:
    """All that a loop leaves: parameters, state, the losses and gradients; after `between` the backward and the update
    of each step."""
    p = leaves()
    solver.set_parameters(p)
    x = nn.Variable.from_numpy_array(data(0))
    built = loss_of(p, x)
    losses = []
    for i in range(STEPS):
        x.d = data(i)
        loss = loss_of(p, x) if anew else built
        loss.forward()
        solver.zero_grad()
        loss.backward(loss_scale=float(solver.loss_scale))
        between(i, p, loss)
        solver.update()
        losses.append(loss.d.copy())
    return [*losses, *[w.d.copy() for w in p.values()], *[w.g.copy() for w in p.values()],
            *state_arrays(solver).values()]


def check_equal(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("solver", [lambda: S.Sgd(0.05), lambda: S.Adam(0.01)], ids=["Sgd", "Adam"])
def test_what_is_read_in_between_changes_nothing(solver: Callable[[], Solver]) -> None:
    expected = train(solver())
    check_equal(train(solver(), lambda i, p, loss: print(loss.d)), expected)
    check_equal(train(solver(), lambda i, p, loss: p["w1"].g if i % 2 else None), expected)
    check_equal(train(solver(), anew=False), expected)


@pytest.mark.parametrize(
    "between",
    [
        lambda i, p, loss: setattr(p["w2"], "d", np.full((8, 1), 0.1 * i)),
        lambda i, p, loss: setattr(p["w2"], "g", np.full((8, 1), 0.1 * i)),
        lambda i, p, loss: p["b1"].grad.zero(),
        lambda i, p, loss: loss.backward(2.0),
    ],
    ids=["parameter", "gradient", "no gradient", "added"],
)
def test_what_is_written_in_between_counts(between: Between) -> None:
    found = train(S.Sgd(0.05), between)
    p = {name: w.d.copy() for name, w in leaves().items()}
    for i in range(STEPS):
        given = {name: nn.Variable.from_numpy_array(array, need_grad=True) for name, array in p.items()}
        loss = loss_of(given, nn.Variable.from_numpy_array(data(i)))
        for w, g in zip(given.values(), nn.grad(loss, list(given.values())), strict=True):
            w.g = g.d
        loss.d  # noqa: B018 - that of the parameters before they are written to
        between(i, given, loss)
        p = {name: w.d - 0.05 * w.g for name, w in given.items()}
    for a, b in zip(found[STEPS : STEPS + 3], p.values(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11)


def critic(rng: np.random.Generator) -> tuple[nn.Variable, nn.Variable, Leaves]:
    """A convolutional critic with running statistics, trained through a gradient penalty."""
    x = nn.Variable.from_numpy_array(np.zeros((4, 3, 6, 6), "f"), need_grad=True)
    arrays = {"k": (8, 3, 3, 3), "beta": (1, 8, 1, 1), "gamma": (1, 8, 1, 1), "w": (288, 1)}
    p = {n: nn.Variable.from_numpy_array(rng.normal(size=s).astype("f"), need_grad=True) for n, s in arrays.items()}
    mean, var = (nn.Variable.from_numpy_array(np.full((1, 8, 1, 1), v, "f")) for v in (0, 1))
    h = F.batch_normalization(F.convolution(x, p["k"], pad=(1, 1)), p["beta"], p["gamma"], mean, var)
    y = F.affine(F.leaky_relu(h, 0.2), p["w"])
    (gx,) = nn.grad(F.sum(y), [x])
    return x, F.mean(y) + F.mean((F.sum(gx**2, axis=(1, 2, 3)) ** 0.5 - 1) ** 2), p


@pytest.mark.gpu
@nn.deterministic()
def test_an_update_that_computes_the_gradients_has_the_bits_of_one_that_does_not() -> None:
    found = []
    for reads in (True, False):
        rng, solver = np.random.default_rng(0), S.Adam(0.01)
        x, loss, p = critic(rng)
        solver.set_parameters(p)
        compiled: list[Any] = []
        for _ in range(3):
            x.d = rng.normal(size=x.shape)
            loss.forward()
            solver.zero_grad()
            loss.backward()
            if reads:
                p["k"].g  # noqa: B018 - so that they are computed by themselves
            with watch(compiled.append, "compiled"):
                solver.update()
        assert len(compiled) == (not reads)  # programs with gradients, apart from the update's own
        found.append([loss.d, *[a for w in p.values() for a in (w.d, w.g)], *state_arrays(solver).values()])
    check_equal(*found)


@nn.deterministic()
def test_an_update_in_32_bits_keeps_its_rounding_where_the_loss_has_64() -> None:
    found = []
    for reads in (True, False):
        p, solver = leaves("f"), S.Adam(0.01)
        solver.set_parameters(p)
        x = nn.Variable.from_numpy_array(data(0).astype("f"))
        loss = F.mean(F.cast(loss_of(p, x), dtype="float64"))
        for _ in range(4):
            loss.forward(), solver.zero_grad(), loss.backward()
            if reads:
                p["w1"].g  # noqa: B018 - so that all are computed before the update
            solver.update()
        found.append([w.d for w in p.values()])
    check_equal(*found)


def test_an_update_is_compiled_once_for_each_of_many_shapes() -> None:
    p, solver, compiled = leaves(), S.Sgd(0.05), []
    solver.set_parameters(p)
    losses = [loss_of(p, nn.Variable.from_numpy_array(np.ones((n, 4)))) for n in range(1, 11)]
    for _ in range(2):
        compiled.clear()
        with watch(compiled.append, "compiled"):
            for loss in losses:
                loss.forward(), solver.zero_grad(), loss.backward(), solver.update()
    assert not compiled


def test_another_loss_scale_counts_from_the_next_step() -> None:
    w, solver = nn.Variable.from_numpy_array(np.ones(2), need_grad=True), S.Sgd(0.125)
    solver.set_parameters({"w": w})
    loss = F.sum(w)
    for scale, expected in ((None, 0.875), (None, 0.75), (8.0, 0.734375), (2.0, 0.671875)):
        solver.loss_scaling(scale)
        loss.forward(), solver.zero_grad(), loss.backward(), solver.update()
        assert w.d.tolist() == [expected] * 2


# ---------------------------------------------------------------- any order, beside NumPy

RATE, MOMENTUM, DECAY, NORM = 0.1, 0.5, 0.01, 0.05


class Loop:
    """The mean of (tanh(x v) w)^2, its graph built once, and what NumPy makes of the same calls."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        arrays = {"x": (5, 3), "v": (3, 4), "w": (4, 1)}
        self.now = {name: rng.normal(size=shape) for name, shape in arrays.items()}
        self.leaves = {name: nn.Variable.from_numpy_array(a, need_grad=name != "x") for name, a in self.now.items()}
        self.h = F.tanh(self.leaves["x"] @ self.leaves["v"])
        self.loss = F.mean((self.h @ self.leaves["w"]) ** 2)
        self.solver = S.Momentum(RATE, MOMENTUM)
        self.solver.set_parameters({name: self.leaves[name] for name in "vw"})
        self.gradients: dict[str, np.ndarray] = {}  # those that are not zero
        self.momenta = {name: np.zeros_like(self.now[name]) for name in "vw"}
        self.taken: dict[str, np.ndarray] | None = None  # the leaves at the last forward
        self.passing = {"v", "w"}
        self.stopped = False

    def forward(self) -> None:
        self.loss.forward()
        self.taken = dict(self.now)

    def backward(self, retain: bool = False) -> None:
        self.loss.backward(retain_grad=retain)
        at = self.now if self.taken is None else self.taken
        h = np.tanh(at["x"] @ at["v"])
        gy = 2 * (h @ at["w"]) / len(h)
        gh = gy @ at["w"].T
        arriving = {"w": h.T @ gy, "v": at["x"].T @ (gh * (1 - h**2)) * (not self.stopped)}
        for name in self.passing & arriving.keys():
            self.gradients[name] = self.gradients.get(name, 0) + arriving[name]
        if (retain or self.h.persistent) and not self.stopped and "v" in self.passing:
            np.testing.assert_allclose(self.h.g, gh, rtol=1e-9)

    def read(self) -> None:
        """What a forward has computed, which later writes do not change."""
        if self.taken is not None:
            h = np.tanh(self.taken["x"] @ self.taken["v"])
            np.testing.assert_allclose(self.h.d, h, rtol=1e-9)
            np.testing.assert_allclose(self.loss.d, np.mean((h @ self.taken["w"]) ** 2), rtol=1e-9)

    def check(self) -> None:
        for name in "vw":
            np.testing.assert_allclose(self.leaves[name].d, self.now[name], rtol=1e-9, atol=1e-13)
            np.testing.assert_allclose(self.leaves[name].g, self.gradients.get(name, 0), rtol=1e-9, atol=1e-13)

    def zero(self) -> None:
        self.solver.zero_grad()
        self.gradients = {}

    def zero_one(self) -> None:
        self.leaves["v"].grad.zero()
        self.gradients.pop("v", None)

    def update(self) -> None:
        self.solver.update()
        for name, g in self.gradients.items():
            self.momenta[name] = MOMENTUM * self.momenta[name] + RATE * g
            self.now[name] = self.now[name] - self.momenta[name]

    def decay(self) -> None:
        self.solver.weight_decay(DECAY)
        self.gradients = {name: g + DECAY * self.now[name] for name, g in self.gradients.items()}

    def clip(self) -> None:
        self.solver.clip_grad_by_norm(NORM)
        self.gradients = {name: g * min(1, NORM / np.linalg.norm(g)) for name, g in self.gradients.items()}

    def write(self, name: str, how: str) -> None:
        self.now[name] = self.now[name] * 0.9 + 0.1
        if how == "a value":
            self.leaves[name].d = self.now[name]
        elif how == "a view":
            self.leaves[name].d[...] = self.now[name]
        else:
            self.leaves[name].data = nn.NdArray.from_numpy_array(self.now[name])

    def write_gradient(self) -> None:
        self.leaves["w"].grad = nn.NdArray.from_numpy_array(np.full((4, 1), 0.3))
        self.gradients["w"] = np.full((4, 1), 0.3)

    def need(self) -> None:
        self.passing ^= {"v"}
        self.leaves["v"].need_grad = "v" in self.passing

    def stop(self) -> None:
        self.stopped = not self.stopped
        self.h.need_grad = False if self.stopped else None

    def persist(self) -> None:
        self.h.persistent = not self.h.persistent

    def ask(self) -> None:
        """Of a value between: none of its gradient is kept, but there is a cell."""
        self.h.grad.zero()


STEP = [(name,) for name in ("forward", "zero", "backward", "update")]
OTHERS = [(name,) for name in ("read", "check", "zero_one", "decay", "clip", "write_gradient", "need", "stop", "ask",
                               "persist")]
OTHERS += [("backward", True), *[("write", name, how) for name in "xvw" for how in ("a value", "a view", "a cell")]]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.one_of(st.just(STEP), st.sampled_from([[act] for act in STEP + OTHERS])), max_size=14))
def test_calls_in_any_order_are_those_of_numpy(steps: list[list[tuple[Any, ...]]]) -> None:
    loop = Loop()
    for act, *arguments in [call for calls in [STEP, STEP, *steps] for call in calls]:
        getattr(loop, act)(*arguments)
    loop.read()
    loop.check()


def test_a_loop_of_adam_is_that_of_numpy() -> None:
    found = train(S.Adam(0.01, 0.8, 0.99), anew=False)
    p = {name: w.d.copy() for name, w in leaves().items()}
    m, v = ({name: np.zeros_like(a) for name, a in p.items()} for _ in range(2))
    for t in range(1, STEPS + 1):
        x = data(t - 1)
        h = np.tanh(x @ p["w1"] + p["b1"])
        gy = 2 * (h @ p["w2"]) / len(x)
        gh = gy @ p["w2"].T * (1 - h**2)
        for name, g in {"w1": x.T @ gh, "b1": gh.sum(0), "w2": h.T @ gy}.items():
            m[name] = 0.8 * m[name] + 0.2 * g
            v[name] = 0.99 * v[name] + 0.01 * g * g
            step = np.sqrt(1 - 0.99**t) / (1 - 0.8**t)
            p[name] = p[name] - 0.01 * step * m[name] / (np.sqrt(v[name]) + 1e-8)
    for array, expected in zip(found[STEPS : STEPS + 3], p.values(), strict=True):
        np.testing.assert_allclose(array, expected, rtol=1e-6)


# ---------------------------------------------------------------- Python of a step


def calls_in(step: Callable[[], Any]) -> int:
    """How many functions written in Python a step calls, once it has become one of many."""
    for _ in range(4):
        step()
    count = [0]

    def profile(frame: Any, event: str, _: Any) -> None:
        count[0] += event == "call"

    gc.collect()
    gc.disable()
    outer = sys.getprofile()
    sys.setprofile(profile)
    try:
        step()
    finally:
        sys.setprofile(outer)
        gc.enable()
    return count[0]


def steps_of(count: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """A training step, and a loop's, of so many parameters."""

    def made() -> tuple[nn.Variable, dict[str, nn.Variable]]:
        p = {str(i): nn.Variable.from_numpy_array(1.0 + i, need_grad=True) for i in range(count)}
        return F.sum(F.stack(*p.values()) ** 2), p

    compiled = nn.train_step(*made(), S.Momentum(0.01))
    loss, p = made()
    solver = S.Momentum(0.01)
    solver.set_parameters(p)

    def classic() -> None:
        loss.forward()
        solver.zero_grad()
        loss.backward()
        solver.update()

    return compiled, classic


def test_python_of_a_step_does_not_grow_with_its_parameters() -> None:
    (few, few_classic), (many, many_classic) = steps_of(2), steps_of(30)
    assert calls_in(few) == calls_in(many)
    few_classic(), many_classic()  # backwards record which leaves they reach until each solver has updated once
    # Each computed gradient is an object of its own; everything else is one call for all.
    assert calls_in(many_classic) - calls_in(few_classic) <= 28


def test_zeros_that_are_written_again_belong_to_their_own_cell() -> None:
    w = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
    solver = S.Sgd(0.1)
    solver.set_parameters({"w": w})
    solver.zero_grad()
    solver.zero_grad()
    first, seen = w.grad, w.g
    solver.zero_grad()
    seen[0] = 7  # of zeros that the cell no longer holds
    assert w.grad.is_zero and w.g.tolist() == [0, 0]
    solver.zero_grad()
    w.grad = nn.NdArray((2,))
    solver.zero_grad()
    first[0] = 5
    assert w.grad.is_zero and w.g.tolist() == [0, 0] and first.data.tolist() == [5, 0]
    w.g = [1.0, 0.0]
    solver.zero_grad()
    solver.update()
    assert w.d.tolist() == [1, 2]
