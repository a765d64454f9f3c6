"""Sparsity patterns: which elements of a result depend on which elements of an input, according to the graph."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from backward_registry import registry

from ..autodiff.grad import own_leaves
from ..graph import Function, Switched, Variable, apply, contained, leaves_of, path_between
from ..graph.axes import Key, Places, axes_carried
from ..graph.body_op import in_place_of
from .parts import built, gradients_at, one_floating

Labels = np.ndarray[Any, np.dtype[np.int64]]
"""For each element of an array, the label of a set; 0 is the empty set."""


class ElementSets:
    """Sets of the numbers from 0 to `count - 1`, each identified by a label.

    Elements with equal dependences share a label. So a union of two arrays takes time proportional to the number of
    distinct pairs of labels, not of elements.
    """

    def __init__(self, count: int) -> None:
        self.members: list[frozenset[int]] = [frozenset(), *[frozenset((k,)) for k in range(count)]]
        self._labels = {members: label for label, members in enumerate(self.members)}
        self._unions: dict[tuple[int, int], int] = {}

    def singletons(self, shape: tuple[int, ...]) -> Labels:
        """An array of labels of {0}, {1}, ..., in the order of its elements."""
        return np.arange(1, 1 + math.prod(shape), dtype=np.int64).reshape(shape)

    def union(self, a: Labels, b: Labels) -> Labels:
        """The elementwise union of two arrays of sets, which are broadcast against each other."""
        a, b = np.broadcast_arrays(a, b)
        low, high = np.minimum(a, b).ravel(), np.maximum(a, b).ravel()
        differ = np.flatnonzero((low != 0) & (low != high))
        count = len(self.members)
        pairs, places = np.unique(low[differ] * count + high[differ], return_inverse=True)
        high[differ] = np.array([self._of_pair(*divmod(pair, count)) for pair in pairs.tolist()], np.int64)[places]
        return high.reshape(a.shape)

    def along(self, labels: Labels, axes: Iterable[int]) -> Labels:
        """The union over some axes, which keep size 1."""
        axes = tuple(axes)
        shape = tuple([1 if a in axes else n for a, n in enumerate(labels.shape)])
        rows = np.moveaxis(labels, axes, range(len(axes)))
        rows = rows.reshape(math.prod(rows.shape[: len(axes)]), math.prod(rows.shape[len(axes) :]))
        return self._halved(rows).reshape(shape)

    def grouped(self, labels: Labels, groups: Labels, count: int) -> Labels:
        """The union of the labels in each of `count` groups."""
        order = np.argsort(groups, kind="stable")
        labels, groups = labels[order], groups[order]
        turn = np.arange(len(groups)) - np.searchsorted(groups, groups)
        unions = np.zeros(count, np.int64)
        for k in range(int(turn.max(initial=-1)) + 1):
            now = turn == k
            unions[groups[now]] = self.union(unions[groups[now]], labels[now])
        return unions

    def _halved(self, rows: Labels) -> Labels:
        """The union of all rows, by repeated halving."""
        if not len(rows):
            return np.zeros(rows.shape[1:], np.int64)
        while len(rows) > 1:
            half = len(rows) // 2
            rows = np.concatenate([self.union(rows[:half], rows[half : 2 * half]), rows[2 * half :]])
        united: Labels = rows[0]
        return united

    def _of_pair(self, a: int, b: int) -> int:
        label = self._unions.get((a, b))
        if label is None:
            members = self.members[a] | self.members[b]
            label = self._unions[a, b] = self._labels.setdefault(members, len(self.members))
            if label == len(self.members):
                self.members.append(members)
        return label


Indices = np.ndarray[Any, np.dtype[np.int64]]

MOST_ELEMENTS = 2**24
"""float32 counts exactly up to this; for an op that moves more elements, only its axes tell the dependences."""


class Sparsity(NamedTuple):
    """The sparsity pattern of a matrix, row by row."""

    rows: Indices
    columns: Indices
    shape: tuple[int, int]

    @property
    def nnz(self) -> int:
        """The number of elements that may be nonzero."""
        return len(self.rows)

    def to_scipy(self) -> Any:
        """The pattern as a boolean `scipy.sparse.csr_array`."""
        return scipy_csr(np.ones(self.nnz, bool), self)

    def __repr__(self) -> str:
        m, n = self.shape
        share = self.nnz / (m * n) if m * n else 0
        return f"Sparsity of {m} x {n}: {self.nnz} elements, {share:.2%}"


def scipy_csr(values: Any, pattern: Sparsity) -> Any:
    """A `scipy.sparse.csr_array` with `values` at the elements of `pattern`."""
    from scipy.sparse import csr_array  # type: ignore[import-untyped, unused-ignore]

    starts = np.searchsorted(pattern.rows, np.arange(pattern.shape[0] + 1))
    return csr_array((values, pattern.columns, starts), shape=pattern.shape)


def sparsity(y: Variable, x: Variable) -> Sparsity:
    """The sparsity pattern of the Jacobian of `y` with respect to `x`, found without computing the Jacobian.

    The pattern follows from the graph, and holds for all values of floating leaves. Elementwise functions, slices,
    transpositions, gathers and scatters are followed element by element, sums and matrix products along their axes.
    Each element of the result of an unknown function counts as depending on all of its inputs. So the pattern may
    include zeros, but never misses a nonzero. Indices (of `F.gather` and the like) are read at their current values.

    Args:
        y: Of a floating dtype and any shape.
        x: Likewise; a leaf, or a Variable in the middle of the graph.

    Returns:
        `(y.size, x.size)`: rows and columns are the elements of y and x in their order, as `ravel()` has them.

    Raises:
        TypeError: Something is not a Variable, or not of a floating dtype.
        ValueError: A list of more than one Variable is given.
    """
    y, x = one_floating(y, "sparsity: y"), one_floating(x, "sparsity: x")
    return _sparsity([y], [x])


def _sparsity(ys: Sequence[Variable], xs: Sequence[Variable]) -> Sparsity:
    """The pattern of the concatenated elements of `ys` with respect to the concatenated elements of `xs`."""
    ends = np.cumsum([x.size for x in xs])
    sets = ElementSets(int(ends[-1]))
    starts = [
        (leaf, sets.singletons((x.size,)).reshape(x.shape) + end - x.size)
        for x, end, owners in zip(xs, ends, own_leaves([*ys], [*xs]), strict=True)
        for leaf in owners
    ]
    labels, places = np.unique(
        np.concatenate([array.ravel() for array in _followed(ys, starts, sets)]), return_inverse=True
    )
    members = [np.array(sorted(sets.members[label]), np.int64) for label in labels]
    rows = np.repeat(np.arange(len(places)), np.array([len(elements) for elements in members], np.int64)[places])
    columns = np.concatenate([np.zeros(0, np.int64), *[members[k] for k in places]])
    return Sparsity(rows, columns, (len(places), int(ends[-1])))


def hessian_sparsity(y: Variable, xs: Sequence[Variable]) -> Sparsity:
    """The pattern of the Hessian of the sum of `y` with respect to the elements of all `xs`, none of which depends on
    another."""
    gradients = built([y, *xs], lambda: gradients_at([y], [*xs], [None]))
    pattern = _sparsity(gradients, xs)
    n = pattern.shape[0]
    here, mirrored = pattern.rows * n + pattern.columns, pattern.columns * n + pattern.rows
    both = np.intersect1d(here, mirrored, assume_unique=True)  # the Hessian is symmetric
    return Sparsity(both // n, both % n, (n, n))


class Read(NamedTuple):
    """Variables that hold elements of another one, or constants."""

    variables: list[Variable]
    elements: Labels
    """The number, from 1, of the element that each of their elements holds, Variable by Variable; 0 for a constant."""


@contained
def elements_read(y: Variable, x: Variable) -> Read:
    """The Variables that `y` is computed from, whose elements are elements of `x` that were taken, moved or repeated,
    but not changed. None of them depends on another."""
    Switched(auto_forward=False, deterministic=True).from_now_on()
    leaves = own_leaves([y], [x])[0]
    sets = ElementSets(x.size)
    path = path_between([y], leaves)[0]
    labels_of = {id(v): sets.singletons(x.shape) for v in leaves}
    variables = {id(v): v for v in leaves}
    read: set[int] = {id(y)} & labels_of.keys()
    changed: set[int] = set()
    for f in path:
        labels = None if any([id(v) in changed for v in f.inputs]) else _taken(f, labels_of, sets, leaves)
        if labels is None:
            read |= labels_of.keys() & {id(v) for v in f.inputs}
            changed |= {id(v) for v in f.outputs}
        else:
            labels_of[id(f.outputs[0])], variables[id(f.outputs[0])] = labels, f.outputs[0]
    below: set[int] = set()
    for f in path:
        if any([id(v) in read or id(v) in below for v in f.inputs]):
            below |= {id(v) for v in f.outputs}
    first = [v for v in labels_of if v in read - below]
    elements = [np.zeros(0, np.int64), *[labels_of[v].ravel() for v in first]]
    return Read([variables[v] for v in first], np.concatenate(elements))


def _taken(f: Function, labels_of: Mapping[int, Labels], sets: ElementSets, xs: Sequence[Variable]) -> Labels | None:
    """The labels of the output of `f`, if all that it does is to take elements of labelled Variables; else None."""
    live = [i for i, x in enumerate(f.inputs) if id(x) in labels_of]
    moves = f.op.fuses == "moving" or all([f.op.linear_in(i) for i in live])
    if len(f.specs) > 1 or not moves or f.specs[0].dtype != xs[0].dtype or _is_users_surrogate(f):
        return None
    if (f.op.view and f.op.reads is None) or f.op.slice_keys is not None or f.op.update_keys is not None:
        return _of_outputs(f, labels_of, sets, xs)[0]
    moved = _moved(f, live[0], xs) if len(live) == 1 else None
    if moved is None or len(np.unique(moved[0])) < len(moved[0]):
        return None
    labels = np.zeros(f.specs[0].size, np.int64)
    labels[moved[0]] = labels_of[id(f.inputs[live[0]])].ravel()[moved[1]]
    return labels.reshape(f.specs[0].shape)


@contained
def _followed(
    ys: Sequence[Variable], starts: Sequence[tuple[Variable, Labels]], sets: ElementSets
) -> list[Labels]:
    """The dependences of the elements of each of `ys`; `starts` has those of the Variables to start from."""
    Switched(auto_forward=False, deterministic=True).from_now_on()  # trial runs of functions are not the user's calls
    xs = [x for x, _ in starts]
    labels_of = {id(x): labels for x, labels in starts}
    held: list[Any] = []  # keeps Variables alive, whose ids are keys
    waiting: list[Function | _Same] = [*path_between(ys, xs)[0][::-1]]
    while waiting:
        f = waiting.pop()
        if isinstance(f, _Same):
            same = [(id(a), id(b)) for a, b in zip(f.results, f.outputs, strict=True)]
            labels_of.update({b: labels_of[a] for a, b in same if a in labels_of})
            continue
        live = [x for x in f.inputs if id(x) in labels_of]
        body = None if _is_users_surrogate(f) else in_place_of(f.op, f.arguments)
        if body is not None:
            results = body.placed(f.inputs)
            held.append(results)
            waiting += [_Same(results, f.outputs), *path_between(results, live)[0][::-1]]
        elif live:
            labels = zip(f.outputs, _of_outputs(f, labels_of, sets, xs), strict=True)
            labels_of.update({id(y): label for y, label in labels if y.spec.differentiable})
    return [labels_of.get(id(y), np.zeros(y.shape, np.int64)) for y in ys]


class _Same(NamedTuple):
    """States that `outputs` equal `results`: those of the body that a function merely runs."""

    results: Sequence[Variable]
    outputs: Sequence[Variable]


def _of_outputs(
    f: Function, labels_of: Mapping[int, Labels], sets: ElementSets, xs: Sequence[Variable]
) -> list[Labels]:
    """The dependences of the elements of each output of `f`."""
    inputs = {i: labels_of[id(x)] for i, x in enumerate(f.inputs) if id(x) in labels_of}
    shapes = [spec.shape for spec in f.specs]
    input_shapes = tuple([x.shape for x in f.inputs])
    if (f.op.axes is None and not f.op.diagonal) or _is_users_surrogate(f):
        every = _united(sets, [sets.along(labels, range(labels.ndim)).ravel() for labels in inputs.values()])
        return [np.broadcast_to(every.reshape((1,) * len(shape)), shape) for shape in shapes]
    if f.op.view and f.op.reads is None:
        nothing = np.zeros((), np.int64)
        return [np.resize(inputs.get(i, nothing), shape) for i, shape in enumerate(shapes)]
    if f.op.slice_keys is not None:
        (labels,) = inputs.values()
        return [_part(labels, key) for key in f.op.slice_keys(input_shapes, f.args)]
    if f.op.update_keys is not None:
        result = np.zeros(shapes[0], np.int64)
        places = np.arange(result.size).reshape(shapes[0])
        for i, key in enumerate(f.op.update_keys(input_shapes, f.args)):
            if i in inputs:
                result.flat[_part(places, key).ravel()] = inputs[i].ravel()
        return [result]
    first = _united(sets, [_carried(f, i, labels, sets, xs) for i, labels in inputs.items()])
    return [np.broadcast_to(_of_rank(first, len(shape), sets), shape) for shape in shapes]


def _of_rank(labels: Labels, ndim: int, sets: ElementSets) -> Labels:
    """The dependences along the first `ndim` axes, for an output of that rank."""
    labels = sets.along(labels, range(ndim, labels.ndim))
    return labels.reshape(labels.shape + (1,) * (ndim - labels.ndim) if ndim > labels.ndim else labels.shape[:ndim])


def _united(sets: ElementSets, labels: Sequence[Labels]) -> Labels:
    return functools.reduce(sets.union, labels)


def _is_users_surrogate(f: Function) -> bool:
    """True if the user gave `f` a gradient that is not that of its forward pass, and may have other dependences."""
    rule = registry.find(f.op)
    return rule is not None and rule.kind == "user" and not rule.exact


def _part(labels: Labels, key: Key) -> Labels:
    """The part of an array that `key` selects (`nngrad.graph.axes`)."""
    axis = 0
    for entry in key:
        if entry is None:
            labels = np.expand_dims(labels, axis)
        elif isinstance(entry, tuple):
            start, count, step = entry
            labels = labels.take(start + step * np.arange(count), axis)
        else:
            labels = labels.take([entry], axis).squeeze(axis)
            continue
        axis += 1
    return labels


def _carried(f: Function, i: int, labels: Labels, sets: ElementSets, xs: Sequence[Variable]) -> Labels:
    """The dependences of the output of `f` through input `i`, in a shape that broadcasts to that of the output."""
    places, ndim = _places(f)[i], f.specs[0].ndim
    mixed = [a for a, b in enumerate(places) if b is None or b in places[:a]]
    if any([labels.shape[a] > 1 for a in mixed]):
        moved = _moved(f, i, xs)
        if moved is not None:
            outs, ins = moved
            return sets.grouped(labels.ravel()[ins], outs, f.specs[0].size).reshape(f.specs[0].shape)
    labels = sets.along(labels, mixed)
    carried = sorted([(b, a) for a, b in enumerate(places) if b is not None and a not in mixed])
    shape = [1] * ndim
    for b, a in carried:
        shape[b] = labels.shape[a]
    return labels.transpose(*[a for _, a in carried], *mixed).reshape(shape)


def _places(f: Function) -> list[Places]:
    """For each axis of each input, the axis of the output that it is carried to, or None. Nothing is known of inputs
    that pass gradients on without being read, unless `f` is elementwise."""
    read = axes_carried(f)
    ndim = f.specs[0].ndim
    rest = f.inputs[len(read) :]
    return [*read, *[tuple(range(ndim - x.ndim, ndim)) if f.op.diagonal else (None,) * x.ndim for x in rest]]


# ---------------------------------------------------------------- elements that are moved


def _moved(f: Function, i: int, xs: Sequence[Variable]) -> tuple[Indices, Indices] | None:
    """Pairs of an element of the output of `f` and an element of input `i` that it contains, if `f` only moves and adds
    elements; None if it does more, or if this is unknown."""
    others = [x for k, x in enumerate(f.inputs) if k != i]
    sizes = (f.inputs[i].size, f.specs[0].size)
    if len(f.specs) > 1 or not min(sizes) or max(sizes) > MOST_ELEMENTS:
        return None
    if not f.op.linear_in(i) and f.op.fuses != "moving":
        return None
    if any([x.key_source is not None for x in leaves_of(others)]) or path_between(others, xs, of_values=True)[0]:
        return None  # indices that are drawn, or computed from x, change with each run
    x = Variable(f.inputs[i].shape)
    inputs = [x if k == i else _in_float32(operand) for k, operand in enumerate(f.inputs)]
    y = cast(Variable, apply(f.op, tuple(inputs), f.arguments))
    factors = [operand for k, operand in enumerate(inputs) if k != i and operand.spec.differentiable]
    if factors and leaves_of(gradients_at([y], factors, [None])):
        return None  # these are not indices, but numbers that change the pattern
    forward = _sources(y, x)
    if forward is not None:
        return forward
    seed = Variable(y.shape)
    (gradient,) = gradients_at([y], [x], [seed])
    back = _sources(gradient, seed)
    return None if back is None else back[::-1]


def _in_float32(x: Variable) -> Variable:
    """A leaf with the current values of `x`, as float32 if they are floating."""
    return Variable.from_numpy_array(x.d.astype(np.float32) if x.spec.differentiable else x.d)


def _sources(y: Variable, x: Variable) -> tuple[Indices, Indices] | None:
    """Pairs of an element of `y` and its source in `x`, if each element of `y` is an element of `x` or a constant; else
    None. Random numbers tell, since `y` is linear or moves elements."""

    def at(numbers: Any) -> Any:
        x.d = numbers.reshape(x.shape)
        y.forward()
        return np.nan_to_num(y.d.ravel(), posinf=0, neginf=0)  # an index out of range gives NaN

    rng = np.random.default_rng(0)
    numbers = [np.arange(1, 1 + x.size, dtype=np.float32), *rng.standard_normal((2, x.size), np.float32)]
    results = [at(array) for array in numbers]
    places = np.clip(results[0], 1, x.size).astype(np.int64) - 1
    moved = np.logical_and.reduce([result == array[places] for result, array in zip(results, numbers, strict=True)])
    constant = (results[0] == results[1]) & (results[0] == results[2])
    return (np.flatnonzero(moved), places[moved]) if (moved | constant).all() else None
