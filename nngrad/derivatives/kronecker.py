"""Kronecker-factored approximations (KFAC) of curvature matrices, for affine functions and convolutions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import nngrad.functions as F

from ..autodiff.grad import own_leaves
from ..graph import Function, Variable, path_between
from ..rewrite.sums import summands
from .directions import independent_rows, several_over_directions
from .parts import built, gradients_at, vectors_for


class Layer(NamedTuple):
    """The block of the weight and bias of an affine function or convolution: the Kronecker product of two matrices."""

    weight: int
    """The index of the weight among the parameters."""
    bias: int | None
    inputs: Variable
    """Second moments of the rows that the weight multiplies, extended by a 1 if there is a bias: summed over the
    positions of a convolution, averaged over the batch."""
    outputs: Variable
    """Second moments of the gradients at the layer's result: summed over the batch, averaged over positions."""
    outputs_first: bool
    """Whether the first axis of the weight is its output axis, as in a convolution."""

    def matrix_of(self, vectors: Sequence[Variable]) -> Variable:
        """The layer's parts of a vector as one matrix, (inputs, outputs), whose last row is the bias."""
        rows = self.inputs.shape[0] - (self.bias is not None)
        w, out = vectors[self.weight], self.outputs.shape[0]
        w = F.reshape(w, shape=(out, rows) if self.outputs_first else (rows, out))
        transposed: Variable = F.transpose(w, axes=(1, 0)) if self.outputs_first else w
        if self.bias is None:
            return transposed
        whole: Variable = F.concatenate(transposed, F.reshape(vectors[self.bias], shape=(1, out)), axis=0)
        return whole

    def parts_of(self, matrix: Variable, vectors: Sequence[Variable]) -> dict[int, Variable]:
        """The inverse of `matrix_of`: the parts of the matrix, by index, in the shapes of `vectors`."""
        rows = self.inputs.shape[0] - (self.bias is not None)
        w = matrix if self.bias is None else matrix[:rows]
        w = F.transpose(w, axes=(1, 0)) if self.outputs_first else w
        parts = {self.weight: F.reshape(w, shape=vectors[self.weight].shape)}
        if self.bias is not None:
            parts[self.bias] = F.reshape(matrix[rows:], shape=vectors[self.bias].shape)
        return parts


class KroneckerFactors:
    """A block-diagonal curvature matrix, where each layer's block is the Kronecker product of two small matrices.

    Vectors are lists with one Variable, array or number for each parameter.
    """

    def __init__(self, parameters: list[Variable], layers: list[Layer]) -> None:
        self.parameters = parameters
        """The parameters of the matrix."""
        self.layers = layers
        """The blocks."""

    @property
    def matrices(self) -> list[Variable]:
        """The two matrices of each layer."""
        return [m for layer in self.layers for m in (layer.inputs, layer.outputs)]

    def with_matrices(self, matrices: list[Variable]) -> KroneckerFactors:
        """The same layers with other matrices."""
        pairs = zip(self.layers, matrices[::2], matrices[1::2], strict=True)
        return KroneckerFactors(self.parameters, [layer._replace(inputs=a, outputs=g) for layer, a, g in pairs])

    def __matmul__(self, vectors: Any) -> list[Variable]:
        """The product with a vector."""
        return self._by_layer(vectors, "@: vectors", lambda a, g, v: F.matmul(F.matmul(a, v), g))

    def solve(self, b: Any, damping: float | Variable = 0.0) -> list[Variable]:
        """Solve `(A + damping I) x = b` exactly, by eigendecompositions of the small matrices.

        Args:
            b: The right-hand side, a vector.
            damping: The number added to the diagonal.
        """

        def solved(a: Variable, g: Variable, v: Variable) -> Variable:
            (s, q), (t, p) = F.batch_eigh(a), F.batch_eigh(g)
            inner = F.matmul(F.matmul(F.transpose(q, axes=(1, 0)), v), p)
            inner = inner / (F.reshape(s, shape=(-1, 1)) * F.reshape(t, shape=(1, -1)) + damping)
            result: Variable = F.matmul(F.matmul(q, inner), F.transpose(p, axes=(1, 0)))
            return result

        return self._by_layer(b, "solve: b", solved)

    def _by_layer(
        self, given: Any, name: str, change: Callable[[Variable, Variable, Variable], Variable]
    ) -> list[Variable]:
        vectors = vectors_for(self.parameters, given, name)

        def build() -> list[Variable]:
            parts: dict[int, Variable] = {}
            for layer in self.layers:
                changed = change(layer.inputs, layer.outputs, layer.matrix_of(vectors))
                parts |= layer.parts_of(changed, vectors)
            return [parts[i] for i in range(len(vectors))]

        return built([*self.matrices, *vectors], build)


class _Application(NamedTuple):
    """One use of a weight, written as a matrix product."""

    function: Function
    weight: int
    rows: Variable
    """The other factor of the product, as a matrix with one row for each position."""
    channels: int
    """The axis of the product that comes from the weight."""
    outputs_first: bool
    """Whether that axis is the weight's first."""
    bias: int | None = None


def kronecker_factors(
    y: Variable, parameters: list[Variable], root: Callable[[Variable], Variable], chunk: int | None
) -> KroneckerFactors:
    """See `CurvatureMatrix.kronecker`. `root` maps vectors of residuals to gradients at the outputs."""
    applications = _applications(y, parameters)
    ends = [each.function.outputs[0] for each in applications]
    for each, end in zip(applications, ends, strict=True):
        if not independent_rows(y, end):
            raise ValueError(f"kronecker: row b of the outputs, of shape {y.shape}, must depend only on row b of "
                             f"the result of parameters[{each.weight}], of shape {end.shape}, which cannot be shown")
    gradients = several_over_directions(lambda w: gradients_at([y], list(ends), [root(w)]), y, 1, chunk)
    layers = []
    for each, slopes in zip(applications, gradients, strict=True):
        a, g = each.rows, _rows_of(slopes, each.channels + 1)
        if each.bias is not None:
            a = F.concatenate(a, F.constant(val=1, shape=(a.shape[0], 1), dtype=a.dtype), axis=1)
        batch, places = y.shape[0], a.shape[0] / y.shape[0]
        moments = F.matmul(a.T, a) / batch, F.matmul(g.T, g) / places
        layers.append(Layer(each.weight, each.bias, *moments, each.outputs_first))
    return KroneckerFactors(parameters, layers)


def _rows_of(x: Variable, axis: int) -> Variable:
    """`x` as a matrix whose columns run along `axis`."""
    last = x if axis == x.ndim - 1 else F.transpose(x, axes=(*[i for i in range(x.ndim) if i != axis], axis))
    rows: Variable = F.reshape(last, shape=(-1, x.shape[axis]))
    return rows


def _applications(y: Variable, parameters: list[Variable]) -> list[_Application]:
    """The affine functions and convolutions of the parameters, each of which must belong to exactly one."""
    owned = own_leaves([y], parameters)
    path, _, _ = path_between([y], [x for own in owned for x in own])
    readers: dict[int, list[Function]] = {}
    for f in path:
        for number in {id(x) for x in f.inputs}:
            readers.setdefault(number, []).append(f)
    weights: dict[int, _Application] = {}
    biases: list[tuple[int, Variable]] = []
    for i, own in enumerate(owned):
        reader, x = _only_reader(own, readers)
        other = None if reader is None else _added_to(reader, x)
        application = None if reader is None else _application(reader, x, i)
        if other is not None:
            biases.append((i, other))
        elif application is not None:
            weights[id(reader)] = application
        else:
            raise _unfit(i, parameters[i])
    for i, other in biases:
        while other.parent is not None and _reshapes(other.parent):
            other = other.parent.inputs[0]
        found = weights.get(id(other.parent))
        if found is None or found.bias is not None or len(readers.get(id(other), ())) != 1:
            raise _unfit(i, parameters[i])
        weights[id(other.parent)] = found._replace(bias=i)
    return list(weights.values())


def _only_reader(own: list[Variable], readers: dict[int, list[Function]]) -> tuple[Function | None, Variable]:
    """The only function that reads a parameter, perhaps after reshaping, and the Variable it reads; or None."""
    x = own[0]
    while len(own) == 1 and len(readers.get(id(x), ())) == 1:
        (f,) = readers[id(x)]
        if not _reshapes(f):
            return f, x
        x = f.outputs[0]
    return None, x


def _reshapes(f: Function) -> bool:
    # A view that forwards its input is `unlink`, where derivatives stop.
    return f.op.view and not f.op.forwards_inputs


def _added_to(f: Function, x: Variable) -> Variable | None:
    """The other operand, if all that `f` does is to add `x` to it; else None."""
    operands = summands(f.op, f.inputs, f.arguments)
    if operands is None or operands[1] or len(f.inputs) != 2 or any([c != 1 for _, c in operands[0]]):
        return None
    others = [y for y in f.inputs if y is not x]
    return others[0] if len(others) == 1 else None


def _application(f: Function, x: Variable, weight: int) -> _Application | None:
    """The product of the first input of `f` with `x`; None if it is not a matrix product."""
    if len(f.inputs) != 2 or f.inputs[1] is not x or f.inputs[0] is x:
        return None
    if f.op.windows is not None:
        windows = f.op.windows(f)
        return None if windows is None else _Application(f, weight, _rows_of(windows, 1), 1, True)
    if f.op.linear != "each" or f.op.axes is None or f.op.axes.indices is None or x.ndim != 2:
        return None
    (of_rows, of_weight), output = f.op.axes.indices(f)
    summed = [i for i in of_weight if i not in output]
    if len(summed) != 1 or set(of_rows) - set(output) != set(summed) or not set(of_weight) - set(of_rows):
        return None
    (kept,) = set(of_weight) - set(summed)
    rows = _rows_of(f.inputs[0], of_rows.index(summed[0]))
    return _Application(f, weight, rows, output.index(kept), of_weight[0] == kept)


def _unfit(i: int, p: Variable) -> ValueError:
    return ValueError(f"kronecker: parameters[{i}] ({p.name or p.spec}) is not the weight or bias of one affine "
                      "function or convolution (without group, channels first) that is used once; leave it out, or use "
                      "products with the matrix itself")
