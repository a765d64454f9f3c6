"""nn.sparsity, nn.sparse_jacobian and nn.sparse_hessian: no element is missed, and each has its own value."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nngrad as nn
import nngrad.functions as F
from nngrad.graph import Op, Variable
from tests.oracle import as_tuple, is_floating
from tests.references import drawn
from tests.samples import Sample, all_samples
from tests.slow import slow_but_one


def leaf(*shape: int, seed: int = 0) -> Variable:
    return Variable.from_numpy_array(np.random.default_rng(seed).standard_normal(shape), need_grad=True)


# ---------------------------------------------------------------- patterns

MOVING = ("contractions", "indexing", "movement", "slicing")


def families(names: tuple[str, ...]) -> list[Sample]:
    """Samples of the functions in some files that have derivatives."""
    samples = [s for s in all_samples() if s.orders and not s.surrogate]
    return [s for s in samples if getattr(F, s.name).__module__.rpartition(".")[2] in names]


def check_pattern(sample: Sample) -> None:
    """Against the Jacobian of the reference by JAX."""
    arrays = drawn(sample)
    variables = [Variable.from_numpy_array(x) for x in arrays]
    ys = as_tuple(getattr(F, sample.name)(*variables, **sample.arguments))

    def floating_results(*xs: Any) -> tuple[Any, ...]:
        return tuple([y for y in as_tuple(sample.reference(*xs)) if is_floating(y)])

    for i, x in enumerate(arrays):
        if is_floating(x):
            told = [nn.sparsity(y, variables[i]).to_scipy().toarray() for y in ys if is_floating(y)]
            if not all([each.all() for each in told]):
                with jax.enable_x64(True):
                    rows = jax.jacobian(floating_results, argnums=i)(*map(jnp.asarray, arrays))
                for each, row in zip(told, rows, strict=True):
                    assert not np.any((np.asarray(row).reshape(each.shape) != 0) & ~each)


@pytest.mark.parametrize("sample", slow_but_one(families(MOVING), lambda s: s.name, n=3), ids=lambda s: s.id)
def test_no_element_is_missed_where_elements_move(sample: Sample) -> None:
    check_pattern(sample)


@pytest.mark.slow
def test_no_element_of_any_op_is_missed() -> None:
    for sample in {s.name: s for s in all_samples() if s.orders and not s.surrogate}.values():
        each = getattr(F, sample.name)
        if isinstance(each, Op) and not each.diagonal:
            check_pattern(sample)


def test_what_depends_on_nothing_has_no_elements() -> None:
    x, other = leaf(3), leaf(3, seed=1)
    assert nn.sparsity(other * 2, x).nnz == 0
    assert nn.sparsity(F.sin(x).get_unlinked_variable() * other, x).nnz == 0
    matrix = nn.sparse_jacobian(other * 2, x)
    assert matrix.directions == 0 and not matrix.to_dense().d.any()
    assert nn.sparse_hessian(F.sum(x * other), x).pattern.nnz == 0


def test_indices_that_are_computed_from_x_or_drawn_tell_nothing() -> None:
    x = leaf(5)
    order = F.sort(x, only_index=True)
    assert nn.sparsity(F.gather(x, order), x).nnz == 25
    assert nn.sparsity(F.gather(x, F.randint(low=0, high=5, shape=(5,))), x).nnz == 25


def test_a_gradient_of_the_users_may_mix_what_the_function_does_not() -> None:
    @nn.custom_gradient
    def mixed(x: Variable) -> Any:
        return F.sin(x), lambda gy: F.broadcast(F.sum(gy, keepdims=True), (3,))

    x = leaf(3)
    assert np.all(nn.sparse_jacobian(mixed(x), x).to_dense().d == 1)


def test_a_checkpoint_is_looked_into() -> None:
    x = leaf(4)
    y = nn.checkpoint(lambda x: nn.checkpoint(F.sin)(x[1:]) * x[:-1])(x)
    assert np.array_equal(nn.sparsity(y, x).to_scipy().toarray(), np.eye(3, 4) + np.eye(3, 4, 1) > 0)


# ---------------------------------------------------------------- matrices

STEPS = [
    lambda x, rng: x[rng.integers(0, x.size, rng.integers(1, x.size + 1))],
    lambda x, rng: F.sin(x) * x[::-1],
    lambda x, rng: x[1:] * x[:-1] if x.size > 1 else x,
    lambda x, rng: F.reshape(F.transpose(F.reshape(F.concatenate(x, x**2), (2, -1))), (-1,))[: rng.integers(1, 7)],
    lambda x, rng: F.where(x > 0.1, x, x**3),
    lambda x, rng: F.scatter_add(F.constant(0, (4,)), rng.integers(0, 4, x.size), x, axis=0),
    lambda x, rng: F.sum(F.reshape(F.concatenate(x, x), (-1, 2)) ** 3, axis=1),
    lambda x, rng: F.concatenate(x[:1] * x, F.max(x, keepdims=True)),
]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, len(STEPS) - 1), min_size=1, max_size=4), st.integers(1, 6), st.integers(0, 2**32))
def test_random_programs_have_the_dense_matrices(steps: list[int], size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = y = leaf(size, seed=seed)
    for k in steps:
        y = STEPS[k](y, rng)
    jacobian = nn.jacobian(y, x, batched=False)
    hessian = nn.hessian(F.sum(y**2), x, batched=False)
    found = nn.sparse_jacobian(y, x), nn.sparse_hessian(y**2, x)
    nn.forward_all([jacobian, hessian, *[m.values for m in found]])
    for matrix, dense in zip(found, (jacobian, hessian), strict=True):
        np.testing.assert_allclose(matrix.to_scipy().toarray(), dense.d, rtol=1e-9, atol=1e-9)


def test_a_tridiagonal_hessian_takes_three_directions() -> None:
    x = leaf(50)
    found = nn.sparse_hessian(F.sum(F.exp(x[1:] - x[:-1])) + F.sum(x**4), x)
    assert found.directions == 3 and found.pattern.nnz == 148
    a = np.diag(np.exp(np.diff(x.d)))
    d = np.diff(np.eye(50), axis=0)
    expected = d.T @ a @ d + np.diag(12 * x.d**2)
    np.testing.assert_allclose(found.to_dense().d, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.to_scipy().toarray(), expected, rtol=1e-12, atol=1e-12)
    with jax.enable_x64(True):
        np.testing.assert_allclose(found.to_bcoo().todense(), expected, rtol=1e-12, atol=1e-12)


def test_a_finite_element_energy_has_the_hessian_that_jax_finds() -> None:
    rng = np.random.default_rng(0)
    points, triangles = rng.standard_normal((6, 2)), np.array([[0, 1, 2], [1, 2, 3], [3, 4, 5], [2, 3, 5]])

    def energy(m: Any, x: Any) -> Any:
        edges = x[triangles][:, 1:] - x[triangles][:, :1]
        return m.sum(m.sum(edges**2, axis=(1, 2)) ** 2 + m.exp(edges[:, 0, 0] * edges[:, 1, 1]))

    x = Variable.from_numpy_array(points, need_grad=True)
    found = nn.sparse_hessian(energy(F, x), x)
    with jax.enable_x64(True):
        dense = jax.hessian(lambda x: energy(jnp, x))(jnp.asarray(points)).reshape(12, 12)
    assert found.directions == 6
    assert np.array_equal(found.pattern.to_scipy().toarray(), np.asarray(dense) != 0)
    np.testing.assert_allclose(found.to_dense().d, dense, rtol=1e-12, atol=1e-12)


def test_what_is_read_twice_or_changed_or_has_another_gradient_is_no_block() -> None:
    x = leaf(4)
    twice, order = np.array([[0, 0], [1, 2], [3, 3]]), np.array([2, 0, 3, 1])
    for y in (
        F.prod(x[twice], axis=1) ** 2,
        F.sum(x[order] ** 3) + F.sum(x**2 * x[order]),
        F.sin((2 * x)[order] * x),
        F.sum(F.clip_grad_by_value(x[order], -0.1, 0.1) ** 2),
        F.sum(x[order].get_unlinked_variable() * x**2),
        F.sum(x[order][:2] * x[order][2:] ** 2),
        x[order],
    ):
        dense = nn.hessian(F.sum(y), x, batched=False)
        np.testing.assert_allclose(nn.sparse_hessian(y, x).to_dense().d, dense.d, rtol=1e-12, atol=1e-12)


def test_values_are_differentiated_again_and_follow_their_leaves() -> None:
    x = leaf(6)
    found = nn.sparse_hessian(F.sum(F.sin(x[1:]) * x[:-1]), x)
    dense = nn.hessian(F.sum(F.sin(x[1:]) * x[:-1]), x, batched=False)
    for a, b in zip(*[nn.grad([F.sum(m**2)], [x]) for m in (found.values, dense)], strict=True):
        np.testing.assert_allclose(a.d, b.d, rtol=1e-12)
    run = nn.compile([found.to_dense(), dense], [x])
    np.testing.assert_allclose(*run(np.arange(6.0)), rtol=1e-12, atol=1e-12)


def test_shapes_batches_and_middles_of_graphs() -> None:
    x = leaf(3, 4)
    h = F.tanh(x)
    y = h[:, 1:] * h[:, :-1]
    for v in (x, h):
        dense = nn.jacobian(y, v, batched=False).d.reshape(9, 12)
        found = nn.sparse_jacobian(y, v)
        assert found.directions == 2 and found.shape == (9, 12)
        np.testing.assert_allclose(found.to_dense().d, dense, rtol=1e-12)
