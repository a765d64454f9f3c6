"""Gauss-Newton and Fisher matrices: products with vectors, dense forms, and solves."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

import nngrad.functions as F

from ..autodiff.forward_mode import NoForwardMode
from ..autodiff.request import differentiable
from ..graph import Variable, as_variable
from ..graph.arguments import checked_choice, checked_count
from ..graph.block import new_leaves
from .directions import several_over_directions
from .implicit.linear import linear_solve
from .implicit.packing import Packing, at_full_precision
from .likelihoods import LIKELIHOODS, Likelihood
from .parts import built, gradients_at, one_floating, pushed, vectors_for

METHODS = ("residual", "dense", "cg")
_LARGEST = 8192
"""The most rows that a matrix is factorised with by default; this takes half a gigabyte and some seconds."""


class CurvatureMatrix:
    """A positive semidefinite matrix over the parameters, `R^T R`, where the rows of R are gradients of residuals.

    Made by `nn.gauss_newton` and `nn.fisher`.

    All results are Variables, which can be used in a loss and differentiated again. Vectors, and results, are lists
    with one Variable, array or number for each parameter, or one vector of the elements of all parameters.
    """

    def __init__(
        self, outputs: list[Variable], parameters: list[Variable], likelihood: Likelihood, scale: float,
        chunk: int | None,
    ) -> None:  # fmt: skip
        self.outputs = outputs
        """The Variables to differentiate: residuals, or outputs of a network."""
        self.parameters = parameters
        """The Variables to differentiate by."""
        self._likelihood = likelihood
        self._scale = scale  # of the rows
        self._chunk = chunk

    @property
    def shape(self) -> tuple[int, int]:
        """(n, n) with n the number of elements of all parameters."""
        n = sum([p.size for p in self.parameters])
        return n, n

    def __repr__(self) -> str:
        name, count = type(self).__name__, len(self.parameters)
        return f"<{name} of {self.shape[0]} elements in {count} parameters, {self.rank} rows>"

    @property
    def rank(self) -> int:
        """The number of rows of R: an upper bound for the rank."""
        return sum([y.size for y in self.outputs])

    def __matmul__(self, vectors: Any) -> Any:
        """The product with a vector, by one forward and one reverse pass; the matrix is never formed."""
        parts, arranged = self._vectors(vectors, "@: vectors")
        return arranged(self._built(lambda: self._times(parts)))

    def rows(self) -> Variable:
        """R, (rank, n): all gradients; `R^T R` is the matrix and `R R^T` the kernel."""
        return self._built(lambda: [self._rows()])[0]

    def dense(self) -> Variable:
        """The dense matrix, (n, n), in the order of the parameters."""
        return self._built(lambda: [self._dense()])[0]

    def diagonal(self) -> list[Variable]:
        """The diagonal: one Variable for each parameter, in its shape."""

        def build() -> list[Variable]:
            squares = [self._over_rows(y, square=True) for y in self.outputs]
            return [terms[0] if len(terms) == 1 else F.add_n(*terms) for terms in zip(*squares, strict=True)]

        return self._built(build)

    @at_full_precision
    def solve(
        self, b: Any, damping: float | Variable = 0.0, method: str | None = None, *, tol: float | None = None,
        maxiter: int | None = None,
    ) -> Any:  # fmt: skip
        """`x` with `(A + damping I) x = b`.

        Args:
            b: The right-hand side, a vector.
            damping: The number added to the diagonal: not negative, or a Variable of shape ().
            method: "dense" forms the matrix. "residual" forms the kernel, which is smaller if there are fewer rows than
                parameters, and uses Woodbury's identity; this needs `damping`, and loses digits where it is small: see
                `nn.natural_gradient`. "cg" iterates, and only multiplies. By default the smaller of the first two, or
                "cg" if that has more than 8,192 rows.
            tol, maxiter: For "cg", as in `nn.linear_solve`. With `maxiter` the last iterate is returned after that
                many products; without, the result is NaN if it has not converged.

        Returns:
            In the form of `b`.
        """
        parts, arranged = self._vectors(b, "solve: b")
        by, extra = self._method(method, "solve"), self._damping(damping, "solve")
        if by == "cg":
            x, _ = linear_solve(
                lambda v: [a + extra * x for a, x in zip(self._times(v), v, strict=True)], parts, "cg",
                tol=tol, maxiter=maxiter, unconverged="nan" if maxiter is None else "keep",
            )  # fmt: skip
            return arranged(list(x))
        right = self._packing().packed(parts, "b has")

        def build() -> list[Variable]:
            if by == "dense":
                return [_solved(self._dense(), extra, right)]
            return [(right - self._by_kernel(extra, lambda rows: F.matmul(rows, right))) / extra]

        (x,) = self._built(build, [right])
        return arranged(self._packing().unpacked(x))

    # ---------------------------------------------------------------- parts

    def _times(self, vectors: list[Variable]) -> list[Variable]:
        """The matrix times a vector."""
        try:
            moved = pushed(self.outputs, self.parameters, vectors)
        except NoForwardMode:  # the gradient is linear in its seeds; transposing that map gives J v
            ws = new_leaves([y.spec for y in self.outputs])
            moved = gradients_at(gradients_at(self.outputs, self.parameters, list(ws)), ws, list(vectors))
        times = self._likelihood.times
        seeds = [self._scaled(self._scaled(times(y, u))) for y, u in zip(self.outputs, moved, strict=True)]
        return gradients_at(self.outputs, self.parameters, seeds)

    def _back(self, vectors: list[Variable]) -> list[Variable]:
        """R^T times a vector."""
        seeds = [self._times_root(y, w) for y, w in zip(self.outputs, vectors, strict=True)]
        return gradients_at(self.outputs, self.parameters, list(seeds))

    def _times_root(self, y: Variable, w: Variable) -> Variable:
        return self._scaled(self._likelihood.times_root(y, w))

    def _scaled(self, y: Variable) -> Variable:
        return y if self._scale == 1 else y * self._scale

    def _over_rows(self, y: Variable, square: bool = False) -> list[Variable]:
        """The rows that belong to one output, in parts for each parameter, (y.size, *p.shape); or the sums of their
        squares."""

        def along(w: Variable) -> list[Variable]:
            gradients = gradients_at([y], self.parameters, [self._times_root(y, w)])
            return [g * g for g in gradients] if square else gradients

        return several_over_directions(along, y, 0, self._chunk, collapse=square)

    def _rows(self) -> Variable:
        parts = [
            _joined([F.reshape(part, shape=(y.size, part.size // max(y.size, 1))) for part in self._over_rows(y)], 1)
            for y in self.outputs
        ]
        return _joined(parts, 0)

    def _dense(self) -> Variable:
        rows = self._rows()
        matrix: Variable = F.batch_matmul(rows, rows, transpose_a=True)
        return matrix

    def _by_kernel(self, extra: Variable, right: Callable[[Variable], Variable]) -> Variable:
        """`R^T (R R^T + extra I)^-1` times a right-hand side, which `right` computes from R."""
        rows = self._rows()
        inner = _solved(F.batch_matmul(rows, rows, transpose_b=True), extra, right(rows))
        return F.matmul(F.transpose(rows, axes=(1, 0)), inner)

    def _built(self, build: Callable[[], list[Variable]], others: Iterable[Variable] = ()) -> list[Variable]:
        return built([*self.outputs, *self.parameters, *others], build)

    def _packing(self) -> Packing:
        return Packing(self.parameters, "parameters", type(self).__name__)

    def _vectors(self, vectors: Any, name: str) -> tuple[list[Variable], Callable[[list[Variable]], Any]]:
        """The vector in parts, and a function that arranges such parts in the form of the given vector."""
        if isinstance(vectors, Mapping):
            return vectors_for(self.parameters, vectors, name), lambda parts: dict(zip(vectors, parts, strict=True))
        if not hasattr(vectors, "shape") and not np.isscalar(vectors):
            return vectors_for(self.parameters, vectors, name), lambda parts: parts
        packing = self._packing()
        flat = as_variable(vectors, name, type(self).__name__, packing.dtype)
        if flat.shape != packing.spec.shape:
            raise ValueError(f"{name}: expected a vector of shape {packing.spec.shape}, or a list with one array for "
                             f"each of {len(self.parameters)} parameters, got shape {flat.shape}")
        return list(packing.unpacked(flat)), lambda parts: packing.packed(parts, "the result has")

    def _method(self, method: str | None, owner: str) -> str:
        if method is None:
            smaller = min(self.rank, self.shape[0])
            return "cg" if smaller > _LARGEST else "residual" if self.rank < self.shape[0] else "dense"
        return checked_choice(method, METHODS, f"{owner}: method")

    def _damping(self, damping: Any, owner: str) -> Variable:
        if not isinstance(damping, Variable) and not (np.isscalar(damping) and damping >= 0):  # type: ignore[operator]
            raise ValueError(f"{owner}: damping must be a non-negative number or a Variable, got {damping!r}")
        extra = as_variable(damping, "damping", owner, self.parameters[0].dtype)
        if extra.shape != ():
            raise ValueError(f"{owner}: damping must have shape (), got {extra.shape}")
        return extra


def gauss_newton(
    residuals: Variable | Iterable[Variable], parameters: Any, chunk: int | None = None
) -> CurvatureMatrix:
    """The Gauss-Newton matrix `J^T J` of residuals: the Hessian of half the sum of their squares, without the terms
    with second derivatives of residuals.

        matrix = nn.gauss_newton(residuals, nn.get_parameters())
        products = matrix @ vectors

    Residuals may contain derivatives. For the losses of all samples it is the empirical Fisher information.

    Args:
        residuals: A Variable or a list of Variables, of any shapes.
        parameters: Variables in a list, by name or in a pytree, or a Module.
        chunk: The number of rows of J to compute at once where all are needed; None for all.

    Raises:
        TypeError: Something is not a Variable of a floating dtype.
        ValueError: There are no residuals or no parameters, or `chunk` is not positive.
    """
    listed = differentiable(residuals, "gauss_newton: residuals")
    if not listed:
        raise ValueError("gauss_newton: residuals: expected at least one Variable, got none")
    return _matrix(listed, parameters, LIKELIHOODS["gaussian"], 1.0, chunk)


def fisher(
    outputs: Variable, parameters: Any, likelihood: str = "categorical", reduction: str = "mean",
    chunk: int | None = None,
) -> CurvatureMatrix:  # fmt: skip
    """The Fisher information `J^T F J` of a network whose outputs are the natural parameters of a likelihood with
    Fisher information F, in closed form. It is the generalised Gauss-Newton matrix of the negative log likelihood.

        fisher = nn.fisher(logits, nn.get_parameters())      # of F.mean(F.softmax_cross_entropy(logits, t))

    Args:
        outputs: (batch, ...).
        parameters: Variables in a list, by name or in a pytree, or a Module.
        likelihood: "categorical": logits along the last axis, for `F.softmax_cross_entropy`; "bernoulli": logits, for
            `F.sigmoid_cross_entropy`; "gaussian": means of normal distributions of variance 1, for half the squared
            error.
        reduction: Whether the loss is a "mean" or a "sum" over samples: the rows of the first axis, or for
            "categorical" all positions of all axes but the last.
        chunk: As in `gauss_newton`.

    Raises:
        TypeError: Something is not a Variable of a floating dtype.
        ValueError: No parameters, outputs without a batch axis, or an unknown `likelihood` or `reduction`.
    """
    checked_choice(reduction, ("mean", "sum"), "fisher: reduction")
    known = LIKELIHOODS[checked_choice(likelihood, LIKELIHOODS, "fisher: likelihood")]
    y = one_floating(outputs, "fisher: outputs")
    if y.ndim < 1 + known.has_classes:
        raise ValueError(f"fisher: outputs of shape {y.shape} have too few axes; the first must be the batch axis")
    samples = math.prod(y.shape[:-1]) if known.has_classes else y.shape[0]
    return _matrix([y], parameters, known, 1 / math.sqrt(max(samples, 1)) if reduction == "mean" else 1.0, chunk)


def _matrix(
    outputs: list[Variable], parameters: Any, likelihood: Likelihood, scale: float, chunk: int | None
) -> CurvatureMatrix:
    by = differentiable(parameters, "parameters")
    if not by:
        raise ValueError("parameters: expected at least one Variable, got none")
    if chunk is not None:
        checked_count(chunk, "chunk", others=" or None")
    return CurvatureMatrix(outputs, by, likelihood, scale, chunk)


@at_full_precision
def natural_gradient(
    metric: CurvatureMatrix, loss: Variable | None = None, damping: float | Variable = 0.0, method: str | None = None,
    *, tol: float | None = None, maxiter: int | None = None,
) -> list[Variable]:  # fmt: skip
    """The direction `(A + damping I)^-1 g` of the gradient g of a loss, in the metric A; parameters move against it.

        direction = nn.natural_gradient(nn.gauss_newton(residuals, parameters), damping=1e-8)
        direction = nn.natural_gradient(nn.fisher(logits, parameters), loss, damping=1e-3)

    Without a loss it is the Gauss-Newton step (with damping, Levenberg-Marquardt) for half the sum of squares of the
    residuals r. In the space of residuals this is `J^T (J J^T + damping I)^-1 r`: with fewer residuals than parameters
    it costs less, and it stays accurate however small `damping` is.

    Args:
        metric: The result of `nn.gauss_newton` or `nn.fisher`.
        loss: Of shape (); None for half the sum of squares of the residuals of `nn.gauss_newton`.
        damping: As in `solve`.
        method: As in `solve`.
        tol: As in `solve`.
        maxiter: As in `solve`.

    Returns:
        One Variable for each parameter, of its shape.

    Raises:
        TypeError: Something has the wrong type.
        ValueError: The loss is not a scalar, or missing with `nn.fisher`; or `method` or `damping` is out of range.
    """
    if not isinstance(metric, CurvatureMatrix):
        raise TypeError(f"natural_gradient: metric: expected a result of nn.gauss_newton or nn.fisher, got {metric!r}")
    if loss is not None:
        y = one_floating(loss, "natural_gradient: loss")
        if y.shape != ():
            raise ValueError(f"natural_gradient: loss: must have shape (), got {y.shape}")
        gradients = built([y, *metric.parameters], lambda: gradients_at([y], metric.parameters, [None]))
        solved: list[Variable] = metric.solve(gradients, damping, method, tol=tol, maxiter=maxiter)
        return solved
    if metric._likelihood is not LIKELIHOODS["gaussian"] or metric._scale != 1:
        raise ValueError("natural_gradient: loss: may be omitted only for a metric of nn.gauss_newton; pass the loss")
    by, extra = metric._method(method, "natural_gradient"), metric._damping(damping, "natural_gradient")
    if by != "residual":
        gradients = metric._built(lambda: metric._back(metric.outputs))
        return list(metric.solve(gradients, damping, by, tol=tol, maxiter=maxiter))
    def residuals(_: Variable) -> Variable:
        return _joined([F.reshape(y, shape=(y.size,)) for y in metric.outputs], 0)

    return metric._built(lambda: list(metric._packing().unpacked(metric._by_kernel(extra, residuals))))


def _solved(matrix: Variable, damping: Variable, b: Variable) -> Variable:
    """The solution of `(matrix + damping I) x = b`."""
    # By LU: with a tiny damping, rounding leaves a kernel that is not positive definite, and Cholesky would fail.
    more = F.matrix_diag(F.broadcast(F.reshape(damping, shape=(1,)), shape=b.shape))
    solution: Variable = F.batch_solve(matrix + more, b)
    return solution


def _joined(parts: list[Variable], axis: int) -> Variable:
    whole: Variable = parts[0] if len(parts) == 1 else F.concatenate(*parts, axis=axis)
    return whole
