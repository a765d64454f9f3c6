"""Functions that build graphs, for inputs of any shape."""

from __future__ import annotations

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


def test_parameters_of_one_shape_alone_are_refused() -> None:
    def loss(x: nn.Variable) -> nn.Variable:
        return F.mean(PF.affine(x, 2, name=f"rows{x.shape[0]}") ** 2)

    step = nn.train_step(loss, nn.get_parameters, S.Sgd(0.1))
    step(X[:8])
    with pytest.raises(ValueError, match=r"the graph for inputs float32\[5, 3\] has other parameters than the first"):
        step(X[:5])


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
