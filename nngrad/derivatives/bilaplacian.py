"""The bilaplacian of networks of linear and elementwise functions, by Taylor mode collapsed at every order.

Let v be a Variable that depends on x, with the derivatives v_i along the directions e_1, ..., e_d. A forward pass
carries for each v

    v_i,   v_ij for i <= j,   c_i = sum_j v_ijj,   q = sum_ij v_iijj

that is 1 + d (d + 1) / 2 + 2 d values beside v, each of which passes through every matrix product. Nothing else is
needed: by the chain rule those of y = f(v), elementwise with the slopes f', f'', ..., are

    y_i  = f' v_i
    y_ij = f' v_ij + f'' v_i v_j
    c_i  = f' c_i + f'' (v_i l + 2 sum_j v_j v_ij) + f''' v_i s
    q    = f' q + f'' (4 sum_i v_i c_i + 2 sum_ij v_ij^2 + l^2) + f''' (4 sum_ij v_i v_j v_ij + 2 s l) + f'''' s^2

with l = sum_i v_ii and s = sum_i v_i^2. The Laplacian of a Laplacian carries (d + 2)^2 values. Fourth derivatives along
d^2 directions that combine to the bilaplacian (Griewank, Utke and Walther 2000, "Evaluating higher derivative tensors
by forward propagation of univariate Taylor series"), with only the highest summed (Dangel et al. 2025, "Collapsing
Taylor Mode Automatic Differentiation"), carry 2 + 3 d^2.

Each value is a Variable of its own, so all but the matrix products are elementwise, and compilers fuse them into few
loops. Their number grows with d^2, so this is for few dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations_with_replacement

import nngrad.functions as F

from ..autodiff.forward_mode import Pushforward, stretched
from ..autodiff.grad import own_leaves
from ..autodiff.symmetry import NotApplicable, obstacle
from ..autodiff.walk import order_of
from ..functions.array import zeros_like
from ..functions.inlining import inlined
from ..graph import Function, RuleCall, Switched, Variable, create, path_between
from ..graph.block import new_leaves
from ..graph.closing import close
from ..graph.options import Builder
from ..rewrite.builder import emitting
from ..rewrite.numbers import is_zero
from .directions import several_over_directions

Index = tuple[int, ...]
"""The index of a value in a jet: (i,) is v_i, (i, j) with i <= j is v_ij, (i, -1) is c_i, and (-1, -1) is q."""
Jet = dict[Index, Variable]
"""The nonzero values carried for one Variable."""

FOURTH: Index = (-1, -1)

_MOST_VALUES = 1000
"""The most values carried in all: compiling takes some ten milliseconds per matrix product."""


def bilaplacian_of(y: Variable, x: Variable, lead: int) -> Variable:
    """The sum of the fourth derivatives d^4 y / (dx_i^2 dx_j^2). All rows along the `lead` first axes of x move in the
    same direction.

    Raises:
        NotApplicable: Another way is better, or the only one.
        NoForwardMode: A rule on the path cannot be used in forward mode.
    """
    count = math.prod(x.shape[lead:])
    (inputs,) = own_leaves([y], [x])
    path, active, known = path_between([y], inputs)
    linear = linear_part(path, active, inputs)
    if count == 0 or values_carried(count) * len(path) > _MOST_VALUES:
        raise NotApplicable("the graph would be large")
    if not carries_products(path, active, linear):
        raise NotApplicable("it would save no matrix product")
    reason = obstacle(path)
    if reason:
        raise NotApplicable(reason)
    with emitting(known, order_of(path)) as builder:
        walk = _Walk(builder, count, path, active, y)
        walk.begin(inputs, x, lead, linear)
        for f in path:
            if not all([id(v) in linear for v in f.outputs]):
                walk.emit(f)
        fourth = walk.jets.get(id(y), {}).get(FOURTH)
        return zeros_like(y) if fourth is None else fourth


def values_carried(count: int) -> int:
    """The number of values for each Variable in `count` dimensions, counting the Variable itself."""
    return 2 + 2 * count + count * (count + 1) // 2


def linear_part(path: Sequence[Function], active: set[int], inputs: Sequence[Variable]) -> dict[int, Variable]:
    """The Variables that depend linearly on `inputs`, by id."""
    linear = {id(x): x for x in inputs}
    for f in path:
        live = [i for i, x in enumerate(f.inputs) if id(x) in active]
        if is_linear(f, live) and all([id(f.inputs[i]) in linear for i in live]):
            linear.update({id(v): v for v in f.outputs})
    return linear


def carries_products(path: Sequence[Function], active: set[int], linear: Mapping[int, Variable]) -> bool:
    """True where a matrix product lies between two nonlinear functions, so that all carried values pass through it.
    Otherwise the Laplacian of a Laplacian does at least as well, with scales and diagonals (`derivatives/along.py`)."""
    bent: set[int] = set()  # the Variables that nonlinear functions depend on
    for f in reversed(path):
        leads = any([id(v) in bent for v in f.outputs])
        if leads and f.op.cost is not None and not all([id(v) in linear for v in f.outputs]):
            return True
        live = [i for i, x in enumerate(f.inputs) if id(x) in active]
        if leads or not is_linear(f, live):
            bent.update([id(f.inputs[i]) for i in live])
    return False


def is_linear(f: Function, live: Sequence[int]) -> bool:
    """True where `f` is jointly affine in its `live` inputs."""
    fixed = f.op.fixed(len(f.inputs))
    return (len(live) == 1 and f.op.linear_in(live[0])) or (fixed is not None and not set(fixed) & set(live))


class _Walk:
    """The values carried through each function in the forward pass."""

    def __init__(self, builder: Builder, count: int, path: list[Function], active: set[int], y: Variable) -> None:
        self.builder, self.path, self.active, self.y = builder, path, active, y
        self.directions = range(count)
        self.pairs = list(combinations_with_replacement(self.directions, 2))
        self.jets: dict[int, Jet] = {}
        self.push = Pushforward()

    def begin(self, inputs: Sequence[Variable], x: Variable, lead: int, linear: dict[int, Variable]) -> None:
        """Enter the first derivatives of Variables that are linear in the inputs and read by nonlinear functions."""
        read = {id(v): v for f in self.path for v in f.inputs if not all([id(z) in linear for z in f.outputs])}
        starts = [v for v in read.values() if id(v) in linear]
        if not starts:
            return

        def along(t: Variable) -> list[Variable]:
            return self.push(starts, inputs, [t] * len(inputs))

        firsts = several_over_directions(along, x, lead, None)
        for v, tangents in zip(starts, firsts, strict=True):
            self.jets[id(v)] = {(i,): tangents[i] for i in self.directions}

    def emit(self, f: Function) -> None:
        """Enter the jets of the outputs of `f`."""
        live = [i for i, x in enumerate(f.inputs) if self.jets.get(id(x))]
        if not live or f.op.rules[self.push.reverse.place].kind == "non-differentiable":
            return
        call, self.builder.call = self.builder.call, RuleCall(f, ())
        if is_linear(f, live):
            jets = self._linear(f)
        elif f.op.diagonal and len(live) == 1:
            jets = [self._elementwise(f, f.inputs[live[0]])]
        else:
            raise NotApplicable(f"{f.op.name} is neither linear nor elementwise")
        self.builder.call = call
        for v, jet in zip(f.outputs, jets, strict=True):
            if id(v) in self.active and v.spec.differentiable:
                self.jets[id(v)] = {
                    index: value if value.spec is v.spec else stretched(value, v.spec) for index, value in jet.items()
                }

    def _linear(self, f: Function) -> list[Jet]:
        """The jets of the outputs of a linear function, which maps all derivatives alike."""
        jets: list[Jet] = [{} for _ in f.specs]
        of_inputs = [self.jets.get(id(x), {}) for x in f.inputs]
        for index in dict.fromkeys([index for jet in of_inputs for index in jet]):
            ts = [jet.get(index) for jet in of_inputs]
            live = [i for i, t in enumerate(ts) if t is not None]
            pushed = self.push.pushed(self.builder, f, ts, live, [self.y], self.path)
            for jet, value in zip(jets, pushed, strict=True):
                if value is not None and not is_zero(value):
                    jet[index] = value
        return jets

    def _elementwise(self, f: Function, x: Variable) -> Jet:
        """The chain rule at the top of this file, for a function of its input `x`."""
        slopes, of_input, n = self._slopes(f, x), self.jets[id(x)], self.directions

        def h(i: int, j: int) -> Variable | None:
            return of_input.get((min(i, j), max(i, j)))

        v = [of_input.get((i,)) for i in n]
        c = [of_input.get((i, -1)) for i in n]
        laplacian = sum_of_products([(1, h(i, i)) for i in n])
        length = sum_of_products([(1, product_of(v[i], v[i])) for i in n])
        turned = [sum_of_products([(1, product_of(v[j], h(i, j))) for j in n]) for i in n]
        jet: dict[Index, Variable | None] = {}
        for i in n:
            jet[i,] = product_of(slopes[0], v[i])
            mixed = sum_of_products([(1, product_of(v[i], laplacian)), (2, turned[i])])
            jet[i, -1] = sum_of_products([
                (1, product_of(slopes[0], c[i])), (1, product_of(slopes[1], mixed)),
                (1, product_of(slopes[2], v[i], length)),
            ])
        for i, j in self.pairs:
            terms = (1, product_of(slopes[0], h(i, j))), (1, product_of(slopes[1], v[i], v[j]))
            jet[i, j] = sum_of_products(terms)
        second = sum_of_products([
            *[(4, product_of(v[i], c[i])) for i in n],
            *[(2 if i == j else 4, product_of(h(i, j), h(i, j))) for i, j in self.pairs],
            (1, product_of(laplacian, laplacian)),
        ])
        fours = [(4, product_of(v[i], turned[i])) for i in n]
        third = sum_of_products([*fours, (2, product_of(length, laplacian))])
        jet[FOURTH] = sum_of_products([
            (1, product_of(slopes[0], of_input.get(FOURTH))), (1, product_of(slopes[1], second)),
            (1, product_of(slopes[2], third)), (1, product_of(slopes[3], length, length)),
        ])
        return {index: value for index, value in jet.items() if value is not None}

    def _slopes(self, f: Function, x: Variable) -> list[Variable | None]:
        """The derivatives of orders 1 to 4 of an elementwise function by its input `x`; None for zero."""
        others = [u for u in f.inputs if u is not x]
        point, *fixed = new_leaves([x.spec, *[u.spec for u in others]])
        leaves = dict(zip([x, *others], [point, *fixed], strict=True))
        with Switched(builder=None, precision=None):  # as of a graph of its own, where rules see the input as a leaf
            y = create(f.op, tuple([leaves[u] for u in f.inputs]), f.arguments)
            ones, slopes = F.constant(val=1, shape=x.shape, dtype=x.dtype), [y]
            for _ in range(4):
                slopes += self.push(slopes[-1:], [point], [ones])
        body = close(slopes[1:], [point, y, *fixed])
        return [None if is_zero(s) else s for s in inlined(body, [x, *f.outputs, *others])]


def product_of(*factors: Variable | None) -> Variable | None:
    """The product; None where a factor is zero."""
    nonzero = [x for x in factors if x is not None]
    if len(nonzero) < len(factors):
        return None
    y = nonzero[0]
    for x in nonzero[1:]:
        y = y * x
    return y


def sum_of_products(products: Sequence[tuple[int, Variable | None]]) -> Variable | None:
    """The weighted sum; None if all terms are zero."""
    terms = [x if weight == 1 else weight * x for weight, x in products if x is not None and not is_zero(x)]
    if not terms:
        return None
    y: Variable = terms[0] if len(terms) == 1 else F.add_n(*terms)
    return y
