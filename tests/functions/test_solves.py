"""Solves with matrices: facts of what they are made of, bad input."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from nngrad.functions.factors import lu_factor, lu_solve, solve_triangle
from nngrad.graph import Variable
from tests.facts import Case, checks, shows

RNG = np.random.default_rng(3)
M, N, B, C = (RNG.normal(size=(3, 3)) + 3 * np.eye(3), RNG.normal(size=(3, 3)), *RNG.normal(size=(2, 3, 1)))


def leaf(x: object) -> Variable:
    return Variable.from_numpy_array(np.asarray(x, float))


MATRICES, SIDES = RNG.normal(size=(2, 3, 3)) + 3 * np.eye(3), RNG.normal(size=(2, 3, 2))


@pytest.mark.parametrize("transposed", [False, True])
def test_facts_of_solves_by_factors(transposed: bool) -> None:
    lu, permutation = (x.d for x in lu_factor(leaf(MATRICES)))
    a, b = leaf(M), leaf(B[:, 0])
    solution = nn.linear_solve(lambda v: (F.transpose(a) if transposed else a) @ v, b, "dense")[0].parent
    for case in (
        Case(solution.op, [x.d for x in solution.inputs], solution.arguments),
        Case(lu_solve, [SIDES, lu, permutation, MATRICES], (transposed,)),
        Case(solve_triangle, [SIDES, MATRICES], (True, transposed, False)),
        Case(lu_factor, [MATRICES], ()),
    ):
        assert sum([shows(name, case) for name in checks]) >= 2, case.op.name


@pytest.mark.parametrize("n", [1, 8, 16, 17])
def test_rows_of_small_matrices_are_exchanged_without_a_loop(n: int) -> None:
    x = leaf(RNG.normal(size=(2, n, n)))
    with jax.enable_x64():
        compiled = jax.jit(nn.to_jax([F.batch_inv(x)], [x])).lower(x.d).compile()
        np.testing.assert_allclose(compiled(x.d)[0] @ x.d, np.resize(np.eye(n), (2, n, n)), atol=1e-9)
    assert (" while(" in (compiled.as_text() or "")) == (n > 16)


def test_a_singular_matrix_gives_no_finite_answer() -> None:
    assert not np.isfinite(F.batch_solve(np.zeros((2, 2)), np.ones(2)).d).any()


@pytest.mark.parametrize("a, b, message", [
    (np.ones((2, 3)), np.ones(2), r"A must hold square matrices .*got shape \(2, 3\)"),
    (np.eye(2), np.ones(3), r"B must have 2 rows .*got shape \(3,\)"),
])  # fmt: skip
def test_bad_input(a: np.ndarray, b: np.ndarray, message: str) -> None:
    for solve in (F.batch_solve, F.triangular_solve):
        with pytest.raises(ValueError, match=f"{solve.name}: {message}"):
            solve(a, b)
