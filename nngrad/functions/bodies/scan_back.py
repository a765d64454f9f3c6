"""The gradient of a loop: a reversed loop over the gradient of its body.

This module first determines which carries move, by following dependences through the body up to a fixed point. The
body's gradient reads stacks that the forward loop returns, and nothing else is stacked. A weight's gradient, a sum of
products over the steps, is one product of stacks after the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ...graph import Function, Op, Variable, apply, create, functions_of
from ...graph.block import Block, BlockGradient, new_leaves
from ...graph.body_op import Gradients, Numbers
from ...graph.closing import close, derived_once
from ..arithmetic import add2
from ..array import zeros_like
from ..contractions import contraction
from .carries import is_zeros, zeros_of
from .loop import Loop


def weighing_carries(loop: Loop, moving: Numbers, finals: Iterable[int], stacks: Iterable[int]) -> Numbers:
    """The positions of the moving carries that affect the final carries `finals`, or stacks of the values `stacks`:
    those that a gradient reaches."""
    body = loop.body
    reach = {i - loop.fixed: body.reach([i]) for i in moving if loop.fixed <= i < loop.first_slice}
    weighing = {j for j in reach if j in finals or not reach[j].isdisjoint(stacks)}
    while True:
        more = {j for j in reach if j not in weighing and not reach[j].isdisjoint([body.outputs[i] for i in weighing])}
        if not more:
            return tuple(sorted(weighing))
        weighing |= more


class Factor(NamedTuple):
    """A factor of a product that is computed after the backward loop."""

    kind: str
    """'residual', 'seed' or 'stack': a residual, a seed, or a stack that the backward loop returns."""
    place: int
    """Its index among those of its kind."""
    changes: bool
    """True if it has a value for each step, and so a step axis."""


class Product(NamedTuple):
    """A sum over steps of contractions, computed as one contraction with an additional index."""

    factors: tuple[Factor, ...]
    terms: tuple[Numbers, ...]
    output: Numbers
    matmul_precision: str | None


class StepBack(NamedTuple):
    """The step of the backward loop: a gradient of a body, with its inputs in a loop's order."""

    body: Block
    fixed: Numbers
    """The residuals that are the same at each step."""
    sums: Numbers
    """The outputs of the gradient that are summed over the steps."""
    stacked: Numbers
    """The residuals of which each step gets a slice."""
    arriving: Numbers
    """The seeds of which each step gets a slice."""
    after: Numbers
    """The residuals that are carried: new values of carries, which the backward loop has from its step before."""
    products: tuple[tuple[int, tuple[Product, ...], tuple[Op, tuple[Any, ...]] | None], ...]
    """The outputs of the gradient that are computed as products after the loop, and the op that combines several
    products."""


@derived_once
def step_back(
    gradient: Block, residuals: Numbers, carried: Numbers, summed: Numbers, stacked: Numbers, fixed: int,
    before: tuple[tuple[int, int], ...], anew: bool,
) -> StepBack:  # fmt: skip
    """The step of the backward loop, from the gradient of a body as a function of residuals and seeds.

    The first seeds are those of carries. For each, `carried` is the output of `gradient` that is its gradient; -1 for
    none. The outputs `summed` are summed over the steps, and the outputs `stacked` are stacked. `before` pairs each
    residual that is the new value of a carry with the residual that is its value before the step. With `anew`, nothing
    is stacked for products: sums of products are accumulated step by step, as one product after the loop needs stacks.
    """
    inputs, _, results = gradient.opened()
    order = max(gradient.orders, default=1)
    seeds = inputs[len(residuals) :]
    after = [results[i] if i >= 0 else zeros_of(x.spec, order) for i, x in zip(carried, seeds, strict=False)]
    same = {r for r, number in enumerate(residuals) if 0 <= number < fixed}
    known = {id(x): Factor("residual", r, r not in same) for r, x in enumerate(inputs[: len(residuals)])}
    known |= {id(x): Factor("seed", k, True) for k, x in enumerate(seeds) if k >= len(carried)}
    stacks = [results[i] for i in stacked]
    products = []
    sums = []
    for i in summed:
        parts = None if anew else _contractions_of(results[i])
        if parts is None:
            sums.append(i)
            continue
        contractions, together = parts
        for f in contractions:
            for x in f.inputs:
                if id(x) not in known:
                    known[id(x)] = Factor("stack", len(stacks), True)
                    stacks.append(x)
        combined = None if together is None else (together.op, together.arguments)
        products.append((i, tuple([_over_steps(f, known) for f in contractions]), combined))
    totals = new_leaves([results[i].spec for i in sums])
    after += [create(add2, (x, results[i]), (), order=order) for x, i in zip(totals, sums, strict=True)]
    read = {id(x) for f in functions_of([*after, *stacks]) for x in f.inputs} | {id(y) for y in (*after, *stacks)}
    new = {r: inputs[old] for r, old in before if id(inputs[r]) in read}
    outputs = [*after, *new.values(), *stacks]
    read |= {id(x) for x in new.values()}
    used = [r for r in range(len(residuals)) if id(inputs[r]) in read]
    at_each = tuple([r for r in used if r not in same and r not in new])
    throughout = tuple([r for r in used if r in same])
    arriving = tuple([k for k in range(len(carried), len(seeds)) if id(seeds[k]) in read])
    ordered = [
        *[inputs[r] for r in throughout], *seeds[: len(carried)], *totals,
        *[inputs[r] for r in new], *[inputs[r] for r in at_each], *[seeds[k] for k in arriving],
    ]  # fmt: skip
    return StepBack(close(outputs, ordered), throughout, tuple(sums), at_each, arriving, (*new,), tuple(products))


def _contractions_of(result: Variable) -> tuple[list[Function], Function | None] | None:
    """The contractions of which a gradient is the sum, and the function that adds them; None if it is no such sum."""
    f = result.parent
    if f is None:
        return None
    if _is_contraction(f):
        return [f], None
    added = f.op.linear == "together" and (not f.op.offset or not f.args[f.op.offset])
    parts = [x.parent for x in f.inputs]
    if added and all([part is not None and _is_contraction(part) and part.specs[0] is f.specs[0] for part in parts]):
        return [part for part in parts if part is not None], f
    return None


def _is_contraction(f: Function) -> bool:
    """True if `f` is a contraction in which each index has one size, so that none is broadcast."""
    if f.op.axes is None or f.op.axes.indices is None:
        return False
    terms, _ = f.op.axes.indices(f)
    sizes: dict[int, int] = {}
    pairs = [pair for x, term in zip(f.inputs, terms, strict=True) for pair in zip(term, x.shape, strict=True)]
    return all([sizes.setdefault(i, n) == n for i, n in pairs])


def _over_steps(f: Function, known: Mapping[int, Factor]) -> Product:
    """The contraction `f`, summed over all steps too."""
    assert f.op.axes is not None and f.op.axes.indices is not None
    terms, output = f.op.axes.indices(f)
    step = 1 + max([i for term in terms for i in term], default=0)
    factors = tuple([known[id(x)] for x in f.inputs])
    with_step = [(step, *term) if x.changes else tuple(term) for x, term in zip(factors, terms, strict=True)]
    return Product(factors, tuple(with_step), tuple(output), f.args.get("matmul_precision"))


def loop_gradients(
    op: Op,
    loop: Loop,
    inputs: Sequence[Variable],
    over_steps: Callable[[int], Variable],
    finals: Sequence[Variable],
    arrived: Sequence[tuple[int, Variable]],
    indexes: Numbers,
    last: Sequence[Variable] = (),
) -> Gradients:
    """The gradients of a loop without segments, from the incoming gradients `finals` of its final carries and `arrived`
    of stacks of values. `over_steps` gives the stack of a value of the body; `last` are the final carries."""
    body = loop.body
    moving, reached = loop.carried.moving(indexes)
    stacks = [(number, gy) for number, gy in arrived if number in reached and not is_zeros(gy)]
    numbers = [number for number, _ in stacks]
    weighing = weighing_carries(loop, moving, [j for j in range(loop.carries) if not is_zeros(finals[j])], numbers)
    seeded = (*[body.outputs[j] for j in weighing], *numbers)
    carried = tuple([loop.fixed + j for j in weighing])
    wanted = [i for i in indexes if i < loop.fixed or i >= loop.first_slice]
    gradient, new = _gradient_of_step(loop, seeded, (*carried, *wanted), len(last))
    place = {i: k for k, i in enumerate(gradient.reached)}
    summed = [i for i in wanted if i in place and i < loop.fixed]
    stacked = [i for i in wanted if i in place and i >= loop.first_slice]
    step = step_back(
        gradient.body, gradient.residuals, tuple([place.get(i, -1) for i in carried]),
        tuple([place[i] for i in summed]), tuple([place[i] for i in stacked]), loop.fixed,
        tuple([(r, old) for r, (_, old) in new.items()]), gradient.anew,
    )  # fmt: skip
    residuals = [last[new[r][0]] if r in new else over_steps(n) for r, n in enumerate(gradient.residuals)]
    seeds = [*[finals[j] for j in weighing], *[gy for _, gy in stacks]]
    sums = [gradient.reached[k] for k in step.sums]
    inputs_back = (
        *[residuals[r] for r in step.fixed], *seeds[: len(weighing)], *[zeros_like(inputs[i]) for i in sums],
        *[residuals[r] for r in (*step.after, *step.stacked)], *[seeds[k] for k in step.arriving],
    )  # fmt: skip
    carries = len(weighing) + len(sums) + len(step.after)
    back = Loop(step.body, len(step.fixed), carries, loop.length, not loop.reverse, loop.unroll)
    gxs: Gradients = [None] * len(inputs)
    outputs = apply(op, inputs_back, back) if back.body.outputs else ()
    for i, gx in zip([*carried, *sums, *[-1 for _ in step.after], *stacked], outputs, strict=False):
        if i >= 0:
            gxs[i] = gx
    values = {"residual": residuals, "seed": seeds, "stack": outputs[back.carries :]}
    for k, products, combined in step.products:
        parts = tuple([
            contraction(
                *[values[x.kind][x.place] for x in product.factors], terms=product.terms, output=product.output,
                matmul_precision=product.matmul_precision,
            )
            for product in products
        ])
        gxs[gradient.reached[k]] = parts[0] if combined is None else apply(combined[0], parts, combined[1])
    return gxs


def _gradient_of_step(
    loop: Loop, numbers: Numbers, wanted: Numbers, lasts: int
) -> tuple[BlockGradient, dict[int, tuple[int, int]]]:
    """The gradient of a loop's body. For each residual that is the new value of a carry, and so known from the next
    step, also that carry and the residual with its value before the step. `lasts` of the final carries are known."""
    body, fixed, slices = loop.body, tuple(range(loop.fixed)), tuple(range(loop.first_slice, len(loop.body.inputs)))
    new = {n: j for j, n in reversed([*enumerate(body.outputs[:lasts])]) if n < 0 and body.taken is not None}
    gradient = body.gradient(numbers, wanted, fixed, (*slices, *new))
    if not gradient.anew:
        return (body.gradient(numbers, wanted, fixed, slices) if new else gradient), {}
    places = {n: r for r, n in enumerate(gradient.residuals)}
    return gradient, {
        places[n]: (j, places[loop.fixed + j]) for n, j in new.items() if n in places and loop.fixed + j in places
    }
