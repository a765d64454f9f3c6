"""What each op becomes when some of its inputs get one more, leading, axis.

A form takes the function and its operands and applies what computes the same for all elements of the leading axis at
once. The value of an operand may be *thin*: an axis of size 1 stands for one along which the value repeats itself, as
the directions `(K, 1, d)` do that are the same for all rows of a batch. Thin values stay thin as far as that is right,
so a product with a matrix, say, is taken of one row in place of a whole batch.

The forms serve operands without a leading axis as well: then they apply the op as it is, to values that may be thin.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import nngrad.functions as F

from ..graph import Function, Op, Variable, apply
from ..graph.arguments import axes_of
from .mapped import mapped, mapped_several

Shape = tuple[int, ...]


class Operand(NamedTuple):
    """What an input of a function becomes."""

    value: Variable
    x: Variable
    """The input itself."""
    lead: int
    """1 if the value has the leading axis, else 0."""

    @property
    def size(self) -> Shape:
        """The leading axis' size, in a tuple; an empty one if there is no such axis."""
        return self.value.shape[: self.lead]

    def lined_up(self, ndim: int) -> Variable:
        """The value with as many axes as an `x` of `ndim` axes would have, so that the two broadcast together."""
        room = ndim - self.x.ndim
        if not self.lead or not room:
            return self.value
        return _reshaped(self.value, (*self.size, *(1,) * room, *self.value.shape[1:]))

    def widened(self, kept: Sequence[int] = ()) -> Variable:
        """The value repeated along the axes of `x` where it is thin, but for those that are `kept`."""
        own = self.value.shape[self.lead :]
        if own == self.x.shape:
            return self.value
        shape = [n if a in kept else m for a, (n, m) in enumerate(zip(own, self.x.shape, strict=True))]
        return _broadcast(self.value, (*self.size, *shape))

    def full(self, size: Shape) -> Variable:
        """The value repeated along all axes, a leading one of `size` included."""
        value = self.widened()
        return value if self.lead or not size else _broadcast(value, (*size, *value.shape))


Form = Callable[[Function, Sequence[Operand]], Any]
"""Takes a function and its operands, and returns what its output becomes, or a tuple where it has several."""

batched_forms: dict[Op, Form] = {}


def batched_form(op: Op) -> Form:
    """The form of `op`: its own, that of diagonal ops, or else one that maps the op along the axis."""
    form = batched_forms.get(op)
    if form is not None:
        return form
    return diagonal if op.diagonal else general


def batches(*ops: Op) -> Callable[[Form], Form]:
    """Register the decorated function as the form of `ops`."""

    def enter(form: Form) -> Form:
        batched_forms.update(dict.fromkeys(ops, form))
        return form

    return enter


def size_of(operands: Sequence[Operand]) -> Shape:
    """The leading axis' size, in a tuple; an empty one if no operand has that axis."""
    return next((each.size for each in operands if each.lead), ())


def changed(f: Function, **values: Any) -> tuple[Any, ...]:
    """The arguments of `f` with some replaced."""
    return tuple((f.args | values).values())


def _reshaped(x: Variable, shape: Shape) -> Variable:
    y: Variable = x if x.shape == shape else F.reshape(x, shape=shape)
    return y


def _broadcast(x: Variable, shape: Shape) -> Variable:
    y: Variable = x if x.shape == shape else F.broadcast(x, shape=shape)
    return y


# ---------------------------------------------------------------- any op


def general(f: Function, operands: Sequence[Operand]) -> Any:
    """The op mapped along the axis."""
    inputs = tuple([each.widened() for each in operands])
    if not any([each.lead for each in operands]):
        return apply(f.op, inputs, f.arguments)
    batched = tuple([bool(each.lead) for each in operands])
    return apply(mapped_several if f.op.several else mapped, inputs, (f.op, f.arguments, batched))


# ---------------------------------------------------------------- diagonal ops


def diagonal(f: Function, operands: Sequence[Operand]) -> Any:
    """The op itself, on operands that broadcast along the axis."""
    ndim = f.specs[0].ndim
    return apply(f.op, tuple([each.lined_up(ndim) for each in operands]), f.arguments)


@batches(F.mul2, F.mul_n, F.div2, F.monomial)
def _product(f: Function, operands: Sequence[Operand]) -> Any:
    """The product of what has the axis, times the product of what has not."""
    if not is_monomial(f) or len({each.lead for each in operands}) == 1:
        return diagonal(f, operands)
    ndim = f.specs[0].ndim
    with_axis, without = parted(f, operands)
    return scaled(multiplied(with_axis, ndim), without, ndim)


Powers = list[tuple[Operand, int]]


def is_monomial(f: Function) -> bool:
    """Whether `f` is a product of whole powers of floating operands of one dtype."""
    return f.op in (F.mul2, F.mul_n, F.div2, F.monomial) and all(
        [x.spec.differentiable and x.dtype == f.specs[0].dtype for x in f.inputs]
    )


def powers_of(f: Function) -> tuple[int, ...]:
    """The power of each operand of a product."""
    if f.op is F.monomial:
        powers: tuple[int, ...] = f.arguments[0]
        return powers
    return (1, -1) if f.op is F.div2 else (1,) * len(f.inputs)


def parted(f: Function, operands: Sequence[Operand]) -> tuple[Powers, Powers]:
    """The factors of a product that have the leading axis, and those that have not."""
    factors = list(zip(operands, powers_of(f), strict=True))
    return [p for p in factors if p[0].lead], [p for p in factors if not p[0].lead]


def multiplied(factors: Powers, ndim: int) -> Variable:
    """The product of powers of operands, which has `ndim` axes beside the leading one."""
    values, powers = [each.lined_up(ndim) for each, _ in factors], tuple([power for _, power in factors])
    if powers == (1,):
        return values[0]
    y: Variable = F.mul2(*values) if powers == (1, 1) else F.monomial(*values, powers=powers)
    return y


def scaled(x: Variable, factors: Powers, ndim: int) -> Variable:
    """`x` times the product of powers of operands without a leading axis."""
    if not factors:
        return x
    y: Variable
    if len(factors) == 1 and factors[0][1] == -1:
        y = F.div2(x, factors[0][0].value)
    else:
        y = F.mul2(x, multiplied(factors, ndim))
    return y


@batches(F.where)
def _where(f: Function, operands: Sequence[Operand]) -> Any:
    """The op itself. A condition may be aligned with the first axes of the values; then it is given all of theirs."""
    condition, *values = operands
    result = f.specs[0].shape
    size, shape, own = size_of(operands), condition.x.shape, condition.value.shape[condition.lead :]
    ones = (1,) * (len(result) - len(shape))
    axes = (*own, *ones) if shape == result[: len(shape)] else (*ones, *own)
    given = condition.value
    if ones or (not condition.lead and own == (*size, *result)[: len(own)]):
        given = _reshaped(given, (*(condition.size or (1,) * len(size)), *axes))
    return F.where(given, *[each.lined_up(len(result)) for each in values])


# ---------------------------------------------------------------- ops with axes among their arguments


def _over_axes(f: Function, operands: Sequence[Operand]) -> Any:
    """A reduction: its axes, where None stands for all, move by one."""
    (x,) = operands
    axes = tuple([a + x.lead for a in axes_of(f.args["axis"], x.x.ndim)])
    return apply(f.op, (x.widened(),), changed(f, axis=axes))


for _op in (F.sum, F.mean, F.var, F.std, F.amax, F.amin, F.argmax, F.argmin, F.prod, F.norm, F.logsumexp):
    batched_forms[_op] = _over_axes


def _along(default: int) -> Form:
    """Form of an op along one axis, of which `default` stands for None; all operands have that axis."""

    def form(f: Function, operands: Sequence[Operand]) -> Any:
        size = size_of(operands)
        axis = f.args["axis"]
        axis = (default if axis is None else axis) % (operands[0].x.ndim + (f.op is F.stack)) + len(size)
        return apply(f.op, tuple([each.full(size) for each in operands]), changed(f, axis=axis))

    return form


for _op in (F.softmax, F.log_softmax, F.sort_values, F.argsort, F.concatenate):
    batched_forms[_op] = _along(-1)
for _op in (F.cumsum, F.cumprod, F.displace, F.recurrence, F.stack, F.split):
    batched_forms[_op] = _along(0)


@batches(F.flip)
def _flip(f: Function, operands: Sequence[Operand]) -> Any:
    (x,) = operands
    axes = axes_of(-1 if f.args["axes"] is None else f.args["axes"], x.x.ndim)
    return F.flip(x.widened(), axes=tuple([a + x.lead for a in axes]))


# ---------------------------------------------------------------- movement


@batches(F.reshape)
def _reshape(f: Function, operands: Sequence[Operand]) -> Any:
    """Leading axes that stay as they are may be thin."""
    (x,), shape = operands, f.specs[0].shape
    same = 0
    while same < min(len(shape), x.x.ndim) and shape[same] == x.x.shape[same]:
        same += 1
    value = x.widened(kept=range(same))
    return _reshaped(value, (*value.shape[: x.lead + same], *shape[same:]))


@batches(F.transpose)
def _transpose(f: Function, operands: Sequence[Operand]) -> Any:
    (x,), axes = operands, f.args["axes"]
    order = range(x.x.ndim)[::-1] if axes is None else [a % x.x.ndim for a in axes]
    return F.transpose(x.value, axes=(*range(x.lead), *[a + x.lead for a in order]))


@batches(F.broadcast)
def _repeated(f: Function, operands: Sequence[Operand]) -> Any:
    """A thin value stands for what is repeated."""
    (x,), ndim = operands, f.specs[0].ndim
    return _reshaped(x.value, (*x.size, *(1,) * (ndim - x.x.ndim), *x.value.shape[x.lead :]))


@batches(F.take_slices)
def _take_slices(f: Function, operands: Sequence[Operand]) -> Any:
    """The whole leading axis; an axis that is taken whole may be thin."""
    (x,), key = operands, f.args["key"]
    entries = [e for e in key if e is not None]
    value = x.widened(kept=[a for a, n in enumerate(x.x.shape) if entries[a] == (0, n, 1)])
    sizes = iter(value.shape[x.lead :])
    fitted = [None if e is None else _fitted(e, next(sizes)) for e in key]
    return F.take_slices(value, key=(*[(0, n, 1) for n in x.size], *fitted))


def _fitted(entry: Any, size: int) -> Any:
    """The whole of an axis of `size`, where `entry` takes the whole of one that is thin now."""
    return (0, 1, 1) if size == 1 and entry.__class__ is tuple and entry[1] > 1 else entry


@batches(F.put_slices)
def _put_slices(f: Function, operands: Sequence[Operand]) -> Any:
    (y,) = operands
    key = (*[(0, n, 1) for n in y.size], *f.args["key"])
    return F.put_slices(y.widened(), key=key, shape=(*y.size, *f.args["shape"]))


@batches(F.take_points, F.put_points)
def _points(f: Function, operands: Sequence[Operand]) -> Any:
    """The same points of each; points that differ are mapped."""
    x, indices = operands
    if indices.lead or not x.lead:
        return general(f, operands)
    values = {"axes": tuple([a + 1 for a in f.args["axes"]]), "at": f.args["at"] + 1}
    if f.op is F.put_points:
        values["shape"] = (*x.size, *f.args["shape"])
    return apply(f.op, (x.widened(), indices.value), changed(f, **values))


# ---------------------------------------------------------------- ops that take any number of axes in front


def _trailing(f: Function, operands: Sequence[Operand]) -> Any:
    """The op itself, which looks at the last axes; a `shape` among its arguments gets the leading axis."""
    (x,) = operands
    shaped = {"shape": (*x.size, *f.args["shape"])} if "shape" in f.args and f.op is not F.one_hot else {}
    return apply(f.op, (x.widened(),), changed(f, **shaped))


for _op in (
    F.one_hot, F.pad, F.pad_transpose, F.matrix_diag, F.matrix_diag_part, F.trilu, F.half_lower,
    F.batch_inv, F.batch_det, F.batch_cofactor, F.batch_logdet, F.batch_cholesky,
    F.max_pooling, F.average_pooling, F.average_pooling_backward, F.sum_pooling, F.sum_pooling_backward, F.unpooling,
):  # fmt: skip
    batched_forms[_op] = _trailing


@batches(F.embed)
def _embed(f: Function, operands: Sequence[Operand]) -> Any:
    x0, w = operands
    return general(f, operands) if w.lead else F.embed(x0.widened(), w.widened())


@batches(F.convolve, F.convolve_data_grad)
def _convolve(f: Function, operands: Sequence[Operand]) -> Any:
    """One convolution of K times the batch; weights that differ are mapped."""
    x, weight = operands
    if weight.lead or not x.lead:
        return general(f, operands)
    value = x.widened()
    y_shape = f.specs[0].shape
    folded = _reshaped(value, (value.shape[0] * value.shape[1], *value.shape[2:]))
    arguments = f.arguments
    if f.op is F.convolve_data_grad:
        arguments = changed(f, shape=(folded.shape[0], *y_shape[1:]))
    return _reshaped(apply(f.op, (folded, weight.value), arguments), (*x.size, *y_shape))


# ---------------------------------------------------------------- products of matrices


@batches(F.batch_matmul)
def _batch_matmul(f: Function, operands: Sequence[Operand]) -> Any:
    """As few products as can be: where one side has no axes but those of the matrix, all rows are one product's."""
    a, b = operands
    ta, tb = f.arguments
    rows, columns = a.x.ndim - (1 if ta else 2), b.x.ndim - (2 if tb else 1)
    wide_a = a._replace(value=a.widened(kept=[i for i in range(a.x.ndim) if i == rows or i < a.x.ndim - 2]))
    wide_b = b._replace(value=b.widened(kept=[i for i in range(b.x.ndim) if i == columns or i < b.x.ndim - 2]))
    if not b.lead and (not a.lead or b.x.ndim == 2):
        return apply(f.op, (wide_a.value, wide_b.value), f.arguments)
    if a.lead and b.lead:
        if b.x.ndim == 2 and a.x.ndim > 2 and not ta:
            flat = _reshaped(a.widened(), (*a.size, math.prod(a.x.shape[:-1]), a.x.shape[-1]))
            y = F.batch_matmul(flat, wide_b.value, False, tb)
            return _reshaped(y, (*a.size, *a.x.shape[:-1], y.shape[-1]))
        ndim = max(a.x.ndim, b.x.ndim)
        return apply(f.op, (wide_a.lined_up(ndim), wide_b.lined_up(ndim)), f.arguments)
    if b.lead and a.x.ndim == b.x.ndim == 2:
        return F.transpose(F.batch_matmul(wide_b.value, wide_a.value, not tb, not ta), axes=(0, 2, 1))
    return general(f, operands)


@batches(F.contraction)
def _contraction(f: Function, operands: Sequence[Operand]) -> Any:
    """One more index, which stays."""
    return contracted(operands, f.args["terms"], f.args["output"])


def contracted(operands: Sequence[Operand], terms: Sequence[Shape], output: Shape, kept: bool = True) -> Variable:
    """The contraction of operands, in which the leading axis is one more index; it is summed over unless `kept`."""
    index = 1 + max([i for term in (*terms, output) for i in term], default=-1)
    added = [(index,) * each.lead for each in operands]
    given = tuple([(*lead, *term) for lead, term in zip(added, terms, strict=True)])
    result = (index, *output) if kept and any(added) else output
    y: Variable = F.contraction(*[each.widened() for each in operands], terms=given, output=result)
    return y
