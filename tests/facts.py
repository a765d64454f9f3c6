"""The facts that ops are declared with, each against numbers.

`checks` has one function for each kind of fact. It takes an application of an op to arrays (`Case`) and raises an
AssertionError that says which fact is wrong; where the fact is not declared, or the arrays cannot show it, it returns
False.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import nngrad as nn
from nngrad.autodiff.sparsity import places_of
from nngrad.autodiff.vectorize import vectorize
from nngrad.graph import Function, Op, Variable, apply
from nngrad.graph.jaxpr import primitives_in
from nngrad.graph.layouts import first_order, last_order

from .oracle import as_tuple, compiled_cheaply, is_floating
from .together import Check, Wanted, by_itself

Array = np.ndarray[Any, Any]
K = 2


@functools.lru_cache(maxsize=64)
def forward(op: Op, arguments: tuple[Any, ...]) -> Callable[..., Any]:
    """An op's forward, compiled: of a few shapes, each for many arrays."""
    return compiled_cheaply(op.bind(arguments))


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

    def __call__(self, arrays: Sequence[Array], **arguments: Any) -> list[Array]:
        """The outputs for other arrays, perhaps with some other arguments."""
        named = dict(zip(self.op.argument_names, self.arguments, strict=True)) | arguments
        with jax.enable_x64(True):
            run = forward(self.op, tuple([named[name] for name in self.op.argument_names]))
            return [np.array(y) for y in as_tuple(run(*map(jnp.asarray, arrays)))]

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


def check_reads(case: Case) -> bool:
    """Outputs do not depend on inputs that are not read."""
    unread = range(len(case.arrays))[case.op.reads :] if case.op.reads is not None else ()
    for i in unread:
        for a, b in zip(case(case.arrays), case(case.replaced(i, moved(case.arrays[i]))), strict=True):
            assert not differs(a, b).any(), f"reads: the output depends on input {i}"
    return bool(unread)


def check_diagonal(case: Case) -> bool:
    """One element of an input moves the elements at its place, and no others; and all places are alike."""
    if not case.op.diagonal:
        return False
    (before,) = case(case.arrays)
    f = case.function
    shown = False
    for i, x in enumerate(case.arrays[: case.op.reads]):
        places = places_of(f)[i]
        for k in np.ndindex(x.shape):
            other = x.copy()
            other[k] = moved(x)[k]
            wrong = differs(before, case(case.replaced(i, other))[0])
            at: list[Any] = [slice(None)] * before.ndim
            for a, b in enumerate(places):
                if b is not None and x.shape[a] > 1:
                    at[b] = k[a]
            wrong[tuple(at)] = False
            assert not wrong.any(), f"diagonal: an element of input {i} moves elements at other places"
        shown = shown or x.size > 1
    if len({x.shape for x in case.arrays}) == 1:
        turned = [x[tuple([slice(None, None, -1)] * x.ndim)] for x in case.arrays]
        same = case(turned)[0][tuple([slice(None, None, -1)] * before.ndim)]
        assert not differs(before, same).any(), "diagonal: what it makes of an element depends on its place"
    return shown


def check_rows(case: Case) -> bool:
    """Of what moves along a carried axis of one input, the same place of the output moves alone."""
    if case.op.axes is None:
        return False
    before, places = case(case.arrays), places_of(case.function)
    shown = False
    for i, x in enumerate(case.arrays[: case.op.reads]):
        for a, b in enumerate(places[i]):
            if b is None or x.shape[a] < 2:
                continue
            for p in range(x.shape[a]):
                other = x.copy()
                place = (slice(None),) * a + (p,)
                other[place] = moved(x)[place]
                for y, z in zip(before, case(case.replaced(i, other)), strict=True):
                    wrong = differs(y, z)
                    wrong[(slice(None),) * b + (p,)] = False
                    assert not wrong.any(), f"axes: axis {a} of input {i} is not carried to axis {b}"
            shown = True
    return shown


def check_batching(case: Case) -> Check:
    """With one more leading axis, the same as one after another, whichever inputs have it; thin ones too."""
    if (case.op.axes is None and not case.op.diagonal) or not case.arrays:
        return False
    everything = tuple(range(len(case.arrays)))
    single = [] if case.op.passes else [(i,) for i in everything]  # what is passed on besides has the same value
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
    for (many, what), got in zip(variants, results, strict=True):
        for k in range(K):
            given = [np.broadcast_to(many[i][k], x.shape) if i in many else x for i, x in enumerate(case.arrays)]
            for a, b in zip(got, case(given), strict=True):
                near(a[k], b, what)
    return True


def check_channels_last(case: Case) -> bool:
    """The same with the channels last, in the inputs and so in the outputs."""
    op, ndim = case.op, max([x.ndim for x in case.arrays], default=0)
    if ndim < 3 or (op.channels_last is None and not op.diagonal):
        return False
    turned = [np.transpose(x, last_order(x.ndim)) for x in case.arrays]
    changed: Any = {}
    if op.diagonal:
        turned = [x if x.ndim == 0 else np.transpose(x.reshape((1,) * (ndim - x.ndim) + x.shape), last_order(ndim))
                  for x in case.arrays]
    else:
        assert op.channels_last is not None
        changed = op.channels_last(tuple([x.shape for x in case.arrays]), op.named(case.arguments))
        if changed is None:
            return False
    for a, b in zip(case(turned, **changed), case(case.arrays), strict=True):
        near(np.transpose(a, first_order(a.ndim)), b, "channels_last")
    return True


# ---------------------------------------------------------------- algebra


def superposed(case: Case, together: Sequence[int], **arguments: Any) -> None:
    """2 f(x) - 3 f(z) is f(2 x - 3 z) in the inputs `together`, with the others fixed."""
    others = [moved(x) if i in together else x for i, x in enumerate(case.arrays)]
    mixed = [2 * x - 3 * z if i in together else x for i, (x, z) in enumerate(zip(case.arrays, others, strict=True))]
    for a, b, c in zip(*[case(arrays, **arguments) for arrays in (case.arrays, others, mixed)], strict=True):
        if is_floating(a):
            near(c, 2 * a - 3 * b, f"linear, in inputs {list(together)}")


def check_linear(case: Case) -> bool:
    """Superposition, without the offset."""
    op, count = case.op, len(case.arrays)
    none = {op.offset: type(case.function.args[op.offset])(0)} if op.offset else {}
    single = [i for i in case.floating if op.linear == "each" or (op.linear is True and i == 0)]
    for i in single:
        superposed(case, [i], **none)
    fixed = op.fixed(count)
    if fixed is not None:
        both = [i for i in range(count) if i not in fixed]
        if all([i in case.floating for i in both]):
            superposed(case, both, **none)
    return bool(single) or fixed is not None


def check_offset(case: Case) -> bool:
    """The argument is added."""
    if not case.op.offset:
        return False
    value = case.function.args[case.op.offset]
    (a,), (b,) = case(case.arrays), case(case.arrays, **{case.op.offset: type(value)(0)})
    near(a, b + float(value), "offset")
    return value != 0


def check_weights(case: Case) -> bool:
    """A sum of the inputs, each with its number."""
    if not case.op.weights:
        return False
    terms = zip(case.function.args[case.op.weights], case.arrays, strict=True)
    near(case(case.arrays)[0], np.asarray(sum([float(w) * x for w, x in terms])) + float(
        case.function.args[case.op.offset] if case.op.offset else 0), "weights")
    return True


def check_powers(case: Case) -> bool:
    """A product of whole powers."""
    if case.op.powers is None or not all([is_floating(x) for x in case.arrays]):
        return False
    powers = case.op.powers(case.function)
    expected = math.prod([x ** float(p) for x, p in zip(case.arrays, powers, strict=True)])
    near(case(case.arrays)[0], np.asarray(expected), "powers")
    return True


def check_fold(case: Case) -> bool:
    """In two parts, of which the second takes the result of the first, the same as at once."""
    op, count = case.op, len(case.arrays)
    if op.fold is None or count < 2:
        return False
    (whole,) = case(case.arrays)
    for end in range(1, count):
        (first,) = case._replace(arguments=op.fold(case.arguments, 0, end, count))(case.arrays[:end])
        second = case._replace(arguments=op.fold(case.arguments, end, count, count))
        near(second([first, *case.arrays[end:]])[0], whole, f"fold, after {end} inputs")
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


def check_broadcasts(case: Case) -> bool:
    """The output has the shape that the inputs broadcast to."""
    if not case.op.broadcasts or case.op.selects:
        return False
    assert case(case.arrays)[0].shape == np.broadcast_shapes(*[x.shape for x in case.arrays]), "broadcasts"
    return len({x.shape for x in case.arrays}) > 1


def check_truth(case: Case) -> bool:
    """1 where it holds, else 0."""
    if case.op.truth is None:
        return False
    with jax.enable_x64(True):
        held = np.asarray(case.op.bind(case.arguments, case.op.truth)(*map(jnp.asarray, case.arrays)))
    assert held.dtype == bool and not differs(case(case.arrays)[0], held.astype(float)).any(), "truth"
    return True


def check_selects(case: Case) -> bool:
    """Any other number that is not 0 does as well."""
    if not case.op.selects:
        return False
    condition = case.arrays[0]
    other = np.where(condition != 0, 7, 0).astype(condition.dtype)
    assert not differs(case(case.arrays)[0], case(case.replaced(0, other))[0]).any(), "selects"
    return True


def check_view(case: Case) -> bool:
    """The same elements in the same order; for one that passes its inputs on, in the same shape."""
    if not case.op.view:
        return False
    for x, y in zip(case.arrays, case(case.arrays), strict=False):
        assert x.dtype == y.dtype and not differs(x.ravel(), y.ravel()).any(), "view: other elements"
        assert x.shape == y.shape or not case.op.passes, "passes: another shape"
    return True


def check_reduction(case: Case) -> bool:
    """What the operation makes of the elements along the axes that are not carried; a mean is a multiple of a sum."""
    if not case.op.reduction:
        return False
    (x,), (y,) = case.arrays, case(case.arrays)
    (places,) = places_of(case.function)
    axes = tuple([a for a, b in enumerate(places) if b is None])
    whole = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[case.op.reduction]
    expected = whole.reduce(x, axis=axes) if axes else x
    (one,) = case([np.ones_like(x)]) if case.op.reduction == "add" else (np.ones_like(y),)
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
        traced = jax.jit(op.bind(case.arguments)).trace(*map(jnp.asarray, case.arrays))
        counted = traced.lower().cost_analysis()
        products = PRODUCTS & primitives_in(traced.jaxpr.jaxpr)
    if op.cost is None:
        # Sums over leading axes are products with ones where that is faster, on CPUs, for large arrays alone.
        assert not products, f"cost: a light op with {sorted(products)}"
        return True
    flops = float((counted or {}).get("flops", 0))
    cost = op.cost(case.function)
    if products & {"dot_general", "conv_general_dilated"} and flops > 0:
        assert flops / 4 <= max(cost, 1) <= 64 * flops, f"cost: {cost}, where XLA counts {flops}"
    return bool(products)


def check_moving(case: Case) -> bool:
    """Elements of the inputs, or one number."""
    if case.op.fuses != "moving" or not case.arrays:
        return False
    known = np.concatenate([x.ravel() for x in case.arrays]).astype(float)
    for y in case(case.arrays):
        rest = y.astype(float)[~np.isin(y.astype(float), known)]
        assert len(np.unique(rest)) <= 1, "fuses: elements that no input has"
    return True


def check_numbers(case: Case) -> bool:
    """The forward gives the same where its numbers are arrays, if its inputs are floating."""
    op = case.op
    if not op.numbers or len(case.floating) < len(case.arrays):
        return False
    given = op.named(case.arguments)
    numbers = {name: given.pop(name) for name in op.numbers}

    def forward(numbers: dict[str, Any], *arrays: Any) -> Any:
        return op.forward(*arrays, **given, **numbers)

    with jax.enable_x64(True):
        free = jax.jit(forward)(jax.tree.map(np.float64, numbers), *map(jnp.asarray, case.arrays))
    for a, b in zip(as_tuple(free), case(case.arrays), strict=True):
        assert a.dtype == b.dtype, f"numbers: {a.dtype}, not {b.dtype}"
        near(np.asarray(a), b, "numbers")
    return True


def check_from_variables(case: Case) -> Check:
    """The same, whatever the numbers, where Variables stand for them: for all, and for one and not the next."""
    op = case.op
    if op.from_variables is None or len(case.floating) < len(case.arrays):
        return False
    given = op.named(case.arguments)
    other = {name: jax.tree.map(lambda number: float(number) * 1.25 + 0.125, given[name]) for name in op.numbers}
    other_case = case._replace(arguments=tuple((given | other).values()))
    f, (expected,) = other_case.function, other_case(case.arrays)
    levels = []
    for every in (1, 2):
        places = itertools.count()

        def standing_for(number: float, places: Any = places, every: int = every) -> Any:
            return number if next(places) % every else Variable.from_numpy_array(np.asarray(number, expected.dtype))

        arguments = (given | jax.tree.map(standing_for, other)).values()
        y = op.from_variables(f, f.inputs, tuple(arguments))
        assert y.dtype == expected.dtype, f"from_variables: {y.dtype}, not {expected.dtype}"
        levels.append([y])
    ((results,),) = yield [Wanted(levels)]
    for (y,) in results:
        near(y, expected, "from_variables")
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


def check_taken(case: Case) -> bool:
    """Each output is the part of the input that its key tells."""
    if case.op.taken is None:
        return False
    for key, y in zip(keys_of(case, case.op.taken), case(case.arrays), strict=True):
        assert np.array_equal(case.arrays[0][key], y), f"taken: {key}"
    return True


def check_shape(case: Case) -> bool:
    """The shape is told as tracing gives it, and so is the dtype."""
    if case.op.shape is None:
        return False
    (x,) = map(Variable.from_numpy_array, case.arrays)
    told = case.op.shape(x.shape, *case.arguments)
    assert [(s.shape, s.dtype) for s in case.op.traced_specs((x.spec,), case.arguments)] == [(told, x.dtype)], "shape"
    return True


def check_placed(case: Case) -> bool:
    """Each input is at its key in the output, and there is nothing elsewhere."""
    if case.op.placed is None:
        return False
    (y,) = case(case.arrays)
    for key, x in zip(keys_of(case, case.op.placed), case.arrays, strict=True):
        assert np.array_equal(y[key], x), f"placed: {key}"
        y[key] = 0
    assert not y.any(), "placed: there is something elsewhere"
    return True


checks: dict[str, Callable[[Case], bool | Check]] = {
    "reads": check_reads, "diagonal": check_diagonal, "rows": check_rows, "batching": check_batching,
    "channels_last": check_channels_last,
    "linear": check_linear, "offset": check_offset, "weights": check_weights, "powers": check_powers,
    "fold": check_fold,
    "bounded": check_bounded, "elementwise": check_elementwise, "broadcasts": check_broadcasts, "truth": check_truth,
    "selects": check_selects, "view": check_view, "reduction": check_reduction, "cost": check_cost,
    "moving": check_moving, "numbers": check_numbers, "from_variables": check_from_variables,
    "taken": check_taken, "shape": check_shape, "placed": check_placed,
}  # fmt: skip


def shows(name: str, case: Case) -> bool:
    """Whether the case shows the fact; raises if it is wrong."""
    result = checks[name](case)
    return by_itself(result) if isinstance(result, Generator) else result
