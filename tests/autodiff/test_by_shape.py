"""Functions that build graphs, for inputs of any shape."""

from __future__ import annotations

import pickle
import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
import nngrad.solvers as S
from tests.solver_states import state_arrays

RNG = np.random.default_rng(0)
X, T = RNG.standard_normal((2, 21, 3)).astype(np.float32)


@pytest.fixture(autouse=True)
def no_parameters() -> None:
    nn.clear_parameters()
    nn.seed(0)


def loss_of(x: nn.Variable, t: nn.Variable) -> nn.Variable:
    """Its graph has the number of rows in it, as a number and as a shape."""
    h = PF.batch_normalization(F.tanh(PF.affine(x, 4, name="a")))
    y = F.reshape(PF.affine(h, 3, name="b"), (x.shape[0] * 3,))
    return F.sum((y - F.reshape(t, (-1,))) ** 2) * (1 / x.shape[0])


def make_parameters() -> dict[str, np.ndarray]:
    loss_of(nn.Variable((8, 3)), nn.Variable((8, 3)))
    return {name: p.d.copy() for name, p in nn.get_parameters(grad_only=False).items()}


def set_parameters(values: dict[str, np.ndarray]) -> None:
    for name, p in nn.get_parameters(grad_only=False).items():
        p.d = values[name]


BATCHES = [slice(0, 8), slice(8, 16), slice(16, 21), slice(2, 10), slice(16, 21)]


def test_training_with_a_shorter_batch_is_training_by_graphs_built_by_hand() -> None:
    start = make_parameters()
    solver = S.Adam(alpha=0.1)
    solver.set_parameters(nn.get_parameters())
    wanted = []
    for batch in BATCHES:
        x, t = nn.Variable.from_numpy_array(X[batch]), nn.Variable.from_numpy_array(T[batch])
        loss = loss_of(x, t)
        loss.forward()
        solver.zero_grad()
        loss.backward()
        solver.update()
        wanted.append(float(loss.d))
    by_hand = {name: p.d.copy() for name, p in nn.get_parameters(grad_only=False).items()}

    set_parameters(start)
    other = S.Adam(alpha=0.1)
    step = nn.train_step(loss_of, nn.get_parameters, other)
    found = [float(step(X[batch], T[batch])) for batch in BATCHES]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    for name, p in nn.get_parameters(grad_only=False).items():
        np.testing.assert_allclose(p.d, by_hand[name], rtol=1e-3, atol=1e-5, err_msg=name)
    assert state_arrays(other).keys() == state_arrays(solver).keys()


def test_a_step_is_built_once_for_each_shape() -> None:
    built: list[tuple[int, ...]] = []

    def loss(x: nn.Variable) -> nn.Variable:
        built.append(x.shape)
        return F.mean(PF.affine(x, 2) ** 2)

    step = nn.train_step(loss, nn.get_parameters, S.Sgd(0.1))
    assert not built
    for rows in (8, 8, 5, 8, 5):
        step(X[:rows])
    assert built == [(8, 3), (5, 3)]


def test_the_scopes_are_those_in_which_it_was_made() -> None:
    with nn.parameter_scope("net"):
        step = nn.train_step(loss_of, nn.get_parameters, S.Sgd(0.1))
        run = nn.compile(lambda x: PF.affine(x, 4, name="a"))
    with nn.parameter_scope("elsewhere"), nn.auto_forward():
        step(X[:8], T[:8])
        assert run(X[:5]).shape == (5, 4)
    assert {name.split("/")[0] for name in nn.get_parameters()} == {"net"}


def test_parameters_given_by_themselves() -> None:
    make_parameters()
    parameters = nn.get_parameters()
    step = nn.train_step(loss_of, parameters, S.Sgd(0.1))
    before = parameters["a/affine/W"].d.copy()
    step(X[:8], T[:8])
    step(X[:5], T[:5])
    assert not np.array_equal(parameters["a/affine/W"].d, before)


def test_parameters_of_one_shape_alone_are_refused() -> None:
    def loss(x: nn.Variable) -> nn.Variable:
        return F.mean(PF.affine(x, 2, name=f"rows{x.shape[0]}") ** 2)

    step = nn.train_step(loss, nn.get_parameters, S.Sgd(0.1))
    step(X[:8])
    with pytest.raises(ValueError, match=r"the graph for inputs float32\[5, 3\] has other parameters than the first"):
        step(X[:5])


def test_an_error_while_it_is_built_leaves_nothing_behind() -> None:
    def loss(x: nn.Variable) -> nn.Variable:
        y = PF.affine(x, 2)
        return F.mean(y) if len(x) > 5 else y

    step = nn.train_step(loss, nn.get_parameters, S.Sgd(0.1))
    for _ in range(2):
        with pytest.raises(ValueError, match="loss: must be a scalar"):
            step(X[:5])
    assert step(X[:8]).shape == ()


def test_compiled_functions_of_any_shape() -> None:
    w = nn.Variable.from_numpy_array(RNG.standard_normal((3, 2)).astype(np.float32))

    def build(x: nn.Variable) -> list[nn.Variable]:
        return [x @ w, F.sum(x, axis=0) * (1 / x.shape[0])]

    run = nn.compile(build)
    for rows in (8, 5, 8):
        product, mean = run(X[:rows])
        np.testing.assert_allclose(product, X[:rows] @ w.d, rtol=1e-5)
        np.testing.assert_allclose(mean, X[:rows].mean(0), rtol=1e-5, atol=1e-6)
    w.d = np.zeros((3, 2))
    np.testing.assert_array_equal(run(X[:5])[0], np.zeros((5, 2)))
    assert run([[1.0, 2.0, 3.0]])[0].dtype == np.float32
    assert run(X[:5].astype(np.float64))[1].dtype == np.float64


def test_jax_functions_of_any_shape() -> None:
    function = nn.to_jax(lambda x: F.sum(F.tanh(PF.affine(x, 2)), axis=1) * (1 / x.shape[0]))
    jitted = jax.jit(function)
    first = jitted(X[:8])  # the parameters are made while JAX traces
    w, b = (nn.get_parameters()[name].d.copy() for name in ("affine/W", "affine/b"))
    for rows in (8, 5):
        wanted = np.tanh(X[:rows] @ w + b).sum(1) / rows
        np.testing.assert_allclose(jitted(X[:rows]), wanted, rtol=1e-5, atol=1e-6)
        assert jax.jit(jax.grad(lambda x: jnp.sum(function(x))))(X[:rows]).shape == (rows, 3)
    nn.get_parameters()["affine/W"].d = np.zeros((3, 2))
    np.testing.assert_allclose(jax.jit(function)(X[:8]), first, rtol=1e-6)  # frozen
    np.testing.assert_allclose(function(X[:3]), np.tanh(X[:3] @ w + b).sum(1) / 3, rtol=1e-5, atol=1e-6)


def test_random_functions_take_a_key() -> None:
    function = nn.to_jax(lambda x: F.dropout(x, 0.5))
    with pytest.raises(ValueError, match="key"):
        function(X)
    for rows in (8, 5):
        assert (jax.jit(function)(X[:rows], key=jax.random.key(0)) == 0).any()


def test_threads_build_one_graph() -> None:
    built = []

    def build(x: nn.Variable) -> nn.Variable:
        built.append(x.shape)
        return PF.affine(x, 2)

    run = nn.compile(build)
    threads = [threading.Thread(target=run, args=(X[:8],)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert built == [(8, 3)]
    assert len(nn.get_parameters()) == 2


@pytest.mark.parametrize("make", [
    lambda x: nn.compile(F.tanh, x),
    lambda x: nn.to_jax(F.tanh, x),
    lambda x: nn.train_step(F.sum, [x], S.Sgd(), inputs=[x]),
])
def test_inputs_beside_a_function_are_refused(make: Any) -> None:
    with pytest.raises(TypeError, match="inputs: must be left out for a function that builds the graph"):
        make(nn.Variable((3,), need_grad=True))


def test_other_shapes_of_a_graph_say_what_to_do() -> None:
    x = nn.Variable((8, 3), need_grad=True)
    w = nn.Variable((3,), need_grad=True)
    y = F.sum(x * w)
    step = nn.train_step(y, [w], S.Sgd(0.1), inputs=[x])
    for run in (nn.compile(y, x), nn.to_jax(y, x), step):
        with pytest.raises(ValueError, match=r"\(5, 3\).*for any shape, pass a function of Variables"):
            run(X[:5])
        run(X[:8])


def test_what_a_function_returns_is_checked() -> None:
    with pytest.raises(TypeError, match="outputs: expected a Variable or a list of them"):
        nn.compile(lambda x: np.zeros(3))(X)
    with pytest.raises(TypeError, match="loss: expected a Variable, got ndarray"):
        nn.train_step(lambda x: np.zeros(3), [nn.Variable((), need_grad=True)], S.Sgd())(X)
    with pytest.raises(TypeError, match="inputs: expected the Variables"):
        nn.to_jax(nn.Variable(()))  # type: ignore[arg-type]


def test_there_are_no_values_to_read_while_a_graph_is_built() -> None:
    for make in (nn.compile, nn.to_jax):
        with pytest.raises(ValueError, match="cannot read a value in the body of a compiled function"):
            make(lambda x: F.sum(x) * float(x.d.sum()))(X)
        with pytest.raises(ValueError, match=r"bool_gather: the size of the result .* not known yet. Pass size="):
            make(lambda x: F.bool_gather(x, x))(X)


def test_they_are_not_pickled() -> None:
    step = nn.train_step(loss_of, nn.get_parameters, S.Sgd(0.1))
    for made in (step, nn.compile(F.tanh)):
        with pytest.raises(TypeError, match="cannot be pickled or copied"):
            pickle.dumps(made)
