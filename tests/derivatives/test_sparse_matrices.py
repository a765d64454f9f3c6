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
from nngrad.derivatives.sparse_matrices import column_colors, star_colors
from nngrad.graph import Op, Variable
from tests.oracle import as_tuple, is_floating
from tests.references import drawn
from tests.samples import Sample, all_samples
from tests.slow import slow_but_one

Array = np.ndarray[Any, Any]


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


@pytest.mark.parametrize("sample", slow_but_one(families(MOVING), lambda s: s.name), ids=lambda s: s.id)
def test_no_element_is_missed_where_elements_move(sample: Sample) -> None:
    check_pattern(sample)


@pytest.mark.slow
def test_no_element_of_any_op_is_missed() -> None:
    for sample in {s.name: s for s in all_samples() if s.orders and not s.surrogate}.values():
        each = getattr(F, sample.name)
        if isinstance(each, Op) and not each.diagonal:
            check_pattern(sample)


def test_patterns_are_exact_where_elements_move() -> None:
    x = leaf(4, 3)
    points = np.array([2, 0, 2])
    for y in (
        x[1:, ::2], F.transpose(x), F.flip(x), F.gather(x, points), F.concatenate(x, x * 2, axis=0), F.stack(x, x),
        F.put_points(x[:3], points[:, None], axes=(0,), shape=(5, 3)), F.sum(x, axis=1), F.broadcast(x[:1], (2, 3)),
        x @ np.ones((3, 2)), F.sin(x) * x[::-1], F.pad(x, (1, 1, 0, 2), constant_value=3), F.shift(x, (1, -1)),
        F.pad(x, (1, 1), mode="reflect"), F.straight_through(F.sign(x), x),
    ):  # fmt: skip
        dense = nn.jacobian(y, x, batched=False).d.reshape(y.size, x.size)
        assert np.array_equal(nn.sparsity(y, x).to_scipy().toarray(), dense != 0), y


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


def test_a_factor_that_happens_to_move_elements_may_be_another() -> None:
    x, one = leaf(1, 3), Variable.from_numpy_array(np.eye(3))
    assert nn.sparsity(x @ one, x).nnz == 9
    assert nn.sparsity(F.batch_solve(one, F.transpose(x)), x).nnz == 9
    assert nn.sparsity(F.gather(x, Variable.from_numpy_array(np.array([2.0, 0.0])), axis=1), x).nnz == 2


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


def test_auto_forward_changes_nothing() -> None:
    x = leaf(4)
    with nn.auto_forward():
        y = F.gather(x, np.array([3, 1])) ** 2
        assert nn.sparse_jacobian(y, x).to_dense().d.tolist() == nn.jacobian(y, x, batched=False).d.tolist()


# ---------------------------------------------------------------- colours


@st.composite
def patterns(draw: st.DrawFn, symmetric: bool) -> Array:
    m, n = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    dense = rng.random((m, m if symmetric else n)) < draw(st.floats(0, 0.7))
    return dense | dense.T if symmetric else dense


@settings(deadline=None)
@given(patterns(symmetric=False))
def test_columns_of_one_color_have_no_row_in_common(dense: Array) -> None:
    colors = column_colors(*np.nonzero(dense), dense.shape)
    for row in dense:
        assert len(set(colors[row])) == row.sum()


@settings(deadline=None)
@given(patterns(symmetric=True))
def test_star_colors_show_each_element_in_one_of_two_places(dense: Array) -> None:
    colors = star_colors(*np.nonzero(dense), len(dense))
    for i, j in zip(*np.nonzero(dense), strict=True):
        assert (colors[dense[i]] == colors[j]).sum() == 1 or (colors[dense[j]] == colors[i]).sum() == 1


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


def blocks_of(x: Variable) -> list[tuple[Variable, int]]:
    """Energies, and how many directions their Hessians take: as many as the largest block has elements."""
    triangles = np.array([[0, 1, 2], [1, 2, 3], [2, 3, 4], [0, 2, 4]])
    a, b = np.array([0, 1, 2, 3]), np.array([1, 2, 3, 4])

    def area(nodes: Variable) -> Variable:
        p, q = nodes[:, 1] - nodes[:, 0], nodes[:, 2] - nodes[:, 0]
        return (p[:, 0] * q[:, 1] - p[:, 1] * q[:, 0] - 1) ** 2 * F.sum(nodes**2, axis=(1, 2))

    apart = F.sum((x[a] - x[b]) ** 2, axis=1)
    padded = F.pad(F.reshape(x, (10,)), (1, 1))
    return [
        (area(x[triangles]), 6),
        (F.exp(apart) * np.arange(1.0, 5.0), 4),
        (area(F.concatenate(x, x * 0)[triangles]), 6),
        (F.prod(F.reshape(padded, (3, 4)), axis=1) ** 2, 4),
        (F.sum(x[:, 0][a] * x[:, 1][b] ** 2), 2),
        (F.tanh(F.transpose(x)[:, ::-1][0, 1:] * F.take_along_axis(x, np.array([[0], [1], [0], [1], [0]]))[:4, 0]), 2),
    ]


@pytest.mark.parametrize("case", range(6))
def test_blocks_of_elements_are_computed_at_once_and_added_up(case: int) -> None:
    x = leaf(5, 2)
    y, most = blocks_of(x)[case]
    found = nn.sparse_hessian(y, x)
    dense = F.reshape(nn.hessian(F.sum(y), x, batched=False), (10, 10))
    assert found.directions == most
    again = [nn.grad([F.sum(F.sin(m))], [x])[0] for m in (found.to_dense(), dense)]
    nn.forward_all([found.values, dense, *again])
    np.testing.assert_allclose(found.to_dense().d, dense.d, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(again[0].d, again[1].d, rtol=1e-12, atol=1e-12)


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


def test_an_arrow_takes_rows_back_or_columns_forward() -> None:
    x = leaf(30)
    assert nn.sparse_jacobian(F.concatenate(F.sum(x**2, keepdims=True), F.sin(x)), x).directions == 2
    assert nn.sparse_jacobian(x[:1] * x, x).directions == 2
    assert nn.sparse_hessian(F.sum(x[:1] * x**2), x).directions == 2


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


def test_what_is_no_variable_is_refused() -> None:
    x = leaf(2)
    for function in (nn.sparsity, nn.sparse_jacobian, nn.sparse_hessian):
        with pytest.raises(TypeError, match=rf"{function.__name__}: y"):
            function(np.ones(2), x)
        with pytest.raises(TypeError, match=rf"{function.__name__}: x"):
            function(x * 2, Variable.from_numpy_array(np.arange(2)))


def test_a_sparse_matrix_speaks_as_those_of_scipy_do() -> None:
    x = leaf(4)
    matrix = nn.sparse_jacobian(F.stack(x[0] * x[1], F.sin(x[2]), x[3] * x[0]), x)
    dense = matrix.todense().d
    assert matrix.nnz == 5 and np.array_equal(matrix.tocsr().toarray(), dense)
    assert np.array_equal(matrix.T.todense().d, dense.T) and matrix.T.shape == (4, 3)
    columns = np.arange(8.0).reshape(4, 2)
    np.testing.assert_allclose((matrix @ columns).d, dense @ columns, rtol=1e-14)
    (g,) = nn.grad([F.sum((matrix.T @ np.arange(3.0)) * x)], [x])
    np.testing.assert_allclose(g.d[2], dense[1, 2] - x.d[2] * np.sin(x.d[2]), rtol=1e-14)
