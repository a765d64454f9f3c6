"""The facts that ops are declared with, each against numbers.

`checks` has one function for each kind of fact. It takes an application of an op to arrays (`Case`) and raises an
AssertionError that says which fact is wrong; where the fact is not declared, or the arrays cannot show it, it returns
False. Most are checks as those of `together.py`, which ask for what they compare.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import nngrad as nn
from nngrad.cpu.facts import CHANNELS_LAST, first_order, last_order
from nngrad.derivatives.vectorize import vectorize
from nngrad.extend import Function, Op, Variable, apply
from nngrad.graph.arguments import may_be_variable
from nngrad.graph.axes import axes_carried
from nngrad.graph.jaxpr import primitives_in

from .oracle import Arrays, as_tuple, is_floating
from .together import Called, Check, Wanted, by_itself, side_by_side

Array = np.ndarray[Any, Any]
K = 2


@functools.lru_cache(maxsize=64)
def forward(op: Op, arguments: tuple[Any, ...]) -> Any:
    """An op's forward, which is traced once for arrays of the same shapes."""
    return jax.jit(op.bind(arguments))


class Case(NamedTuple):
    """One application of an op."""

    op: Op
    arrays: list[Array]
    arguments: tuple[Any, ...]

    @property
    def function(self) -> Function:
        """It, in a graph."""
        y = as_tuple(apply(self.op, tuple([Variable.from_numpy_array(x) for x in self.arrays]), self.arguments))[0]
        assert y.parent is not None
        return y.parent

    def __call__(self, *rows: Sequence[Array], **arguments: Any) -> Generator[list[Called], list[Any], list[Arrays]]:
        """The outputs for each row of arrays, perhaps with some other arguments."""
        named = dict(zip(self.op.argument_names, self.arguments, strict=True)) | arguments
        run = forward(self.op, tuple([named[name] for name in self.op.argument_names]))
        (results,) = yield [Called(run, rows)]
        return results

    def replaced(self, i: int, x: Array) -> list[Array]:
        """The inputs with one replaced."""
        return [*self.arrays[:i], x, *self.arrays[i + 1 :]]

    @property
    def floating(self) -> list[int]:
        """The inputs that gradients can reach."""
        return [i for i, x in enumerate(self.arrays) if is_floating(x)]


def moved(x: Array) -> Array:
    """Other numbers of the same kind, none of them as before."""
    return ~x if x.dtype == bool else x + 1 if not is_floating(x) else x * 1.25 + 0.125


def differs(a: Array, b: Array) -> Array:
    """Where two arrays are not the same; NaN is the same as NaN."""
    same = np.equal(a, b)
    return ~(same | (np.isnan(a) & np.isnan(b)) if is_floating(a) else same)


def near(a: Array, b: Array, what: str) -> None:
    """Compare, with a tolerance relative to the largest."""
    assert a.shape == b.shape, f"{what}: shape {a.shape}, not {b.shape}"
    size = float(np.max(np.abs(b), initial=1, where=np.isfinite(b)))
    np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * size, err_msg=what)


# ---------------------------------------------------------------- what depends on what


def check_reads(case: Case) -> Check:
    """Outputs do not depend on inputs that are not read."""
    unread = range(len(case.arrays))[case.op.reads :] if case.op.reads is not None else range(0)
    if not unread:
        return False
    before, *after = yield from case(case.arrays, *[case.replaced(i, moved(case.arrays[i])) for i in unread])
    for i, results in zip(unread, after, strict=True):
        for a, b in zip(before, results, strict=True):
            assert not differs(a, b).any(), f"reads: the output depends on input {i}"
    return True


def check_diagonal(case: Case) -> Check:
    """One element of an input moves the elements at its place, and no others; and all places are alike."""
    if not case.op.diagonal:
        return False
    places, moves, rows = axes_carried(case.function), [], [case.arrays]
    read = case.arrays[: case.op.reads]
    for i, x in enumerate(read):
        for k in np.ndindex(x.shape):
            other = x.copy()
            other[k] = moved(x)[k]
            moves.append((i, k))
            rows.append(case.replaced(i, other))
    alike = len({x.shape for x in case.arrays}) == 1
    if alike:
        rows.append([x[tuple([slice(None, None, -1)] * x.ndim)] for x in case.arrays])
    (before,), *after = yield from case(*rows)
    for (i, k), (y,) in zip(moves, after[: len(moves)], strict=True):
        wrong = differs(before, y)
        at: list[Any] = [slice(None)] * before.ndim
        for a, b in enumerate(places[i]):
            if b is not None and read[i].shape[a] > 1:
                at[b] = k[a]
        wrong[tuple(at)] = False
        assert not wrong.any(), f"diagonal: an element of input {i} moves elements at other places"
    if alike:
        same = after[-1][0][tuple([slice(None, None, -1)] * before.ndim)]
        assert not differs(before, same).any(), "diagonal: what it makes of an element depends on its place"
    return any([x.size > 1 for x in read])


def check_rows(case: Case) -> Check:
    """Of what moves along a carried axis of one input, the same place of the output moves alone."""
    if case.op.axes is None:
        return False
    places, moves, rows = axes_carried(case.function), [], [case.arrays]
    for i, x in enumerate(case.arrays[: case.op.reads]):
        for a, b in enumerate(places[i]):
            for p in range(x.shape[a] if b is not None and x.shape[a] > 1 else 0):
                other = x.copy()
                place = (slice(None),) * a + (p,)
                other[place] = moved(x)[place]
                moves.append((i, a, b, p))
                rows.append(case.replaced(i, other))
    if not moves:
        return False
    before, *after = yield from case(*rows)
    for (i, a, b, p), results in zip(moves, after, strict=True):
        for y, z in zip(before, results, strict=True):
            wrong = differs(y, z)
            wrong[(slice(None),) * b + (p,)] = False
            assert not wrong.any(), f"axes: axis {a} of input {i} is not carried to axis {b}"
    return True


def check_batching(case: Case) -> Check:
    """With one more leading axis, the same as one after another, whichever inputs have it; thin ones too."""
    if (case.op.axes is None and not case.op.diagonal) or not case.arrays:
        return False
    everything = tuple(range(len(case.arrays)))
    # What is passed on besides has the same value.
    single = [] if case.op.forwards_inputs else [(i,) for i in everything]
    ndim = max([x.ndim for x in case.arrays])
    leaves = [Variable.from_numpy_array(x) for x in case.arrays]
    outputs = as_tuple(apply(case.op, tuple(leaves), case.arguments))
    variants, levels = [], []
    for chosen in dict.fromkeys([everything, *single]):
        for thin in [None, *([*range(ndim)] if chosen is everything else [])]:
            many = {}
            for i in chosen:
                x = case.arrays[i]
                first = x if thin is None or thin >= x.ndim or not x.size else np.take(x, [0], thin)
                many[i] = np.stack([first if not is_floating(x) else first * (1 + 0.003 * k) for k in range(K)])
            variants.append((many, f"axes, in a batch of inputs {chosen}, axis {thin} thin"))
            levels.append(vectorize(outputs, {leaves[i]: Variable.from_numpy_array(m) for i, m in many.items()}))
    ((results,),) = yield [Wanted(levels)]
    singly = iter((yield from case(*[
        [np.broadcast_to(many[i][k], x.shape) if i in many else x for i, x in enumerate(case.arrays)]
        for many, _ in variants for k in range(K)
    ])))  # fmt: skip
    for (_, what), got in zip(variants, results, strict=True):
        for k in range(K):
            for a, b in zip(got, next(singly), strict=True):
                near(a[k], b, what)
    return True


def check_channels_last(case: Case) -> Check:
    """The same with the channels last, in the inputs and so in the outputs."""
    op, ndim = case.op, max([x.ndim for x in case.arrays], default=0)
    if ndim < 3 or (op not in CHANNELS_LAST and not op.diagonal):
        return False
    turned = [np.transpose(x, last_order(x.ndim)) for x in case.arrays]
    changed: Any = {}
    if op.diagonal:
        turned = [x if x.ndim == 0 else np.transpose(x.reshape((1,) * (ndim - x.ndim) + x.shape), last_order(ndim))
                  for x in case.arrays]
    else:
        changed = CHANNELS_LAST[op](tuple([x.shape for x in case.arrays]), op.named(case.arguments))
        if changed is None:
            return False
    ours, usual = yield from side_by_side([case(turned, **changed), case(case.arrays)])
    for a, b in zip(*ours, *usual, strict=True):
        near(np.transpose(a, first_order(a.ndim)), b, "channels_last")
    return True


# ---------------------------------------------------------------- algebra


def superposed(case: Case, together: Sequence[int], **arguments: Any) -> Check:
    """2 f(x) - 3 f(z) is f(2 x - 3 z) in the inputs `together`, with the others fixed."""
    others = [moved(x) if i in together else x for i, x in enumerate(case.arrays)]
    mixed = [2 * x - 3 * z if i in together else x for i, (x, z) in enumerate(zip(case.arrays, others, strict=True))]
    for a, b, c in zip(*(yield from case(case.arrays, others, mixed, **arguments)), strict=True):
        if is_floating(a):
            near(c, 2 * a - 3 * b, f"linear, in inputs {list(together)}")


def check_linear(case: Case) -> Check:
    """Superposition, without the offset."""
    op, count = case.op, len(case.arrays)
    none = {op.offset: type(case.function.args[op.offset])(0)} if op.offset else {}
    sets = [[i] for i in case.floating if op.linear == "each" or (op.linear is True and i == 0)]
    shown, fixed = bool(sets), op.fixed(count)
    if fixed is not None:
        shown, both = True, [i for i in range(count) if i not in fixed]
        sets += [both] if all([i in case.floating for i in both]) else []
    yield from side_by_side([superposed(case, each, **none) for each in sets])
    return shown


def check_offset(case: Case) -> Check:
    """The argument is added."""
    if not case.op.offset:
        return False
    value = case.function.args[case.op.offset]
    without = {case.op.offset: type(value)(0)}
    ((a,),), ((b,),) = yield from side_by_side([case(case.arrays), case(case.arrays, **without)])
    near(a, b + float(value), "offset")
    return value != 0


def check_weights(case: Case) -> Check:
    """A sum of the inputs, each with its number."""
    if not case.op.weights:
        return False
    terms = zip(case.function.args[case.op.weights], case.arrays, strict=True)
    offset = float(case.function.args[case.op.offset]) if case.op.offset else 0
    ((y,),) = yield from case(case.arrays)
    near(y, np.asarray(sum([float(w) * x for w, x in terms])) + offset, "weights")
    return True


def check_powers(case: Case) -> Check:
    """A product of whole powers."""
    if case.op.powers is None or not all([is_floating(x) for x in case.arrays]):
        return False
    powers = case.op.powers(case.function)
    expected = math.prod([x ** float(p) for x, p in zip(case.arrays, powers, strict=True)])
    ((y,),) = yield from case(case.arrays)
    near(y, np.asarray(expected), "powers")
    return True


def check_joined_by(case: Case) -> Check:
    """Two stretches, joined, are the same as all at once."""
    op, count = case.op, len(case.arrays)
    if op.joined_by is None or count < 2:
        return False
    stretches = case.arrays[:1], case.arrays[1:]
    ((whole,),), *parts = yield from side_by_side([case(case.arrays), *map(case, stretches)])
    ((joined,),) = yield from case._replace(op=op.joined_by())([part for ((part,),) in parts])
    near(joined, whole, "joined_by")
    return True


def check_fold(case: Case) -> Check:
    """In two parts, of which the second takes the result of the first, the same as at once."""
    op, count = case.op, len(case.arrays)
    if op.fold is None or count < 2:
        return False
    begun = [case._replace(arguments=op.fold(case.arguments, 0, end, count))(case.arrays[:end])
             for end in range(1, count)]  # fmt: skip
    ((whole,),), *firsts = yield from side_by_side([case(case.arrays), *begun])
    seconds = yield from side_by_side([
        case._replace(arguments=op.fold(case.arguments, end, count, count))([first, *case.arrays[end:]])
        for end, ((first,),) in enumerate(firsts, start=1)
    ])
    for end, ((second,),) in enumerate(seconds, start=1):
        near(second, whole, f"fold, after {end} inputs")
    return True


EXTREME = [0.0, 1.0, -1.0, 0.5, -0.5, 6.0, 1e-300, -1e-300, 1e5, -1e5, 1e150, -1e150]


def check_bounded(case: Case) -> Check:
    """The derivative of a diagonal op that is not declared unbounded is finite wherever the input is."""
    op = case.op
    if not op.diagonal or op.unbounded or nn.registry.find(op) is None:
        return False
    places, levels = [], []
    for i in case.floating:
        others = [np.full(len(EXTREME), x.flat[0] if x.size else 1, x.dtype) for x in case.arrays]
        leaves = [Variable.from_numpy_array(x) for x in (*others[:i], np.array(EXTREME), *others[i + 1 :])]
        y = apply(op, tuple(leaves), case.arguments)
        if y.spec.differentiable:
            places.append(i)
            levels.append(nn.grad(y, leaves[i]))
    ((results,),) = yield [Wanted(levels)]
    for i, (gx,) in zip(places, results, strict=True):
        assert np.isfinite(gx).all(), f"unbounded: so is the derivative in input {i}"
    return bool(case.floating)


# ---------------------------------------------------------------- outputs


def check_elementwise(case: Case) -> bool:
    """Floating inputs of one shape and dtype give that shape and dtype."""
    if not case.op.elementwise:
        return False
    run = case.op.bind(case.arguments)
    for dtype in (jnp.float16, jnp.float32):
        for shape in ((), (2, 3)):
            try:
                y = jax.eval_shape(run, *[jax.ShapeDtypeStruct(shape, dtype)] * len(case.arrays))
            except (TypeError, ValueError) as error:
                raise AssertionError(f"elementwise: refuses {dtype.__name__}{list(shape)}: {error}") from error
            assert (y.shape, y.dtype) == (shape, dtype), f"elementwise: gives {y}"
    return True


def check_broadcasts(case: Case) -> Check:
    """The output has the shape that the inputs broadcast to, and what is elementwise and takes several shapes says so.
    """
    if case.op.elementwise and not case.op.broadcasts:
        assert len({x.shape for x in case.arrays}) <= 1, "broadcasts"
    if not case.op.broadcasts or case.op.selects:
        return False
    ((y,),) = yield from case(case.arrays)
    assert y.shape == np.broadcast_shapes(*[x.shape for x in case.arrays]), "broadcasts"
    return len({x.shape for x in case.arrays}) > 1


def check_predicate(case: Case) -> Check:
    """1 where it holds, else 0."""
    if case.op.predicate is None:
        return False
    held = Called(case.op.bind(case.arguments, case.op.predicate), [case.arrays])
    ((y,),), ((truth,),) = yield [Called(forward(case.op, case.arguments), [case.arrays]), held]
    assert truth.dtype == bool and not differs(y, truth.astype(float)).any(), "predicate"
    return True


def check_selects(case: Case) -> Check:
    """Any other number that is not 0 does as well."""
    if not case.op.selects:
        return False
    condition = case.arrays[0]
    other = np.where(condition != 0, 7, 0).astype(condition.dtype)
    (a,), (b,) = yield from case(case.arrays, case.replaced(0, other))
    assert not differs(a, b).any(), "selects"
    return True


def check_view(case: Case) -> Check:
    """The same elements in the same order; for one that passes its inputs on, in the same shape."""
    if not case.op.view:
        return False
    (outputs,) = yield from case(case.arrays)
    for x, y in zip(case.arrays, outputs, strict=False):
        assert x.dtype == y.dtype and not differs(x.ravel(), y.ravel()).any(), "view: other elements"
        assert x.shape == y.shape or not case.op.forwards_inputs, "passes: another shape"
    return True


def check_reduction(case: Case) -> Check:
    """What the operation makes of the elements along the axes that are not carried; a mean is a multiple of a sum."""
    if not case.op.reduction:
        return False
    (x,) = case.arrays
    (y,), (one,) = yield from case([x], [np.ones_like(x)])
    (places,) = axes_carried(case.function)
    axes = tuple([a for a, b in enumerate(places) if b is None])
    whole = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[case.op.reduction]
    expected = whole.reduce(x, axis=axes) if axes else x
    scale = one.ravel() / np.ones_like(x).sum(axes).ravel() if case.op.reduction == "add" and y.size else 1.0
    near(np.asarray(y).ravel(), np.asarray(expected).ravel() * scale, "reduction")
    return bool(axes)


# ---------------------------------------------------------------- cost

PRODUCTS = {"dot_general", "conv_general_dilated", "cholesky", "lu", "svd", "eigh", "qr", "triangular_solve"}


def check_cost(case: Case) -> bool:
    """A light op has no products of matrices in it, and takes a bounded number of operations for each element; a heavy
    one says about what XLA counts."""
    op = case.op
    with jax.enable_x64(True):
        traced = forward(op, case.arguments).trace(*map(jnp.asarray, case.arrays))
        products = PRODUCTS & primitives_in(traced.jaxpr.jaxpr)
        if op.cost is None:
            # Sums over leading axes are products with ones where that is faster, on CPUs, for large arrays alone.
            assert not products, f"cost: a light op with {sorted(products)}"
            return True
        counted = traced.lower().cost_analysis() if products else None
    cost, flops = op.cost(case.function), float((counted or {}).get("flops", 0))
    if products & {"dot_general", "conv_general_dilated"} and flops > 0:
        assert flops / 4 <= max(cost, 1) <= 64 * flops, f"cost: {cost}, where XLA counts {flops}"
    return bool(products)


def check_moving(case: Case) -> Check:
    """Elements of the inputs, or one number."""
    if case.op.fuses != "moving" or not case.arrays:
        return False
    known = np.concatenate([x.ravel() for x in case.arrays]).astype(float)
    (outputs,) = yield from case(case.arrays)
    for y in outputs:
        rest = y.astype(float)[~np.isin(y.astype(float), known)]
        assert len(np.unique(rest)) <= 1, "fuses: elements that no input has"
    return True


def check_numbers(case: Case) -> Check:
    """The forward gives the same where its numbers are arrays, if its inputs are floating."""
    op = case.op
    if not op.numbers or len(case.floating) < len(case.arrays):
        return False
    given = op.named(case.arguments)
    numbers, tree = jax.tree.flatten({name: given.pop(name) for name in op.numbers})

    def free(*arrays: Any) -> Any:
        named = jax.tree.unflatten(tree, arrays[: len(numbers)])
        return op.forward(*arrays[len(numbers) :], **given, **named)

    rows = [*map(np.float64, numbers), *case.arrays]
    (ours,), (usual,) = yield [Called(free, [rows]), Called(forward(op, case.arguments), [case.arrays])]
    for a, b in zip(ours, usual, strict=True):
        assert a.dtype == b.dtype, f"numbers: {a.dtype}, not {b.dtype}"
        near(a, b, "numbers")
    return True


def check_by_index(case: Case) -> Check:
    """The same where the indices in its key are arrays."""
    op, given = case.op, case.op.named(case.arguments)
    indices = [] if op.by_index is None else [i for i in given["key"] if isinstance(i, int)]
    if not indices:
        return False

    def free(*arrays: Any) -> Any:
        left = iter(arrays)
        key = tuple([next(left) if isinstance(i, int) else i for i in given["key"]])
        return op.by_index(*left, **given | {"key": key})

    rows = [*map(np.float64, indices), *case.arrays]
    (ours,), (usual,) = yield [Called(free, [rows]), Called(forward(op, case.arguments), [case.arrays])]
    for a, b in zip(ours, usual, strict=True):
        assert a.shape == b.shape and not differs(a, b).any(), "by_index: another result"
    return True


def check_of_variables(case: Case) -> Check:
    """The same where Variables stand for all numbers that they may stand for, up to rounding."""
    op = case.op
    if op.of_variables is None:
        return False
    kinds = inspect.signature(op.forward, eval_str=True).parameters
    arguments = [
        Variable.from_numpy_array(np.asarray(value, np.float64)) if may_be_variable(kinds[name].annotation) else value
        for name, value in op.named(case.arguments).items()
    ]
    y = op.of_variables(*map(Variable.from_numpy_array, case.arrays), *arguments)
    ((expected,),) = yield from case(case.arrays)
    ((results,),) = yield [Wanted([[y]])]
    near(results[0][0].astype(expected.dtype), expected, "of_variables")
    return True


def index_of(key: Sequence[Any]) -> tuple[Any, ...]:
    """A key as NumPy has it."""
    ends = [e[0] + e[1] * e[2] if isinstance(e, tuple) else 0 for e in key]
    return tuple([
        slice(e[0], None if end < 0 else end, e[2]) if isinstance(e, tuple) else e
        for e, end in zip(key, ends, strict=True)
    ])


def keys_of(case: Case, keys: Any) -> list[tuple[Any, ...]]:
    """What a fact says of the parts."""
    return [index_of(key) for key in keys(tuple([x.shape for x in case.arrays]), case.op.named(case.arguments))]


def check_taken(case: Case) -> Check:
    """Each output is the part of the input that its key tells."""
    if case.op.slice_keys is None:
        return False
    (outputs,) = yield from case(case.arrays)
    for key, y in zip(keys_of(case, case.op.slice_keys), outputs, strict=True):
        assert np.array_equal(case.arrays[0][key], y), f"taken: {key}"
    return True


def check_shape(case: Case) -> bool:
    """The shape is told as tracing gives it, and so is the dtype."""
    specs = tuple([Variable.from_numpy_array(x).spec for x in case.arrays])
    told = case.op._declared_specs(specs, case.arguments)
    assert told is None or case.op.traced_specs(specs, case.arguments) == told, "shape"
    return told is not None


def check_placed(case: Case) -> Check:
    """Each input is at its key in the output, and there is nothing elsewhere."""
    if case.op.update_keys is None:
        return False
    ((y,),) = yield from case(case.arrays)
    for key, x in zip(keys_of(case, case.op.update_keys), case.arrays, strict=True):
        assert np.array_equal(y[key], x), f"placed: {key}"
        y[key] = 0
    assert not y.any(), "placed: there is something elsewhere"
    return True


def check_adds_rows(case: Case) -> Check:
    """Outputs for one row after another add up to that for all."""
    if not case.op.adds_rows:
        return False
    ((y,),) = yield from case(case.arrays)
    parts = yield from case(*[[x[k : k + 1] for x in case.arrays] for k in range(len(case.arrays[0]))])
    near(sum([part for (part,) in parts]), y, "adds_rows")
    return True


checks: dict[str, Callable[[Case], bool | Check]] = {
    "reads": check_reads, "diagonal": check_diagonal, "rows": check_rows, "batching": check_batching,
    "channels_last": check_channels_last,
    "linear": check_linear, "offset": check_offset, "weights": check_weights, "powers": check_powers,
    "fold": check_fold, "joined_by": check_joined_by,
    "bounded": check_bounded, "elementwise": check_elementwise, "broadcasts": check_broadcasts,
    "predicate": check_predicate, "selects": check_selects, "view": check_view, "reduction": check_reduction,
    "cost": check_cost, "moving": check_moving, "numbers": check_numbers,
    "by_index": check_by_index, "of_variables": check_of_variables,
    "slice_keys": check_taken, "shape": check_shape, "update_keys": check_placed,
    "adds_rows": check_adds_rows,
}  # fmt: skip


def shown(name: str, case: Case) -> Check:
    """Whether the case shows the fact, as a check; raises if it is wrong."""
    result = checks[name](case)
    return (yield from result) if isinstance(result, Generator) else result


def shows(name: str, case: Case) -> bool:
    """The same by itself."""
    return by_itself(shown(name, case))
