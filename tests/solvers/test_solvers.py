"""Solvers: what a step does, against formulas written in NumPy; gradients' processing; state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.solvers as S
from nngrad import Variable
from nngrad.extend import x64_if
from tests.solver_states import state_arrays

SHAPES = {"W": (2, 3), "b": (3,)}


def parameters(dtype: object = "float64", seed: int = 0) -> dict[str, Variable]:
    """Two parameters with normal numbers."""
    rng = np.random.default_rng(seed)
    return {n: Variable.from_numpy_array(rng.standard_normal(s), need_grad=True, dtype=dtype)
            for n, s in SHAPES.items()}


def gradients(step: int) -> dict[str, np.ndarray]:
    """Gradients for one step."""
    rng = np.random.default_rng(100 + step)
    return {n: rng.standard_normal(s) for n, s in SHAPES.items()}


def run(solver: S.Solver, params: dict[str, Variable], steps: Iterator[int] | range) -> None:
    """Some steps."""
    for step in steps:
        for n, g in gradients(step).items():
            params[n].g = g
        solver.update()


# ---------------------------------------------------------------- formulas: (w, g, memory, t, lr) -> new w


def sgd(w, g, s, t, lr):
    return w - lr * g


def momentum(w, g, s, t, lr):
    s["v"] = 0.9 * s.get("v", 0) + lr * g
    return w - s["v"]


def nesterov(w, g, s, t, lr):
    before = s.get("v", 0)
    s["v"] = 0.9 * before - lr * g
    return w - 0.9 * before + 1.9 * s["v"]


def sgdw(w, g, s, t, lr):
    return momentum(w, g, s, t, lr) - lr / 1e-3 * 1e-4 * w


def averages(g, s, b1, b2):
    s["m"] = b1 * s.get("m", 0) + (1 - b1) * g
    s["v"] = b2 * s.get("v", 0) + (1 - b2) * g * g
    return s["m"], s["v"]


def adam_direction(g, s, t, eps):
    m, v = averages(g, s, 0.9, 0.999)
    return m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.999**t)) + eps)


def adam(w, g, s, t, lr):
    return w - lr * adam_direction(g, s, t, 1e-8)


def adamw(w, g, s, t, lr):
    return adam(w, g, s, t, lr) - lr / 1e-3 * 1e-4 * w


def adamax(w, g, s, t, lr):
    s["m"] = 0.9 * s.get("m", 0) + 0.1 * g
    s["v"] = np.maximum(0.999 * s.get("v", 0), np.abs(g) + 1e-8)
    return w - lr / (1 - 0.9**t) * s["m"] / s["v"]


def adabelief(w, g, s, t, lr):
    s["m"] = 0.9 * s.get("m", 0) + 0.1 * g
    s["s"] = 0.999 * s.get("s", 0) + 0.001 * (g - s["m"]) ** 2 + 1e-8
    return w - lr * s["m"] / (1 - 0.9**t) / (np.sqrt(s["s"] / (1 - 0.999**t)) + 1e-8)


def amsgrad(w, g, s, t, lr):
    m, v = averages(g, s, 0.9, 0.999)
    s["u"] = np.maximum(s.get("u", 0), v)
    return w - lr * m / (np.sqrt(s["u"]) + 1e-8)


def amsgrad_corrected(w, g, s, t, lr):
    return amsgrad(w, g, s, t, lr * np.sqrt(1 - 0.999**t) / (1 - 0.9**t))


def lion(w, g, s, t, lr):
    m = s.get("m", 0)
    s["m"] = 0.99 * m + 0.01 * g
    return w - lr * np.sign(0.9 * m + 0.1 * g)


def adagrad(w, g, s, t, lr):
    s["v"] = s.get("v", 0) + g * g
    return w - lr * g / (np.sqrt(s["v"]) + 1e-8)


def adadelta(w, g, s, t, lr):
    s["v"] = 0.95 * s.get("v", 0) + 0.05 * g * g
    d = np.sqrt((s.get("x", 0) + 1e-6) / (s["v"] + 1e-6)) * g
    s["x"] = 0.95 * s.get("x", 0) + 0.05 * d * d
    return w - lr * d


def rmsprop(w, g, s, t, lr):
    s["v"] = 0.9 * s.get("v", 0) + 0.1 * g * g
    return w - lr * g / (np.sqrt(s["v"]) + 1e-8)


def rmsprop_graves(w, g, s, t, lr):
    m, v = averages(g, s, 0.95, 0.95)
    s["d"] = 0.9 * s.get("d", 0) + lr * g / np.sqrt(v - m * m + 1e-4)
    return w - s["d"]


def lars(w, g, s, t, lr):
    ratio = 1e-3 * np.linalg.norm(w) / (np.linalg.norm(g) + 1e-6)
    return momentum(w, ratio * g, s, t, lr)


def lamb(w, g, s, t, lr):
    r = adam_direction(g, s, t, 1e-6)
    return w - lr * np.linalg.norm(w) / np.linalg.norm(r) * r


def adabound(w, g, s, t, lr, corrected=True, largest=False):
    m, v = averages(g, s, 0.9, 0.999)
    s["u"] = np.maximum(s.get("u", 0), v) if largest else v
    rate = lr * (np.sqrt(1 - 0.999**t) / (1 - 0.9**t) if corrected else 1)
    final = 0.1 * lr / 1e-3
    lower, upper = final * (1 - 1 / (1e-3 * t + 1)), final * (1 + 1 / (1e-3 * t))
    return w - np.clip(rate / (np.sqrt(s["u"]) + 1e-8), lower, upper) * m


def amsbound(w, g, s, t, lr):
    return adabound(w, g, s, t, lr, corrected=False, largest=True)


FORMULAS = [
    (S.Sgd, sgd, 1e-3), (S.Momentum, momentum, 1e-3), (S.Nesterov, nesterov, 1e-3), (S.SgdW, sgdw, 1e-3),
    (S.Adam, adam, 1e-3), (S.AdamW, adamw, 1e-3), (S.Adamax, adamax, 2e-3), (S.AdaBelief, adabelief, 1e-3),
    (S.AMSGRAD, amsgrad, 1e-3), (lambda: S.AMSGRAD(bias_correction=True), amsgrad_corrected, 1e-3),
    (S.Lion, lion, 1e-4), (S.Adagrad, adagrad, 1e-2), (S.Adadelta, adadelta, 1.0), (S.RMSprop, rmsprop, 1e-3),
    (S.RMSpropGraves, rmsprop_graves, 1e-4), (S.Lars, lars, 1e-3), (S.Lamb, lamb, 1e-3),
    (S.AdaBound, adabound, 1e-3), (S.AMSBound, amsbound, 1e-3),
    (lambda: S.AMSBound(bias_correction=True), lambda *a: adabound(*a, largest=True), 1e-3),
]


@pytest.mark.parametrize(("make", "formula", "lr"), FORMULAS, ids=[f.__name__ for _, f, _ in FORMULAS])
def test_formula(make: Callable[[], S.Solver], formula: Callable, lr: float) -> None:
    params, solver = parameters(), make()
    assert solver.learning_rate() == lr
    solver.set_parameters(params)
    expected, memory = {n: p.d for n, p in params.items()}, {n: {} for n in params}
    for step in range(1, 5):
        run(solver, params, range(step, step + 1))
        expected = {n: formula(expected[n], g, memory[n], step, lr) for n, g in gradients(step).items()}
        for n, p in params.items():
            np.testing.assert_allclose(p.d, expected[n], rtol=1e-9, atol=1e-12)
        lr *= 0.5
        solver.set_learning_rate(lr)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_dtypes_stay(dtype: object) -> None:
    params, solver = parameters(dtype), S.Momentum(0.5)
    solver.set_parameters(params)
    run(solver, params, range(3))
    assert all(p.data.raw().dtype == p.dtype == np.dtype(dtype) for p in params.values())
    assert all(s.dtype == np.dtype(dtype) for n, s in state_arrays(solver).items() if n[0] == "m")


def test_values_set_by_hand_count_and_arrays_that_others_hold_stay() -> None:
    params, solver = parameters("float32"), S.Sgd(1.0)
    solver.set_parameters(params)
    run(solver, params, range(1))
    params["b"].d = 5.0
    for p in params.values():
        p.g = 1.0
    solver.update()
    np.testing.assert_array_equal(params["b"].d, [4, 4, 4])
    params, solver = parameters("float32"), S.Adam()
    solver.set_parameters(params)
    run(solver, params, range(2))
    held = params["W"].data.array
    state = state_arrays(solver)
    copies = {n: a.copy() for n, a in state.items()}
    run(solver, params, range(2))
    assert np.isfinite(np.asarray(held)).all()
    for n, a in copies.items():
        np.testing.assert_array_equal(state[n], a)


# ---------------------------------------------------------------- gradients


def test_weight_decay_clipping_and_scaling() -> None:
    params, solver = parameters(), S.Sgd()
    solver.set_parameters(params)
    w, b = params["W"], params["b"]
    w.g, b.g = 2.0, [3.0, 0.0, 4.0]
    solver.weight_decay(0.5)
    np.testing.assert_allclose(w.g, 2 + 0.5 * w.d)
    np.testing.assert_allclose(b.g, np.array([3.0, 0, 4.0]) + 0.5 * b.d)
    w.g, b.g = 0.1, [3.0, 0.0, 4.0]
    solver.clip_grad_by_norm(2.0)
    np.testing.assert_allclose(w.g, np.full((2, 3), 0.1))
    np.testing.assert_allclose(b.g, [1.2, 0, 1.6])
    solver.scale_grad(10)
    np.testing.assert_allclose(b.g, [12, 0, 16])
    solver.zero_grad()
    assert not w.g.any() and not b.g.any()
    solver.clip_grad_by_norm(1.0)
    assert not w.g.any()


def test_arguments_are_checked() -> None:
    nan, inf = float("nan"), float("inf")
    solver = S.Sgd(0.1)
    solver.set_parameters(parameters())
    for name, make in [
        ("lr", S.Sgd), ("alpha", S.Adam), ("alpha", S.AdamW), ("eta", S.Lamb),
        ("lr", lambda lr: S.Solver.from_optax(optax.adam, lr)), ("learning_rate", solver.set_learning_rate),
        ("decay_rate", solver.weight_decay), ("momentum", lambda m: S.Momentum(momentum=m)),
        ("wd", lambda wd: S.SgdW(wd=wd)), ("eps", lambda eps: S.Adam(eps=eps)),
    ]:
        for value in (nan, inf, -1.0):
            with pytest.raises(ValueError, match=f"{name}: must be finite and not negative, got {value}"):
                make(value)
        with pytest.raises(TypeError, match=f"{name}: expected a number, got 'much'"):
            make("much")
    for make in (lambda b: S.Adam(beta1=b), lambda b: S.Lion(beta2=b), lambda b: S.RMSprop(decay=b)):
        for value in (nan, -0.1, 1.0, 5.0):
            with pytest.raises(ValueError, match=f"must be at least 0 and less than 1, got {value}"):
                make(value)
    for value in (nan, -1.0):
        with pytest.raises(ValueError, match=f"norm must not be negative, got {value}"):
            solver.clip_grad_by_norm(value)
    for value in (nan, inf):
        with pytest.raises(ValueError, match=f"scale must be finite, got {value}"):
            solver.scale_grad(value)
    assert solver.learning_rate() == 0.1
    for made, name in [(solver, "lr"), (S.Adam(), "alpha"), (S.Adam(), "beta1"), (S.AdaBound(), "gamma")]:
        with pytest.raises(AttributeError, match=f"{name}: cannot be set, since updates are compiled with it"):
            setattr(made, name, 0.5)
    for name, make in [("gamma", lambda: S.AdaBound(gamma=0)), ("alpha", lambda: S.AMSBound(0.0))]:
        with pytest.raises(ValueError, match=name):
            make()
    idle = S.AdamW(0.0)
    idle.set_parameters(parameters())
    with pytest.raises(ValueError, match="wd: the first learning rate must not be 0"):
        idle.update()


def test_clipping_to_infinity_changes_nothing_and_none_overflows_in_half_precision() -> None:
    params = parameters()
    solver = S.Sgd()
    solver.set_parameters(params)
    params["W"].g = np.full((2, 3), 1e30)
    solver.clip_grad_by_norm(float("inf"))
    np.testing.assert_array_equal(params["W"].g, np.full((2, 3), 1e30))
    p = Variable.from_numpy_array(np.zeros(4), need_grad=True, dtype="float16")
    p.g = 1000.0
    solver = S.Sgd()
    solver.set_parameters({"p": p})
    solver.clip_grad_by_norm(2.0)
    np.testing.assert_allclose(p.g, np.ones(4), rtol=1e-3)


def test_checks_of_gradients() -> None:
    params, solver = parameters("float32"), S.Sgd()
    solver.set_parameters(params)
    solver.zero_grad()
    assert not solver.check_inf_or_nan_grad()
    params["b"].g = [0, np.inf, 1]
    assert (solver.check_inf_grad(), solver.check_nan_grad(), solver.check_inf_or_nan_grad()) == (True, False, True)
    params["b"].g = [0, np.nan, 1]
    assert (solver.check_inf_grad(), solver.check_nan_grad(), solver.check_inf_or_nan_grad()) == (False, True, True)


# ---------------------------------------------------------------- parameters and state


def test_parameters_are_added_and_removed() -> None:
    params, solver = parameters(), S.Adam()
    solver.set_parameters({"W": params["W"]})
    params["W"].g = 1.0
    solver.update()
    mean = state_arrays(solver)["mean:W"]
    solver.set_parameters({"b": params["b"]}, reset=False)
    assert list(solver.get_parameters()) == ["W", "b"]
    np.testing.assert_array_equal(state_arrays(solver)["mean:W"], mean)
    assert not state_arrays(solver)["mean:b"].any() and solver.get_states()["b"].t == 1
    solver.set_parameters(params, retain_state=True)
    np.testing.assert_array_equal(state_arrays(solver)["mean:W"], mean)
    solver.set_parameters(params)
    assert not state_arrays(solver)["mean:W"].any() and solver.get_states()["W"].t == 0
    run(solver, params, range(1))
    solver.remove_parameters(["W"])
    assert list(solver.get_parameters()) == ["b"] and state_arrays(solver)["mean:b"].any()
    with pytest.raises(KeyError, match="no parameter 'W'"):
        solver.remove_parameters(["W"])
    solver.clear_parameters()
    assert not solver.get_parameters()
    with pytest.raises(RuntimeError, match="call set_parameters first"):
        solver.update()
    with pytest.raises(TypeError, match="'n' is int32"):
        solver.set_parameters({"n": Variable((1,), dtype="int32")})
    with pytest.raises(TypeError, match="must be a Variable"):
        solver.set_parameters({"n": 3})


@pytest.mark.parametrize("dtype", ["float64", ml_dtypes.bfloat16])
def test_training_goes_on_from_a_file(tmp_path: Path, dtype: object) -> None:
    params, solver = parameters(dtype), S.Adam()
    solver.set_parameters(params)
    run(solver, params, range(3))
    solver.save_states(tmp_path / "s.safetensors")
    others = parameters(dtype)
    for n, p in params.items():
        others[n].d = p.d
    run(solver, params, range(3, 6))
    again = S.Adam()
    again.set_parameters(others)
    again.load_states(tmp_path / "s.safetensors")
    run(again, others, range(3, 6))
    for n, p in params.items():
        np.testing.assert_array_equal(others[n].d, p.d)


def test_groups_of_parameters_by_name() -> None:
    def made() -> tuple[dict[str, nn.Variable], nn.Variable]:
        w = {name: nn.Parameter(np.ones(3)) for name in ("net/W", "map/W", "net/b")}
        return w, F.sum((w["net/W"] + w["map/W"] + w["net/b"]) ** 2)

    def labels(parameters: Any) -> dict[str, str]:
        return {name: name[:3] for name in parameters}

    w, loss = made()
    for given in (labels, labels(w)):
        net = optax.chain(optax.trace(0.5), optax.sgd(0.01))
        tx = optax.multi_transform({"map": optax.sgd(1e-3), "net": net}, given)
        w, loss = made()
        solver = S.Solver.from_optax(tx)
        step = nn.train_step(loss, w, solver)
        step()
        np.testing.assert_allclose([w[name].d[0] for name in w], [1 - 0.06, 1 - 0.006, 1 - 0.06], rtol=1e-12)
    assert [name.partition(":")[2] for name in solver.named_state()] == ["net/W", "net/b"]


def test_from_optax() -> None:
    params, solver = parameters(), S.Solver.from_optax(optax.chain(optax.clip(0.5), optax.sgd(0.1)))
    solver.set_parameters(params)
    before = {n: p.d for n, p in params.items()}
    run(solver, params, range(1))
    for n, g in gradients(0).items():
        np.testing.assert_allclose(params[n].d, before[n] - 0.1 * np.clip(g, -0.5, 0.5), rtol=1e-9)
    with pytest.raises(ValueError, match="which belongs to the transformation"):
        solver.set_learning_rate(0.1)

    ours, theirs = parameters(), parameters()
    a, b = S.Adam(), S.Solver.from_optax(optax.adam, 1e-3)
    a.set_parameters(ours)
    b.set_parameters(theirs)
    for solver, p in ((a, ours), (b, theirs)):
        solver.set_learning_rate(0.1)
        run(solver, p, range(2))
    np.testing.assert_allclose(ours["W"].d, theirs["W"].d, rtol=1e-12)
    assert len(b.named_state()) == len(a.named_state())
    for wrong in (lambda: S.Solver.from_optax(optax.adam), lambda: S.Solver.from_optax(optax.sgd(1.0), 0.1),
                  lambda: S.Solver.from_optax(3)):
        with pytest.raises(TypeError):
            wrong()


def _remembering(params: Any) -> Any:
    """A state of what is given, of a filled array, of a number, and of a key."""
    return params, jax.tree.map(lambda p: jnp.full(p.shape, 0.25, p.dtype), params), 3, jax.random.key_data(
        jax.random.key(5))


@pytest.mark.parametrize("tx", [
    optax.adagrad(0.1), optax.lbfgs(),
    optax.GradientTransformation(_remembering, lambda grads, state, params=None: (grads, state)),
], ids=["adagrad", "lbfgs", "remembering"])  # fmt: skip
@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_a_first_state_is_what_optax_makes(tx: Any, dtype: str) -> None:
    arrays = [np.full((2, 3), 1.5, dtype), np.full((4,), -2.0, dtype)]
    ps = {str(i): Variable.from_numpy_array(a, need_grad=True, dtype=dtype) for i, a in enumerate(arrays)}
    solver = S.Solver.from_optax(tx)
    solver.set_parameters(ps)
    with x64_if(dtype == "float64"):
        expected = jax.tree.map(jnp.asarray, tx.init(dict(zip(ps, map(jnp.asarray, arrays), strict=True))))
    assert jax.tree.structure(solver.state) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(solver.state), jax.tree.leaves(expected), strict=True):
        assert np.asarray(a).dtype == np.asarray(b).dtype
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


@pytest.mark.parametrize("scaled", [False, True])
def test_a_frozen_parameter_and_its_state_wait(scaled: bool) -> None:
    """Neither momentum nor weight decay moves it; thawed, it goes on as if it had not been there meanwhile."""
    a, b = [Variable.from_numpy_array(np.full(2, 3.0), need_grad=True) for _ in range(2)]
    solver = S.Momentum(0.1, 0.5)
    solver.set_parameters({"a": a, "b": b})
    if scaled:
        solver.loss_scaling(2.0)
    loss = F.sum(a**2) + F.sum(b**2)
    value, speed = {"a": 3.0, "b": 3.0}, {"a": 0.0, "b": 0.0}
    for is_trained in (True, False, False, True):
        b.need_grad = is_trained
        solver.zero_grad()
        loss.forward()
        loss.backward(loss_scale=solver.loss_scale)
        solver.weight_decay(0.1)
        solver.update()
        for name in ("a", "b") if is_trained else ("a",):
            speed[name] = 0.5 * speed[name] + 0.1 * (2 + 0.1) * value[name]
            value[name] -= speed[name]
        np.testing.assert_allclose([a.d, b.d], [[value["a"]] * 2, [value["b"]] * 2], rtol=1e-12)


def test_a_parameter_that_no_gradient_reaches_stays() -> None:
    """Momentum moves it on with the next gradient alone, though it needs gradients all along."""
    a, b = [Variable.from_numpy_array(np.full(2, 3.0), need_grad=True) for _ in range(2)]
    solver = S.Momentum(0.1, 0.5)
    solver.set_parameters({"a": a, "b": b})
    for loss, expected in ((F.sum(a + b), [2.9, 2.9]), (F.sum(a), [2.75, 2.9]), (F.sum(a + b), [2.575, 2.75])):
        solver.zero_grad()
        loss.backward()
        solver.update()
        np.testing.assert_allclose([a.d[0], b.d[0]], expected, rtol=1e-12)


def test_hooks_of_solvers() -> None:
    calls: list[str] = []
    params = parameters()
    solver = S.Sgd(0.1)
    solver.set_parameters(params)
    params["b"].d, params["b"].g = 1, 1
    gradient, value = ((lambda a=a: calls.append(f"{getattr(params['b'], a)[0]:.1f}")) for a in "gd")
    solver.scale_grad(2, gradient, gradient)
    solver.update(value, value)
    assert calls == ["1.0", "2.0", "1.0", "0.8"] and solver.name == "Sgd"
