"""Loops of forward, zero_grad, backward and update: what waits, and what becomes one executable, changes no number."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.solvers as S
from nngrad.solvers import merged
from nngrad.solvers.solver import Solver

STEPS = 8
Leaves = dict[str, nn.Variable]


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three updates are often enough."""
    monkeypatch.setattr(merged, "OFTEN", 3)


def leaves(dtype: Any = "d") -> Leaves:
    rng = np.random.default_rng(0)
    shapes = {"w1": (4, 8), "b1": (8,), "w2": (8, 1)}
    arrays = {name: rng.normal(size=shape).astype(dtype) for name, shape in shapes.items()}
    return {name: nn.Variable.from_numpy_array(array, need_grad=True) for name, array in arrays.items()}


def data(step: int, dtype: Any = "d") -> np.ndarray:
    array: np.ndarray = np.random.default_rng(step).normal(size=(6, 4)).astype(dtype)
    return array


def network(p: Leaves, x: nn.Variable) -> nn.Variable:
    return F.affine(F.tanh(F.affine(x, p["w1"], p["b1"])), p["w2"])


def plain(p: Leaves, x: nn.Variable) -> nn.Variable:
    return F.mean(network(p, x) ** 2)


def with_penalty(p: Leaves, x: nn.Variable) -> nn.Variable:
    y = network(p, x)
    (gx,) = nn.grad(F.sum(y), x)
    return F.mean(y) + 10 * F.mean((F.sum(gx * gx, axis=1) ** 0.5 - 1) ** 2)


def with_statistics(p: Leaves, x: nn.Variable) -> nn.Variable:
    ones = [nn.Variable.from_numpy_array(np.full((1, 8), v, x.dtype)) for v in (0.0, 1.0)]
    h = F.batch_normalization(F.affine(x, p["w1"], p["b1"]), *ones, p["mean"], p["variance"], batch_stat=True)
    return F.mean(F.affine(h, p["w2"]) ** 2 + F.tanh(F.affine(h, p["w2"])))


def train(
    solver: Solver,
    loss_of: Callable[[Leaves, nn.Variable], nn.Variable] = plain,
    anew: bool = True,
    dtype: Any = "d",
    between: Callable[[int, Leaves, nn.Variable], Any] = lambda i, p, loss: None,
    steps: int = STEPS,
) -> list[np.ndarray]:
    """All that a loop leaves: parameters, statistics, state, the last loss and gradients; after `between` the backward
    and the update of each step."""
    p = leaves(dtype)
    solver.set_parameters(p)
    known = dict(p)
    for name in ("mean", "variance"):
        known[name] = nn.Variable.from_numpy_array(np.ones((1, 8), dtype))
    x = nn.Variable.from_numpy_array(data(0, dtype))
    built = loss_of(known, x)
    losses = []
    for i in range(steps):
        x.d = data(i, dtype)
        loss = loss_of(known, x) if anew else built
        loss.forward()
        solver.zero_grad()
        loss.backward(loss_scale=float(solver.loss_scale))
        between(i, p, loss)
        solver.update()
        losses.append(loss.d.copy())
    return [*losses, *[w.d.copy() for w in known.values()], *[w.g.copy() for w in p.values()],
            *solver.get_states().values()]


def is_merged(solver: Solver) -> bool:
    return any([entry.has_taken_over for entry, *_ in solver._merged._by_structure._entries.values()])


def separately(monkeypatch: pytest.MonkeyPatch, run: Callable[[], Any]) -> Any:
    """The same where nothing waits: each gradient is computed at once."""
    from nngrad.autodiff.pending import PendingBackward

    with monkeypatch.context() as patched:
        patched.setattr(PendingBackward, "hold", lambda self, cells, retained: False)
        return run()


SOLVERS: dict[str, Callable[[], Solver]] = {
    "Sgd": lambda: S.Sgd(lr=0.05),
    "Momentum": lambda: S.Momentum(lr=0.05),
    "Adam": lambda: S.Adam(alpha=0.01),
}


def check_equal(found: list[np.ndarray], expected: list[np.ndarray], tolerance: float = 1e-11) -> None:
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("loss_of", "solver"), [
    pytest.param(loss_of, solver, marks=() if loss_of is plain or solver == "Adam" else pytest.mark.slow)
    for loss_of in (plain, with_penalty, with_statistics) for solver in SOLVERS
])  # fmt: skip
def test_numbers_are_those_of_two_executables(
    loss_of: Any, solver: str, often: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for anew in (True, False):
        ours, peer = SOLVERS[solver](), SOLVERS[solver]()
        found = train(ours, loss_of, anew)
        expected = separately(monkeypatch, lambda peer=peer, anew=anew: train(peer, loss_of, anew))
        assert is_merged(ours)
        assert not is_merged(peer)
        check_equal(found, expected)


def test_single_precision_is_kept(often: None, monkeypatch: pytest.MonkeyPatch) -> None:
    solver = S.Momentum(lr=0.05)
    found = train(solver, dtype="f")
    assert is_merged(solver)
    assert all([a.dtype == np.float32 for a in found])
    check_equal(found, separately(monkeypatch, lambda: train(S.Momentum(lr=0.05), dtype="f")), 1e-5)


def test_the_step_at_which_it_takes_over_is_the_same_in_every_run(often: None) -> None:
    solvers = [S.Adam(alpha=0.01) for _ in range(2)]
    runs = [train(solver, dtype="f") for solver in solvers]
    assert all(map(is_merged, solvers))
    for a, b in zip(*runs, strict=True):
        np.testing.assert_array_equal(a, b)


def test_what_cannot_be_compiled_goes_on_as_before(often: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: Any, given: Any) -> None:
        raise jax.errors.JaxRuntimeError("there is no memory for that")

    monkeypatch.setattr(merged.InPlaceUpdate, "compile_in_background", fails)
    solver = S.Momentum(lr=0.05)
    found = train(solver)
    assert not is_merged(solver)
    check_equal(found, separately(monkeypatch, lambda: train(S.Momentum(lr=0.05))), 0)


def test_loss_scaling_goes_along(often: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def solver() -> Solver:
        made = S.Adam(alpha=0.01)
        made.loss_scaling(64.0)
        return made

    ours = solver()
    found = train(ours)
    assert is_merged(ours)
    check_equal(found, separately(monkeypatch, lambda: train(solver())))


@pytest.mark.parametrize(
    "between",
    [
        lambda i, p, loss: loss.d,
        lambda i, p, loss: p["w1"].g if i % 2 else None,
        lambda i, p, loss: setattr(p["w2"], "d", np.full((8, 1), 0.1 * i)),
        lambda i, p, loss: setattr(p["w2"], "g", np.full((8, 1), 0.1 * i)),
        lambda i, p, loss: p["b1"].grad.zero(),
        lambda i, p, loss: (loss.forward(), loss.backward()),
        lambda i, p, loss: loss.backward(2.0),
    ],
    ids=["loss", "gradient", "parameter", "own gradient", "no gradient", "again", "added"],
)
def test_what_is_read_and_written_in_between_counts(between: Any, often: None, monkeypatch: pytest.MonkeyPatch) -> None:
    found = train(S.Momentum(lr=0.05), between=between)
    check_equal(found, separately(monkeypatch, lambda: train(S.Momentum(lr=0.05), between=between)))


def test_other_changes_of_gradients_come_first(often: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> list[np.ndarray]:
        solver = S.Sgd(lr=0.05)
        return train(solver, between=lambda i, p, loss: (solver.weight_decay(0.1), solver.clip_grad_by_norm(0.2)))

    check_equal(run(), separately(monkeypatch, run))


def test_gradients_wait_until_they_are_read() -> None:
    nn.executables.clear()
    p = leaves()
    x = nn.Variable.from_numpy_array(data(0))
    for i in range(2):
        loss = plain(p, x)
        loss.forward()
        for w in p.values():
            w.grad.zero()
        loss.backward()
        assert [w.grad.is_deferred for w in p.values()] == [i > 0] * 3  # the first one finds out whether it runs
    x.d = data(1)  # after the forward
    assert loss.data.is_deferred
    before = p["w1"].g.copy()
    assert not loss.data.is_deferred
    again = plain(p, nn.Variable.from_numpy_array(data(0)))
    (g,) = nn.grad(again, p["w1"])
    np.testing.assert_allclose(before, g.d, rtol=1e-12)


def test_a_backward_runs_under_the_settings_in_which_it_was_asked_for() -> None:
    p = leaves()
    x = nn.Variable.from_numpy_array(data(0))
    seen: list[Any] = []
    for _ in range(2):
        for w in p.values():
            w.grad.zero()
        loss = plain(p, x)
        with jax.default_matmul_precision("highest"):
            loss.forward()
            loss.backward()
    waiting = p["w1"].grad._value.source  # type: ignore[attr-defined]
    run = waiting.executable

    def seeing(*arrays: Any) -> Any:
        seen.append(jax.config.jax_default_matmul_precision)  # type: ignore[attr-defined]
        return run(*arrays)

    waiting.executable = seeing
    assert loss.d > 0
    assert seen == ["highest"]


def test_nan_is_found_where_the_backward_is_asked_for() -> None:
    w = nn.Variable.from_numpy_array(np.array([0.0, 1.0]), need_grad=True)
    for _ in range(2):
        w.grad.zero()
        loss = F.sum(F.log(w) * w)
        loss.forward()
        loss.backward()
    w.grad.zero()
    loss = F.sum(F.log(w) * w)
    loss.forward()
    with jax.debug_nans(True), pytest.raises(FloatingPointError):
        loss.backward()


def test_two_solvers_share_a_backward(often: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> list[np.ndarray]:
        p = leaves()
        solvers = S.Adam(alpha=0.01), S.Sgd(lr=0.1)
        solvers[0].set_parameters({"w1": p["w1"]})
        solvers[1].set_parameters({"w2": p["w2"], "b1": p["b1"]})
        x = nn.Variable.from_numpy_array(data(0))
        for _ in range(STEPS):
            loss = plain(p, x)
            loss.forward()
            for solver in solvers:
                solver.zero_grad()
            loss.backward()
            for solver in solvers:
                solver.update()
        return [w.d.copy() for w in p.values()]

    check_equal(run(), separately(monkeypatch, run))


def test_parameters_may_change_later(often: None) -> None:
    solver = S.Adam(alpha=0.01)
    train(solver)
    assert is_merged(solver)
    p = leaves()
    for other in p.keys() - {"w1"}:
        p[other].need_grad = False
    solver.set_parameters({"w1": p["w1"]}, reset=True)
    assert not is_merged(solver)
    w2 = p["w2"].d.copy()
    loss = plain(p, nn.Variable.from_numpy_array(data(0)))
    for _ in range(5):
        before = p["w1"].d.copy()
        loss.forward()
        solver.zero_grad()
        loss.backward()
        solver.update()
        assert not np.array_equal(before, p["w1"].d)
    np.testing.assert_array_equal(p["w2"].d, w2)


def test_reproducible_mode_merges_nothing(often: None) -> None:
    solver = S.Sgd(lr=0.05)
    with nn.deterministic():
        train(solver)
    assert not is_merged(solver)


def test_no_memory_is_held_besides(often: None) -> None:
    solver = S.Adam(alpha=0.01)
    p = leaves()
    solver.set_parameters(p)
    x = nn.Variable.from_numpy_array(data(0))

    def steps(count: int) -> int:
        for _ in range(count):
            loss = plain(p, x)
            loss.forward()
            solver.zero_grad()
            loss.backward()
            solver.update()
            loss.d  # noqa: B018 - read
        del loss
        solver.zero_grad()
        gc.collect()
        return sum([a.nbytes for a in jax.live_arrays()])

    before = steps(2)
    steps(5)
    after = steps(5)
    assert is_merged(solver)
    assert after <= before
