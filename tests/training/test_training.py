"""train_step: one executable that does what forward, backward and update do."""

from __future__ import annotations

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
from nngrad.training import train_step
from tests.exact import exactly
from tests.oracle import compiled_cheaply
from tests.two_layers import T, X, anew, close, error, put, values  # noqa: F401 - anew is a fixture


def apart(loss: Variable, solver: S.Solver) -> float:
    """The same step with forward(), backward() and update()."""
    loss.forward()
    solver.zero_grad()
    loss.backward()
    solver.update()
    return float(loss.d)


@pytest.mark.parametrize("make", [S.Sgd, S.Momentum, S.Adam, S.AdamW, S.Lamb])
def test_same_as_forward_backward_update(make) -> None:
    x, t = Variable.from_numpy_array(X), Variable.from_numpy_array(T)
    loss = error(x, t)
    start, solver = values(), make(0.01)
    solver.set_parameters(get_parameters())
    expected_losses = [apart(loss, solver) for _ in range(4)]
    expected = values()
    put(start)
    step = train_step(loss, get_parameters(), make(0.01), inputs=[x, t])
    losses = [step(X, T) for _ in range(4)]
    assert all(isinstance(v, jax.Array) and v.shape == () for v in losses)
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-5)
    close(values(), expected, rtol=1e-4, atol=1e-6)


def test_against_optax() -> None:
    x, t = Variable((8, 3)), Variable((8, 2))
    loss = error(x, t)
    params = {n: jax.numpy.array(v) for n, v in values().items()}
    tx = optax.adam(0.01)
    state = tx.init(params)

    def reference(p: dict) -> jax.Array:
        h = jax.numpy.tanh(X @ p["one/affine/W"] + p["one/affine/b"])
        return jax.numpy.mean((h @ p["two/affine/W"] + p["two/affine/b"] - T) ** 2)

    step = train_step(loss, get_parameters(), tx, inputs=(x, t))

    @compiled_cheaply
    def advance(params: dict, state: optax.OptState) -> tuple:
        value, g = jax.value_and_grad(reference)(params)
        updates, state = tx.update(g, state, params)
        return value, optax.apply_updates(params, updates), state

    for _ in range(3):
        value, params, state = advance(params, state)
        np.testing.assert_allclose(step(X, T), value, rtol=1e-5)
    close(values(), params, rtol=1e-4, atol=1e-6)


def test_it_is_compiled_once() -> None:
    x, t = Variable((8, 3)), Variable((8, 2))
    solver = S.Adam()
    traces = []
    update = solver.pure_update
    solver.pure_update = lambda *arrays: (traces.append(1), update(*arrays))[1]
    step = train_step(error(x, t), get_parameters(), solver, inputs=[x, t])
    for lr in (0.1, 0.1, 0.2):
        solver.set_learning_rate(lr)
        step(X, T)
        step(jax.numpy.array(X), T)
        get_parameter("two/affine/b").d = 0.0
    solver.set_states(solver.get_states())
    step(X, T)
    assert len(traces) == 1


def test_values_set_between_steps_count() -> None:
    x = Variable((8, 3))
    t = Variable.from_numpy_array(T)
    step = train_step(error(x, t), get_parameters(), S.Sgd(0.0), inputs=x)
    first = float(step(X))
    get_parameter("two/affine/b").d = 3.0
    second = float(step(X))
    assert second != first
    t.d = T + 3.0
    np.testing.assert_allclose(step(X), first, rtol=1e-5)
    np.testing.assert_array_equal(get_parameter("two/affine/b").d, [3, 3])


def test_the_learning_rate_and_the_state_are_the_solver_s() -> None:
    x, t = Variable((8, 3)), Variable((8, 2))
    solver = S.Momentum(0.1)
    step = train_step(error(x, t), get_parameters(), solver, inputs=[x, t])
    step(X, T)
    trace = solver.get_states()["two/affine/b"].pstate["m"].d
    assert trace.any()
    before = values()
    solver.set_learning_rate(0.0)
    step(X, T)
    np.testing.assert_allclose(values()["two/affine/b"], before["two/affine/b"] - 0.9 * trace, rtol=1e-5)
    train_step(error(x, t), get_parameters(), solver, inputs=[x, t])
    assert solver.get_states()["two/affine/b"].pstate["m"].d.any()
    step(X, T)
    solver.set_parameters({"W": get_parameter("one/affine/W")})
    with pytest.raises(RuntimeError, match="other parameters"):
        step(X, T)


def test_arrays_that_others_hold_are_not_taken_and_those_that_nobody_holds_are_reused() -> None:
    x, t = Variable((8, 3)), Variable((8, 2))
    loss = error(x, t)
    w = get_parameter("one/affine/W")
    target = Variable(w.shape)
    step = train_step(loss, get_parameters(), S.Adam(0.1), inputs=[x, t])
    for _ in range(2):
        step(X, T)
    held, view, expected = w.data.array, w.d, np.array(w.d)
    step(X, T)
    target.data.copy_from(w.data)
    copied = np.array(w.d)
    x.d, t.d = X, T
    loss.forward()
    promised = float(F.mean(F.tanh(F.affine(x, *map(get_parameter, ("one/affine/W", "one/affine/b")))) * 1.0).d)
    step(X, T)
    np.testing.assert_array_equal(held, expected)
    np.testing.assert_array_equal(view, expected)
    np.testing.assert_array_equal(target.d, copied)
    assert np.isfinite(promised) and np.isfinite(float(loss.d))
    assert not np.array_equal(w.d, copied)
    w = Variable.from_numpy_array(np.zeros((3, 2), np.float32), need_grad=True)
    step = train_step(F.mean((F.affine(x, w) - t) ** 2.0), {"w": w}, S.Sgd(0.1), inputs=[x, t])
    step(X, T)
    step(X, T)
    executable, given = step._update._executable, []
    run = executable.function

    def spy(state, params, *others):
        given[:] = params
        return run(state, params, *others)

    executable.function = spy
    step(X, T)
    assert given[0].is_deleted()
    given.clear()
    held = w.data.array
    step(X, T)
    assert not held.is_deleted() and given[0].is_deleted()


def test_running_statistics_are_updated() -> None:
    x, t = Variable((8, 3)), Variable((8, 2))
    loss = F.mean((PF.affine(PF.batch_normalization(x), 2) - t) ** 2.0)
    step = train_step(loss, get_parameters(), S.Adam(), inputs=[x, t])
    step(X, T)
    np.testing.assert_allclose(get_parameter("bn/mean").d[0], 0.1 * X.mean(0), rtol=1e-5)
    step(X, T)
    np.testing.assert_allclose(get_parameter("bn/mean").d[0], 0.19 * X.mean(0), rtol=1e-5)
    with pytest.warns(UserWarning, match="need_grad of 'bn/mean', 'bn/var' is False, so the step leaves them"):
        train_step(loss, get_parameters(grad_only=False), S.Adam(), inputs=[x, t])
    get_parameter("bn/mean").need_grad = True
    with pytest.raises(ValueError, match="cannot train 'bn/mean', which the graph itself writes to"):
        train_step(loss, {"bn/mean": get_parameter("bn/mean")}, S.Adam(), inputs=[x, t])


@pytest.mark.parametrize("solver", [S.Sgd, S.AdamW])
def test_a_frozen_parameter_stays_where_it_is(solver: type[S.Solver]) -> None:
    w = {name: Variable.from_numpy_array(np.ones(2), need_grad=name == "free") for name in ("frozen", "free")}
    loss = F.sum((w["frozen"] * w["free"]) ** 2)
    with pytest.warns(UserWarning, match="train_step: need_grad of 'frozen' is False"):
        step = train_step(loss, w, solver(0.1))
    step()
    assert (w["frozen"].d == 1).all() and (w["free"].d < 1).all()
    w["free"].need_grad = False
    with pytest.raises(RuntimeError, match="need_grad of a parameter that this step trains was set to False"):
        step()
    with pytest.raises(ValueError, match="none is trained, because all have need_grad=False: 'frozen', 'free'"):
        train_step(loss, w, solver(0.1))


@pytest.mark.parametrize("optimizer", [{"a": S.Sgd(0.1)}, [S.Sgd(0.1)]])
def test_several_solvers_are_refused_with_what_takes_their_place(optimizer: object) -> None:
    w = Variable.from_numpy_array(np.ones(2), need_grad=True)
    with pytest.raises(TypeError, match=r"got (dict|list)\. For groups of parameters.* optax\.multi_transform"):
        train_step(F.sum(w), [w], optimizer)


@pytest.mark.parametrize("cut", ["unlink", "switch", "no_grad"])
def test_what_no_gradient_reaches_is_said(cut: str) -> None:
    w, v, x = (Variable.from_numpy_array(np.ones(shape), need_grad=True) for shape in ((3, 4), (4, 1), (2, 3)))
    y = F.tanh(x @ w) @ v
    (g,) = nn.grad(F.sum(y), [x], enable_double_backprop=cut != "switch")
    with nn.no_grad(cut == "no_grad"):
        penalty = F.mean(F.unlink(g) ** 2 if cut == "unlink" else g**2)
    with pytest.warns(UserWarning, match="no gradient of the loss reaches 'w', 'v', although it depends on them: all"):
        train_step(penalty, {"w": w, "v": v}, S.Sgd(0.1))
    train_step(F.mean(y) + F.unlink(penalty) + F.mean(x) * 2 - 1.0, {"w": w, "v": v, "x": x}, S.Sgd(0.1))


def test_fixed_parameters_stay_and_unreached_ones_get_zero_gradients() -> None:
    x, t = Variable((8, 3)), Variable((8, 2))
    loss = error(x, t, fix_parameters=True)
    before = values()
    idle = "does not depend on 'one/affine/W', 'one/affine/b'; leave out"
    with pytest.warns(UserWarning, match=idle) as caught:
        step = train_step(loss, get_parameters(), S.Sgd(0.1), inputs=[x, t])
    assert [w.filename for w in caught] == [__file__]
    step(X, T)
    after = values()
    np.testing.assert_array_equal(after["one/affine/W"], before["one/affine/W"])
    assert not np.array_equal(after["two/affine/W"], before["two/affine/W"])
    x = Variable((8, 3))
    w, other = (Variable.from_numpy_array(np.ones((3, 1), np.float32), need_grad=True) for _ in range(2))
    with pytest.warns(UserWarning, match="does not depend on 'other'"):
        step = train_step(F.mean(F.affine(x, w)), {"w": w, "other": other}, S.Momentum(1.0), inputs=x)
    step(X)
    np.testing.assert_array_equal(other.d, np.ones((3, 1)))
    assert not np.array_equal(w.d, np.ones((3, 1)))


def test_variables_that_share_data_add_up_and_a_parameter_may_be_an_input() -> None:
    w = Variable.from_numpy_array(np.array([2.0]), need_grad=True)
    same = w.get_unlinked_variable(need_grad=True)
    constant = w.get_unlinked_variable(need_grad=False)
    step = train_step(F.sum(w * same * constant), [w], S.Sgd(0.25))
    assert float(step()) == 8
    assert w.d[0] == 2 - 0.25 * 2 * 4
    x = Variable((3, 1))
    w = Variable.from_numpy_array(np.ones((3, 1), np.float32), need_grad=True)
    step = train_step(F.sum(w * x), [w], S.Sgd(1.0), inputs=x)
    assert [float(step(w)) for _ in range(3)] == [3, 0, 0]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_dtypes(dtype: str) -> None:
    x = Variable((8, 3), dtype=dtype)
    w = Variable.from_numpy_array(np.full((3, 2), 0.5), need_grad=True, dtype=dtype)
    loss = F.mean(F.affine(x, w) ** 2.0)
    step = train_step(loss, [w], S.Adam(0.125), inputs=x)
    first = step(X)
    assert first.dtype == x.dtype
    for _ in range(5):
        last = step(X)
    assert w.data.raw().dtype == x.dtype and float(last) < float(first)


def test_a_gradient_inside_the_loss() -> None:
    x = Variable((4, 1))
    w = Variable.from_numpy_array(np.array([[1.5]]), need_grad=True, dtype="float64")
    y = F.sum(F.tanh(F.affine(F.cast(x, "float64"), w)))
    (gw,) = nn.grad(y, w)
    loss = F.sum(gw**2.0)
    step = train_step(loss, [w], S.Sgd(0.1), inputs=x)
    data = np.array([[0.1], [-0.3], [0.7], [1.0]], np.float32)

    def reference(v: jax.Array) -> jax.Array:
        return jax.grad(lambda u: jax.numpy.sum(jax.numpy.tanh(data * u)))(v) ** 2

    expected = 1.5 - 0.1 * exactly(jax.grad(reference), 1.5)
    step(data)
    np.testing.assert_allclose(w.d, [[expected]], rtol=1e-6)


def test_inputs_of_other_kinds() -> None:
    x, t, scale = Variable((8, 3)), Variable((8, 2)), Variable(())
    step = train_step(error(x, t) * scale, get_parameters(), S.Sgd(0.0), inputs=[x, t, scale])
    expected = step(X, T, np.float32(2.0))
    leaf = Variable.from_numpy_array(X)
    for data in (X.tolist(), leaf, leaf.data, leaf * 1.0, jax.numpy.array(X)):
        np.testing.assert_allclose(step(data, T, 2), expected, rtol=1e-6)
    assert not any(p.data.raw().is_deleted() for p in get_parameters().values())


def test_inputs_are_checked() -> None:
    x, t = Variable((8, 3)), Variable((8, 2))
    step = train_step(error(x, t), get_parameters(), S.Sgd(), inputs=[x, t])
    step(X.astype(np.float64), (10 * T).astype(np.int64))
    for arrays, message in [((X,), "expected 2 inputs, got 1"), ((X, T, T), "expected 2 inputs, got 3")]:
        with pytest.raises(TypeError, match=message):
            step(*arrays)
    with pytest.raises(ValueError, match=r"input 1: expected shape \(8, 2\), got \(8, 3\)"):
        step(X, X)
    for value in (None, "x", {"x": X}, [[1.0], [1.0, 2.0]]):
        with pytest.raises((TypeError, ValueError), match=r"input 0: expected an array of float32\[8, 3\], got "):
            step(value, T)
    with pytest.raises(TypeError, match="expected 2 inputs, got 1"):
        step(X.tolist())
    with pytest.raises(ValueError, match=r"input 1: expected shape \(8, 2\), got \(\)"):
        step(X, 1.0)
    named = Variable((8, 3), name="images")
    with pytest.raises(ValueError, match=r"input 0 \('images'\): expected shape"):
        train_step(error(named, t), get_parameters(), S.Sgd(), inputs=named)(T)
    before = values()
    step(X, T)
    assert not np.array_equal(values()["two/affine/b"], before["two/affine/b"])


def test_arguments_are_checked() -> None:
    x, t = Variable((8, 3)), Variable((8, 2))
    loss = error(x, t)
    w = get_parameter("one/affine/W")
    for kind, message, arguments in [
        (ValueError, "must be a scalar", (PF.affine(x, 2), [w], S.Sgd())),
        (TypeError, "loss: expected a Variable", (3.0, [w], S.Sgd())),
        (TypeError, "must have a floating dtype", (Variable((), dtype="int32"), [w], S.Sgd())),
        (ValueError, "must not be empty", (loss, [], S.Sgd())),
        (ValueError, "must be a leaf, got an output of", (loss, [loss], S.Sgd())),
        (TypeError, "must be a Variable", (loss, {"w": 1}, S.Sgd())),
        (ValueError, "are the same or share", (loss, [w, w], S.Sgd())),
        (ValueError, "are the same or share", (loss, [w, w.get_unlinked_variable()], S.Sgd())),
        (ValueError, "is the parameter '0'", (loss, [w], S.Sgd(), [w])),
        (ValueError, "given twice", (loss, [w], S.Sgd(), [x, x])),
        (TypeError, r"inputs\[0\]: expected a Variable", (loss, [w], S.Sgd(), [3])),
        (TypeError, "optax", (loss, [w], "adam")),
    ]:
        with pytest.raises(kind, match=message):
            train_step(*arguments)
