"""Tensor contractions: sums of products over indices."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ..graph import AnyShape, Array, Composite, Function, Variable, apply, composite, op
from ..graph.arguments import MatmulPrecision, Static, as_ints
from ..graph.signatures import Completed
from .axes import axis_of, contracts
from .linear import batch_matmul
from .movement import reshape

Tuples = tuple[tuple[int, ...], ...]


def _index_cost(f: Function) -> int:
    terms = zip(f.inputs, f.args["terms"], strict=True)
    sizes = {i: n for x, term in terms for i, n in zip(term, x.shape, strict=True)}
    return 2 * math.prod(sizes.values())


def _contracted(*shapes_and_arguments: Any) -> tuple[int, ...] | None:
    """The shape of a contraction, from the shapes of the factors, the terms and the output."""
    *shapes, terms, output, _ = shapes_and_arguments
    pairs = {pair for term, shape in zip(terms, shapes, strict=True) for pair in zip(term, shape, strict=True)}
    sizes = dict(pairs)
    return tuple([sizes[i] for i in output]) if len(sizes) == len(pairs) and sizes.keys() >= {*output} else None


@op(
    type_name="Einsum", linear="each", axes=contracts(lambda f: (f.args["terms"], f.args["output"])), cost=_index_cost,
    precision="low", shape=_contracted,
)  # fmt: skip
def contraction(
    *x: Array, terms: Static, output: Static, matmul_precision: MatmulPrecision | None = None
) -> jax.Array:
    """Sum of products over indices: the op behind `einsum`.

    Args:
        x: The factors.
        terms: A tuple of index numbers for each of `x`, one for each of its axes. An index that occurs twice in one
            term takes the diagonal.
        output: The index numbers of the result's axes; the products are summed over all others. One that occurs twice
            puts the values on a diagonal, with zeros elsewhere.
    """
    once = tuple(dict.fromkeys(output))
    operands = [part for pair in zip(x, terms, strict=True) for part in pair]
    y: jax.Array = jnp.einsum(*operands, once, precision=matmul_precision)
    if len(once) == len(output):
        return y
    sizes = dict(zip(once, y.shape, strict=True))
    shape = tuple(sizes[i] for i in output)
    spread = lax.broadcast_in_dim(y, shape, [output.index(i) for i in once])
    equal = jnp.ones(shape, bool)
    for axis, i in enumerate(output):
        if output.index(i) != axis:
            here, first = (lax.broadcasted_iota(jnp.int32, shape, a) for a in (axis, output.index(i)))
            equal = lax.bitwise_and(equal, lax.eq(here, first))
    return lax.select(equal, spread, lax.full_like(spread, 0))


def contraction_like(
    f: Function, x: Sequence[Variable], terms: Sequence[Sequence[int]], output: Sequence[int]
) -> Variable:
    """A contraction for a derivative of the product `f`, with the same matrix-multiplication precision."""
    y: Variable = contraction(
        *x, terms=tuple(map(tuple, terms)), output=tuple(output), matmul_precision=f.args.get("matmul_precision")
    )
    return y


class _EquationFirst(Composite[..., Variable]):
    """A composite whose `equation` may also come first, as in NumPy, PyTorch and JAX."""

    __doc__ = Completed(__doc__)

    def __call__(self, *args: Any, **kwargs: Any) -> Variable:
        if args and isinstance(args[0], str):
            return super().__call__(*args[1:], equation=args[0], **kwargs)
        return super().__call__(*args, **kwargs)


@_EquationFirst
def einsum(*x: Array, equation: str = "") -> Variable:
    """Einstein summation over any number of Variables: `einsum("ij,jk->ik", x, y)`.

    Args:
        x: The operands.
        equation: As in NumPy, before the operands or by its name. Indices are letters; one that is repeated within an
            operand takes its diagonal. `...` stands for axes that are broadcast together; an axis of size 1 is
            broadcast against the others of its index. Without `->` the result has the indices that occur once, in
            alphabetical order.

    Raises:
        TypeError: There is no equation.
        ValueError: The equation cannot be read, or does not fit the shapes.
    """
    if not equation:
        raise TypeError("einsum: give an equation, as in F.einsum('ij,jk->ik', x, y)")
    terms, output, shapes = _indices(equation, tuple([operand.spec.shape for operand in x]))
    operands = tuple([
        operand if operand.spec.shape == shape else reshape(operand, shape=shape)
        for operand, shape in zip(x, shapes, strict=True)
    ])
    y: Variable = apply(contraction, operands, (terms, output, None))
    return y


@functools.lru_cache(maxsize=1024)
def _indices(equation: str, shapes: Tuples) -> tuple[Tuples, tuple[int, ...], Tuples]:
    """The index numbers of each operand and of the result, and each operand's shape without its broadcast axes."""

    def fail(why: str) -> ValueError:
        return ValueError(f"einsum: equation {equation!r}: {why}")

    inputs, arrow, result = equation.replace(" ", "").partition("->")
    texts = inputs.split(",")
    if len(texts) != len(shapes):
        raise fail(f"expected {len(texts)} operands, got {len(shapes)}")
    for text in (*texts, result):
        letters = text.replace("...", "", 1)
        if not (letters.isalpha() and letters.isascii()) and letters:
            raise fail(f"{text!r} must consist of letters and at most one '...'")
    # Axes under an ellipsis have negative numbers, counted from the last, so that they align from the right.
    terms = []
    for text, shape in zip(texts, shapes, strict=True):
        before, dots, after = text.partition("...")
        hidden = len(shape) - len(before) - len(after)
        if hidden < 0 or (hidden and not dots):
            raise fail(f"{text!r} does not match the {len(shape)} axes of shape {shape}")
        outer = [*shape[: len(before)], *shape[len(shape) - len(after) :]]
        pairs = set(zip([*before, *after], outer, strict=True))
        if len(dict(pairs)) < len(pairs):
            raise fail(f"a repeated index of {text!r} has different sizes in shape {shape}")
        terms.append((*map(ord, before), *range(-hidden, 0), *map(ord, after)))
    hidden = max(-min(0, *term, 0) for term in terms)
    ellipsis = tuple(range(-hidden, 0))
    if arrow:
        before, dots, after = result.partition("...")
        output = (*map(ord, before), *(ellipsis if dots else ()), *map(ord, after))
        named = [i for i in output if i > 0]
        if len(set(named)) < len(named):
            raise fail("the result repeats an index")
        if hidden and not dots:
            raise fail("the result must contain '...', as the operands do")
    else:
        letters = inputs.replace(",", "").replace(".", "")
        output = (*ellipsis, *sorted(ord(c) for c in set(letters) if letters.count(c) == 1))
    sizes: dict[int, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        for i, n in zip(term, shape, strict=True):
            known = sizes.setdefault(i, n)
            if known != n:
                if 1 not in (known, n):
                    raise fail(f"index {chr(i) if i > 0 else '...'!r} has different sizes, {known} and {n}")
                sizes[i] = max(known, n) if 0 not in (known, n) else 0
    for i in output:
        if i not in sizes:
            raise fail(f"index {chr(i)!r} of the result occurs in no operand")
    numbers = {i: place for place, i in enumerate(dict.fromkeys(i for term in terms for i in term))}
    unbroadcast = [
        [(numbers[i], n) for i, n in zip(term, shape, strict=True) if n == sizes[i]]
        for term, shape in zip(terms, shapes, strict=True)
    ]
    return (
        tuple(tuple(i for i, _ in pairs) for pairs in unbroadcast),
        tuple(numbers[i] for i in output),
        tuple(tuple(n for _, n in pairs) for pairs in unbroadcast),
    )


@composite
def tensordot(a: AnyShape, b: AnyShape, /, axes: Static = 2) -> Variable:
    """The sum of products over axes of `a` and of `b`, as NumPy's `tensordot`.

    Args:
        axes: The number of last axes of `a` and first axes of `b` to sum over, in order; or the pair of axes of `a` and
            of `b`, each an axis or a list of them.

    Returns:
        The other axes of `a`, and then those of `b`.

    Raises:
        ValueError: The axes are out of range, or differ in number or size.
    """
    if isinstance(axes, int):
        if not 0 <= axes <= min(a.ndim, b.ndim):
            raise ValueError(f"axes must not exceed the axes of a {a.shape} or of b {b.shape}, got {axes}")
        of_a, of_b = tuple(range(a.ndim - axes, a.ndim)), tuple(range(axes))
    elif isinstance(axes, tuple) and len(axes) == 2:
        of_a, of_b = (
            tuple([axis_of(i, x.ndim, "axes:") for i in as_ints(axes_of_one)])
            for axes_of_one, x in zip(axes, (a, b), strict=True)
        )
    else:
        raise ValueError(f"axes must be an int or a pair of lists of axes, got {axes!r}")
    sizes = [tuple(x.shape[i] for i in axes_of_one) for x, axes_of_one in ((a, of_a), (b, of_b))]
    if sizes[0] != sizes[1] or len(set(of_a)) < len(of_a) or len(set(of_b)) < len(of_b):
        raise ValueError(f"axes {of_a} of a {a.shape} do not match axes {of_b} of b {b.shape}")
    numbers = [*range(a.ndim, a.ndim + b.ndim)]
    for i, j in zip(of_a, of_b, strict=True):
        numbers[j] = i
    output = [*[i for i in range(a.ndim) if i not in of_a], *[n for n in numbers if n >= a.ndim]]
    return contraction(a, b, terms=(tuple(range(a.ndim)), tuple(numbers)), output=tuple(output))


@composite
def bilinear(
    e1: Array, e2: Array, W: Array, V1: Array | None = None, V2: Array | None = None, b: Array | None = None, /  # noqa: N803
) -> Variable:
    """A bilinear layer, `e1' W e2 + V1' e1 + V2' e2 + b` (Socher et al., 2013).

    Args:
        e1: (batch, *first); a sample counts as a vector of j numbers.
        e2: (batch, *second); a sample counts as a vector of k numbers.
        W: (j, k, outputs).
        V1: (j, outputs), or None.
        V2: (k, outputs), or None.
        b: (outputs,), or None.

    Returns:
        (batch, outputs).
    """
    flat = [reshape(e, shape=(e.shape[0], math.prod(e.shape[1:]))) if e.ndim else e for e in (e1, e2)]
    sizes = tuple(e.shape[-1] if e.ndim == 2 else -1 for e in flat)
    outputs = W.shape[-1] if W.ndim else 0
    if W.shape != (*sizes, outputs) or flat[0].shape[:1] != flat[1].shape[:1]:
        raise ValueError("e1, e2 and W must be of shape (batch, j), (batch, k) and (j, k, outputs), got "
                         f"{e1.shape}, {e2.shape} and {W.shape}")
    for name, value, shape in (("V1", V1, (sizes[0], outputs)), ("V2", V2, (sizes[1], outputs)), ("b", b, (outputs,))):
        if value is not None and value.shape != shape:
            raise ValueError(f"{name} must be of shape {shape}, got {value.shape}")
    y: Variable = einsum(*flat, W, equation="bj,bk,jko->bo")
    for e, v in zip(flat, (V1, V2), strict=True):
        if v is not None:
            y = y + batch_matmul(e, v)
    return y if b is None else y + b
