"""Contractions: sums of products over indices."""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ..graph import Array, Function, Variable, apply, composite, op
from ..graph.arguments import Static
from ..graph.axes import Indices, contracts
from .movement import reshape

Tuples = tuple[tuple[int, ...], ...]


def _indices_of(f: Function) -> Indices:
    return f.args["terms"], f.args["output"]


def _index_cost(f: Function) -> int:
    terms = zip(f.inputs, f.args["terms"], strict=True)
    sizes = {i: n for x, term in terms for i, n in zip(term, x.shape, strict=True)}
    return 2 * math.prod(sizes.values())


@op(type_name="Einsum", linear="each", axes=contracts(_indices_of), cost=_index_cost)
def contraction(*x: Array, terms: Static, output: Static) -> jax.Array:
    """Sum of products over indices: what `einsum` is made of.

    Args:
        x: The factors.
        terms: A tuple of index numbers for each of `x`, one for each of its axes. An index that occurs twice in one
            term takes the diagonal.
        output: The index numbers of the result's axes; the products are summed over all others. One that occurs
            twice puts the values on the diagonal of zeros.

    Raises:
        ValueError: The indices do not fit the shapes.
    """
    _check_indices([each.shape for each in x], terms, output)
    once = tuple(dict.fromkeys(output))
    y = jnp.einsum(*[part for pair in zip(x, terms, strict=True) for part in pair], once)
    if len(once) == len(output):
        return y
    sizes = dict(zip(once, y.shape, strict=True))
    shape = tuple(sizes[i] for i in output)
    spread = lax.broadcast_in_dim(y, shape, [output.index(i) for i in once])
    kept = jnp.ones(shape, bool)
    for axis, i in enumerate(output):
        if output.index(i) != axis:
            here, first = (lax.broadcasted_iota(jnp.int32, shape, a) for a in (axis, output.index(i)))
            kept = lax.bitwise_and(kept, lax.eq(here, first))
    return lax.select(kept, spread, lax.full_like(spread, 0))


def _check_indices(shapes: list[tuple[int, ...]], terms: Any, output: Any) -> None:
    """Raise a ValueError unless `terms` and `output` name the axes of arrays of `shapes` by index numbers."""
    if not isinstance(terms, tuple) or len(terms) != len(shapes):
        raise ValueError(f"terms must be a tuple with one tuple for each of the {len(shapes)} inputs, got {terms!r}")
    for name, indices in [*((f"terms[{i}]", term) for i, term in enumerate(terms)), ("output", output)]:
        if not isinstance(indices, tuple) or not all(type(index) is int and index >= 0 for index in indices):
            raise ValueError(f"{name} must be a tuple of index numbers, got {indices!r}")
    sizes: dict[int, int] = {}
    for i, (term, shape) in enumerate(zip(terms, shapes, strict=True)):
        if len(term) != len(shape):
            raise ValueError(f"terms[{i}] must have an index for each axis of shape {shape}, got {term}")
        for index, n in zip(term, shape, strict=True):
            if sizes.setdefault(index, n) != n:
                raise ValueError(f"terms: index {index} stands for axes of sizes {sizes[index]} and {n}")
    if not sizes.keys() >= set(output):
        raise ValueError(f"output {output} has an index that is in none of the terms {terms}")


@composite
def einsum(*x: Array, equation: str) -> Variable:
    """Einstein's summation over any number of Variables.

    Args:
        x: The operands.
        equation: As in NumPy. Indices are letters; one that is repeated within an operand takes its diagonal; `...`
            stands for axes that are broadcast together; without `->` the result has the indices that occur once, in
            alphabetical order.

    Raises:
        ValueError: The equation cannot be read, or does not fit the shapes.
    """
    terms, output, shapes = _indices(equation, tuple([each.spec.shape for each in x]))
    operands = tuple([
        each if each.spec.shape == shape else reshape(each, shape=shape) for each, shape in zip(x, shapes, strict=True)
    ])
    y: Variable = apply(contraction, operands, (terms, output))
    return y


@functools.lru_cache(maxsize=1024)
def _indices(equation: str, shapes: Tuples) -> tuple[Tuples, tuple[int, ...], Tuples]:
    """The index numbers of each operand and of the result, and each operand's shape without the axes along which it
    is repeated."""

    def fail(why: str) -> ValueError:
        return ValueError(f"einsum: equation {equation!r}: {why}")

    inputs, arrow, result = equation.replace(" ", "").partition("->")
    texts = inputs.split(",")
    if len(texts) != len(shapes):
        raise fail(f"{len(texts)} operands are named, {len(shapes)} are given")
    for text in (*texts, result):
        letters = text.replace("...", "", 1)
        if not (letters.isalpha() and letters.isascii()) and letters:
            raise fail(f"{text!r} is not made of letters and one '...'")
    # Axes under an ellipsis have negative numbers, counted from the last: so they line up from the right.
    terms = []
    for text, shape in zip(texts, shapes, strict=True):
        before, dots, after = text.partition("...")
        hidden = len(shape) - len(before) - len(after)
        if hidden < 0 or (hidden and not dots):
            raise fail(f"{text!r} does not name the {len(shape)} axes of shape {shape}")
        terms.append((*map(ord, before), *range(-hidden, 0), *map(ord, after)))
    hidden = max(-min(0, *term, 0) for term in terms)
    ellipsis = tuple(range(-hidden, 0))
    if arrow:
        before, dots, after = result.partition("...")
        output = (*map(ord, before), *(ellipsis if dots else ()), *map(ord, after))
        named = [i for i in output if i > 0]
        if len(set(named)) < len(named):
            raise fail("an index occurs twice in the result")
        if hidden and not dots:
            raise fail("the result must have '...' for the axes that the operands' stands for")
    else:
        letters = inputs.replace(",", "").replace(".", "")
        output = (*ellipsis, *sorted(ord(c) for c in set(letters) if letters.count(c) == 1))
    sizes: dict[int, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        for i, n in zip(term, shape, strict=True):
            known = sizes.setdefault(i, n)
            if known != n:
                if i > 0 or 1 not in (known, n):
                    raise fail(f"index {chr(i) if i > 0 else '...'!r} has size {known} and {n}")
                sizes[i] = max(known, n) if 0 not in (known, n) else 0
    for i in output:
        if i not in sizes:
            raise fail(f"index {chr(i)!r} of the result is in no operand")
    numbers = {i: place for place, i in enumerate(dict.fromkeys(i for term in terms for i in term))}
    kept = [
        [(numbers[i], n) for i, n in zip(term, shape, strict=True) if n == sizes[i]]
        for term, shape in zip(terms, shapes, strict=True)
    ]
    return (
        tuple(tuple(i for i, _ in pairs) for pairs in kept),
        tuple(numbers[i] for i in output),
        tuple(tuple(n for _, n in pairs) for pairs in kept),
    )
