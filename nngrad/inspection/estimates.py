"""Warn where an estimate of a derivative, such as that of rounding, cancels a derivative.

`F.round` and the like pass gradients as if they were not there, as in nnabla. So `d - L * F.round(d / L)`, the minimum
image of a distance d in a periodic box, has the gradient 0, where the derivative is 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import jax
import numpy as np
from jax.export import is_symbolic_dim

from ..extend import Function, Variable, engine, functions_of, provide, summands, warn_user, x64_if

Step = tuple[Function, int]
"""A function that is linear in one input, apart from an offset, with the others held fixed; and that input's index."""
Steps = tuple[Step, Any] | None
"""A step, and the others."""

MOST_KNOWN = 64
"""Up to how many elements the values of what is fixed are taken into account."""
MOST_DRAWN = 2**22
"""Up to how many elements linear functions are compared at random arrays."""


def warn_of_cancelled(
    outputs: Sequence[Variable], path: Sequence[Function], active: set[int], estimates: Sequence[Function]
) -> None:
    """Warn about the first of some functions f on the path of a gradient, which pass gradients unchanged, that is in
    `x - g(f(h(x)))` with linear g and h whose product is 1, and x on the path.

    Args:
        outputs: The Variables that are differentiated.
        path: The functions on some path from the inputs to them.
        active: The ids of the Variables on some path.
        estimates: The functions f.
    """
    readers: dict[int, list[Step]] = {id(y): [] for y in outputs}
    passing = frozenset(estimates)
    for f in reversed(path):
        if any([id(y) in readers for y in f.outputs]):
            # An estimate that says which inputs it reads, as `straight_through` does, passes gradients to the others.
            first = f.op.reads or 0 if f in passing else 0
            for i, x in enumerate(f.inputs[first:], first):
                readers.setdefault(id(x), []).append((f, i))
    for f in [f for f in estimates if any([id(y) in readers for y in f.outputs])]:
        before = {x: None for x in _before(f.inputs[0]) if id(x) in active}
        pending = [y for y in f.outputs if y.shape == f.inputs[0].shape]
        after: dict[int, Steps] = dict.fromkeys(map(id, pending))
        while pending:
            y = pending.pop()
            for reader, i in readers.get(id(y), ()):
                if _cancels(reader, y, before, after[id(y)]):
                    _warn(f)
                    return
                if _is_step(reader, i) and id(reader.outputs[0]) not in after:
                    after[id(reader.outputs[0])] = (reader, i), after[id(y)]
                    pending.append(reader.outputs[0])


def _before(x: Variable) -> dict[Variable, None]:
    """`x` and the Variables of which it is a linear function, apart from an offset."""
    linear: dict[Variable, None] = {x: None}
    pending = [x]
    while pending:
        y = pending.pop()
        for f, i in [] if y.parent is None else [(y.parent, i) for i in range(len(y.parent.inputs))]:
            if f.inputs[i] not in linear and _is_step(f, i):
                linear[f.inputs[i]] = None
                pending.append(f.inputs[i])
    return linear


def _held(f: Function, i: int) -> Sequence[int] | None:
    """The inputs to hold fixed so that `f` is linear in input `i`, apart from an offset; None if it is not."""
    fixed = f.op.fixed(len(f.inputs))
    if fixed is None:
        return [k for k in range(len(f.inputs)) if k != i] if f.op.linear_in(i) else None
    return None if i in fixed else fixed


def _is_step(f: Function, i: int) -> bool:
    held = _held(f, i)
    if held is None or len(f.outputs) > 1 or not _is_pure(f):
        return False
    most = MOST_KNOWN if f.op.heavy else MOST_DRAWN
    return all([
        _has_at_most(most if k in held else MOST_DRAWN, x) and not (k in held and x is f.inputs[i])
        for k, x in enumerate(f.inputs) if k != i
    ])  # fmt: skip


def _has_at_most(count: int, x: Variable) -> bool:
    return not any(map(is_symbolic_dim, x.shape)) and x.size <= count


def _is_pure(f: Function) -> bool:
    """True if its values can be computed here."""
    return f.op.is_own and f.op.exchanges is None and (f.op.elementwise or f.op.axes is not None)


def _cancels(f: Function, y: Variable, before: dict[Variable, None], after: Steps) -> bool:
    """True if `f` subtracts `y`, which the steps `after` make of an estimate, from what equals `y` without the
    estimate, apart from offsets."""
    operands, _ = summands(f.op, f.inputs, f.arguments) or ((), 0)
    factor = float(sum([number for x, number in operands if x is y]))
    for x, number in operands:
        behind = {} if number <= 0 or x is y else _before(x)
        source = next((z for z in behind if z in before and _has_at_most(MOST_DRAWN, z)), None)
        if source is not None:
            through = [*_between(source, before), *reversed([*_each(after)])]
            images = _images(source, _between(source, behind), through)
            if images is not None:
                a, b = float(number) * images[0], factor * images[1]
                error = math.sqrt(np.finfo(x.dtype).eps) * np.max(np.abs(a), initial=0)
                return bool(error > 0 and np.all(np.abs(a + b) <= error))
    return False


def _each(steps: Steps) -> Iterator[Step]:
    while steps is not None:
        step, steps = steps
        yield step


def _between(x: Variable, region: dict[Variable, None]) -> list[Step]:
    """The steps on all ways from `x` to the first of what `_before` found, from `x` on: a sum may come to it twice."""
    reached, steps = {x}, []
    for f in functions_of(list(region)[:1], lambda y: y is not x and y in region):
        read = [(f, i) for i, z in enumerate(f.inputs) if z in reached and _is_step(f, i)]
        reached |= {f.outputs[0] for f, _ in read}
        steps += read
    return steps


def _images(x: Variable, *ways: Sequence[Step]) -> list[Any] | None:
    """What each way makes of a random array for `x`; None if something that they read is unknown."""
    drawn = np.random.default_rng(0)
    with jax.ensure_compile_time_eval(), x64_if(True):
        known = _values([f.inputs[k] for f, i in chain(*ways) for k in _held(f, i) or ()], drawn)
        if known is None:
            return None
        start, images = drawn.standard_normal(x.shape).astype(x.dtype), []
        for way in ways:
            last, image = x, {x: start}
            for f, i in way:
                of, held = f.op.bind(f.arguments), _held(f, i) or ()
                # Of what `f` is jointly linear in, the others are 0.
                xs = [known[id(z)] if k in held else np.zeros(z.shape, z.dtype) for k, z in enumerate(f.inputs)]
                passed = image.get(f.inputs[i], image[last])  # an estimate passes on what comes to it
                y = of(*xs[:i], passed, *xs[i + 1 :]) - (of(*xs) if f.op.offset else 0)
                last = f.outputs[0]
                image[last] = image[last] + y if last in image else y
            images.append(np.asarray(image[last], np.float64))
    return images


def _values(xs: Iterable[Variable], drawn: np.random.Generator) -> dict[int, Any] | None:
    """By id, values for Variables: those that small leaves hold, what follows from them, and otherwise random ones;
    None if there would be a random one that is not floating."""
    xs = list(xs)
    functions = functions_of(xs, lambda y: y.parent is None or (_has_at_most(MOST_KNOWN, y) and _is_pure(y.parent)))
    known: dict[int, Any] = {}
    computed = {id(y) for f in functions for y in f.outputs}
    for x in [x for x in chain(*[f.inputs for f in functions], xs) if id(x) not in computed]:
        array = x.cell.held.array if x.parent is None and _has_at_most(MOST_KNOWN, x) else None
        floating = x.spec.differentiable
        if array is not None and not isinstance(array, jax.core.Tracer) and (np.any(array) or not floating):
            known[id(x)] = np.asarray(array)
        elif floating and _has_at_most(MOST_DRAWN, x):
            known.setdefault(id(x), drawn.standard_normal(x.shape).astype(x.dtype))
        else:
            return None
    for f in functions:
        y = f.op.bind(f.arguments)(*[known[id(x)] for x in f.inputs])
        known |= {id(z): value for z, value in zip(f.outputs, y if f.op.multiple_results else [y], strict=True)}
    return known


def _warn(f: Function) -> None:
    name, where = f.op.name, f" at {f.location}" if hasattr(f, "location") else ""
    warn_user(
        f"grad: x - c * F.{name}(x / c){where} has the gradient 0, since gradients pass F.{name} as if it were not "
        f"there. If you want the derivative, 1, write F.unlink(F.{name}(...))", RuntimeWarning,
    )  # fmt: skip


provide(engine, {"warn_of_cancelled": warn_of_cancelled})
