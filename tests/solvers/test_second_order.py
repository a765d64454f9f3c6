"""S.GaussNewton and S.LBFGS in training steps, beside the same by NumPy, SciPy and optax."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
import nngrad.solvers as S

RNG = np.random.default_rng(0)
X, T = RNG.standard_normal((5, 2)), RNG.standard_normal((5, 2))
START = [RNG.standard_normal((2, 3)), RNG.standard_normal((3, 2))]


@pytest.fixture(autouse=True)
def wide() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def leaves() -> list[nn.Variable]:
    return [nn.Variable.from_numpy_array(a, need_grad=True) for a in START]


def residuals(m: Any, p: Any) -> Any:
    return m.tanh(X @ p[0]) @ p[1] - T if m is jnp else F.tanh(F.matmul(variable(X), p[0])) @ p[1] - T


def variable(a: Any) -> nn.Variable:
    return nn.Variable.from_numpy_array(np.asarray(a))


def by_numpy(steps: int, damping: float, grid: int, adaptive: bool = False) -> tuple[np.ndarray, list[float], float]:
    """Parameters, losses and damping after some steps, with everything dense."""
    point, unflatten = jax.flatten_util.ravel_pytree([jnp.asarray(a) for a in START])

    def r(v: Any) -> Any:
        return jnp.ravel(residuals(jnp, unflatten(v)))

    losses = []
    for _ in range(steps):
        rest, j = np.asarray(r(point)), np.asarray(jax.jacobian(r)(point))
        loss = rest @ rest / 2
        d = np.linalg.solve(j.T @ j + damping * np.eye(len(point)), j.T @ rest)
        tried = [float(np.sum(np.asarray(r(point - 0.5**k * d)) ** 2) / 2) for k in range(grid)]
        best = int(np.argmin(tried))
        point = point - (0.5**best * d if tried[best] < loss else 0)
        if adaptive:
            foretold = loss - np.sum((rest - j @ d) ** 2) / 2
            gain = (loss - tried[0]) / foretold
            damping *= 4 if not gain > 0.25 else 0.25 if gain > 0.75 else 1
        losses.append(loss)
    return np.asarray(point), losses, damping


@pytest.mark.parametrize(("method", "adaptive"), [("residual", False), ("dense", True), ("cg", False), (None, True)])
def test_gauss_newton_is_that_of_numpy(method: str | None, adaptive: bool) -> None:
    p = leaves()
    solver = S.GaussNewton(damping=0.05, line_search=5, adaptive=adaptive, method=method)
    step = nn.train_step(residuals(F, p), p, solver)
    found = [float(step()) for _ in range(4)]
    point, losses, damping = by_numpy(4, 0.05, 5, adaptive)
    np.testing.assert_allclose(found, losses, rtol=1e-6)
    np.testing.assert_allclose(np.concatenate([np.ravel(x.d) for x in p]), point, rtol=1e-5, atol=1e-6)
    assert float(solver.state.damping) == pytest.approx(damping)


def test_a_function_builds_the_residuals() -> None:
    with nn.parameter_scope("second-order", scope=OrderedDict()):
        def build(x: nn.Variable, t: nn.Variable) -> list[nn.Variable]:
            return [PF.affine(x, 1, name="line") - t]

        step = nn.train_step(build, nn.get_parameters, S.GaussNewton(damping=1e-9))
        x = RNG.standard_normal((6, 2)).astype("f")
        for count in (6, 4, 6):
            step(x[:count], x[:count, :1] * 2 + 1)
        named = nn.get_parameters()
    np.testing.assert_allclose(named["line/affine/W"].d, [[2], [0]], atol=1e-4)
    np.testing.assert_allclose(named["line/affine/b"].d, [1], atol=1e-4)


def test_a_step_is_not_taken_where_none_lowers_the_loss() -> None:
    p = variable(np.array([0.0]))
    p.need_grad = True
    step = nn.train_step(F.sqrt(1 + p**2), [p], S.GaussNewton(damping=1.0))
    step()
    assert p.d[0] == 0
    with pytest.raises(ValueError, match=r"S\.GaussNewton takes residuals.* got one number"):
        nn.train_step(F.sum(p**2), [p], S.GaussNewton())
    broken = nn.train_step(F.log(p - 1.0), [p], S.GaussNewton())
    assert np.isnan(float(broken())) and p.d[0] == 0


def test_gauss_newton_adapts_its_damping() -> None:
    """From 3 on, a full step of atan goes too far; J^2 is 0.01 there, and the damping is less at first."""
    for adaptive, is_enough in ((None, True), (False, False)):
        p = nn.Parameter(np.array([3.0]))
        step = nn.train_step(F.atan(p), [p], S.GaussNewton(line_search=1, adaptive=adaptive))
        losses = [float(step()) for _ in range(30)]
        assert (losses[-1] < 1e-12) == is_enough and (len(set(losses)) > 1) == is_enough


def test_lbfgs_is_that_of_optax() -> None:
    p = leaves()
    step = nn.train_step(F.sum(residuals(F, p) ** 2), p, S.LBFGS(memory_size=3))
    found = [float(step()) for _ in range(12)]
    tx = optax.lbfgs(memory_size=3)

    def loss(p: Any) -> Any:
        return jnp.sum(residuals(jnp, p) ** 2)

    @jax.jit
    def update(params: Any, state: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(params)
        moves, state = tx.update(grads, state, params, value=value, grad=grads, value_fn=loss)
        return value, optax.apply_updates(params, moves), state

    params = tuple([jnp.asarray(a) for a in START])
    state, known = tx.init(params), []
    for _ in range(12):
        value, params, state = update(params, state)
        known.append(float(value))
    np.testing.assert_allclose(found, known, rtol=1e-6)
    assert found[-1] < found[0] / 3


def test_what_second_order_solvers_refuse() -> None:
    p = leaves()
    r = residuals(F, p)
    solver = S.GaussNewton()
    solver.set_parameters({"w": p[0]})
    F.sum(p[0] ** 2).backward()
    for call, error, message in [
        (lambda: S.GaussNewton(damping=-1.0), ValueError, "damping"),
        (lambda: S.GaussNewton(line_search=-1), ValueError, "line_search: must be 0 or more"),
        (lambda: S.GaussNewton(line_search=0, adaptive=True), ValueError, "1 or more with adaptive=True"),
        (lambda: S.GaussNewton(method="lu"), ValueError, "method must be one of"),
        (lambda: S.LBFGS(memory_size=0), ValueError, "memory_size"),
        (lambda: S.GaussNewton().loss_scaling(2.0), ValueError, "loss_scaling: not available for S.GaussNewton"),
        (solver.update, TypeError, "'value', 'value_fn', and 'direction': the solver's update\\(\\) passes gradients"),
        (lambda: nn.train_step(r, p, S.GaussNewton(), weight_decay=0.1), ValueError,
         "weight_decay: must be None for S.GaussNewton"),
        (lambda: nn.train_step(r, p, S.Adam()), ValueError, "loss: must be a scalar"),
        (lambda: nn.train_step(3.0, p, S.GaussNewton()), TypeError, "loss"),
    ]:
        with pytest.raises(error, match=message):
            call()
