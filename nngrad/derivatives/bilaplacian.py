"""The bilaplacian, by Taylor mode collapsed at every order, not just the highest.

Let v be a Variable that depends on x, with the derivatives v_i along the directions e_1, ..., e_d. A forward pass
carries for each v

    v_i,   v_ij for i <= j,   c_i = sum_j v_ijj,   q = sum_ij v_iijj

that is 1 + d (d + 1) / 2 + 2 d values beside v, each of which passes through every matrix product. Nothing else is
needed: by the chain rule those of y = f(v) are

    y_i  = f'[v_i]
    y_ij = f'[v_ij] + f''[v_i, v_j]
    c_i  = f'[c_i] + f''[v_i, l] + 2 sum_j f''[v_j, v_ij] + sum_j f'''[v_i, v_j, v_j]
    q    = f'[q] + 4 sum_i f''[v_i, c_i] + 2 sum_ij f''[v_ij, v_ij] + f''[l, l]
           + 4 sum_ij f'''[v_i, v_j, v_ij] + 2 sum_i f'''[v_i, v_i, l] + sum_ij f''''[v_i, v_i, v_j, v_j]

with l = sum_i v_ii, where f'[a], f''[a, b], ... are the derivatives of f at v along a, b, ...: i, i, j, j are split
into groups in all ways, and each sum is taken as early as possible. The Laplacian of a Laplacian carries (d + 2)^2
values. Fourth derivatives along d^2 directions that combine to the bilaplacian (Griewank, Utke and Walther 2000,
"Evaluating higher derivative tensors by forward propagation of univariate Taylor series"), with only the highest summed
(Dangel et al. 2025, "Collapsing Taylor Mode Automatic Differentiation"), carry 2 + 3 d^2.

Each value is a Variable of its own, so all but the matrix products are elementwise, and compilers fuse them into few
loops. Their number grows with d^2, so this is for few dimensions: see `carries_products` and the limits below.
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
from ..graph import Function, NdArray, RuleCall, Variable, apply, contained, create, path_between, switched
from ..graph.block import bodies_in
from ..graph.function import next_serial
from ..graph.options import Builder
from ..graph.thresholds import FEW_VALUES
from ..graph.variable import leaf_of
from ..rewrite.builder import emitting
from ..rewrite.numbers import is_zero
from .directions import several_over_directions

Place = tuple[int, ...]
"""The place of a value in a jet: (i,) is v_i, (i, j) with i <= j is v_ij, (i, -1) is c_i, and (-1, -1) is q."""
Jet = dict[Place, Variable]
"""The nonzero values carried for one Variable, by place."""
Moved = tuple[Variable | None, ...]
"""For each input of a function that moves, its derivative along a direction; None for zero."""

FOURTH: Place = (-1, -1)


def bilaplacian_of(y: Variable, x: Variable, lead: int) -> Variable:
    """Returns the sum of the fourth derivatives d^4 y / (dx_i^2 dx_j^2). All rows along the `lead` first axes of x move
    in the same direction.

    Raises:
        NotApplicable: Another way is better, or the only one.
        NoForwardMode: A rule on the path cannot be used in forward mode.
    """
    count = math.prod(x.shape[lead:])
    (inputs,) = own_leaves([y], [x])
    path, active, known = path_between([y], inputs)
    values, linear = values_carried(count), linear_part(path, active, inputs)
    many = values > FEW_VALUES
    if count == 0 or (many and values * len(path) > _MOST_VALUES):
        raise NotApplicable("the graph would be large")
    if many and not carries_products(path, active, linear):
        raise NotApplicable("it would save no matrix product")
    if any([bodies_in(f.arguments) for f in path]):
        raise NotApplicable("each direction would need its own loop")
    reason = obstacle(path)
    if reason:
        raise NotApplicable(reason)
    with emitting(known, order_of(path)) as builder:
        walk = _Walk(builder, count, path, active, y)
        since = next_serial()
        walk.begin(inputs, x, lead, linear)
        for f in path:
            if not all([id(v) in linear for v in f.outputs]):
                walk.emit(f)
                if many and next_serial() - since > _MOST_FUNCTIONS:
                    raise NotApplicable("the graph is large")
        found = walk.jets.get(id(y), {}).get(FOURTH)
        return zeros_like(y) if found is None else found


def values_carried(count: int) -> int:
    """Returns how many values are carried for each Variable in `count` dimensions, counting the Variable itself.

    Where these are too many, Laplacians are nested: in d dimensions this carries (d + 2)^2 values, where Taylor mode
    that is collapsed at the highest order alone carries 2 + 3 d^2.
    """
    return 2 + 2 * count + count * (count + 1) // 2


_MOST_VALUES, _MOST_FUNCTIONS = 1000, 5000
"""Limits on the values carried in all, and on the functions that compute them, where each Variable has more than
`FEW_VALUES`. Compiling takes some ten milliseconds per matrix product, and the chain rule of a function that is neither
linear nor elementwise, such as softmax, has about 5 d^2 terms of several functions each."""


def linear_part(path: Sequence[Function], active: set[int], inputs: Sequence[Variable]) -> dict[int, Variable]:
    """Returns the Variables that depend linearly on `inputs`, by id."""
    found = {id(x): x for x in inputs}
    for f in path:
        live = [i for i, x in enumerate(f.inputs) if id(x) in active]
        if is_linear(f, live) and all([id(f.inputs[i]) in found for i in live]):
            found.update({id(v): v for v in f.outputs})
    return found


def carries_products(path: Sequence[Function], active: set[int], linear: Mapping[int, Variable]) -> bool:
    """Whether a matrix product lies between two nonlinear functions, so that all carried values pass through it.
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
    """Whether `f` is jointly affine in its `live` inputs."""
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
        wanted = [v for v in read.values() if id(v) in linear]
        if not wanted:
            return

        def along(t: Variable) -> list[Variable]:
            return self.push(wanted, inputs, [t] * len(inputs))

        firsts = several_over_directions(along, x, lead, None)
        for v, each in zip(wanted, firsts, strict=True):
            self.jets[id(v)] = {(i,): each[i] for i in self.directions}

    def emit(self, f: Function) -> None:
        """Enter the jets of the outputs of `f`."""
        live = [i for i, x in enumerate(f.inputs) if self.jets.get(id(x))]
        if not live or f.op.rules[self.push.reverse.place].kind == "non-differentiable":
            return
        call, self.builder.call = self.builder.call, RuleCall(f, ())
        if is_linear(f, live):
            jets = self._linear(f)
        elif f.op.diagonal and len(live) == 1:
            jets = [self._elementwise(f, live[0])]
        else:
            jets = self._general(f, live)
        self.builder.call = call
        for v, jet in zip(f.outputs, jets, strict=True):
            if id(v) in self.active and v.spec.differentiable:
                self.jets[id(v)] = {
                    place: value if value.spec is v.spec else stretched(value, v.spec) for place, value in jet.items()
                }

    def _linear(self, f: Function) -> list[Jet]:
        """The jets of the outputs of a linear function, which maps all derivatives alike."""
        jets: list[Jet] = [{} for _ in f.specs]
        given = [self.jets.get(id(x), {}) for x in f.inputs]
        for place in dict.fromkeys([place for jet in given for place in jet]):
            ts = [jet.get(place) for jet in given]
            live = [i for i, t in enumerate(ts) if t is not None]
            moved = self.push.pushed(self.builder, f, ts, live, [self.y], self.path)
            for jet, value in zip(jets, moved, strict=True):
                if value is not None and not is_zero(value):
                    jet[place] = value
        return jets

    def _elementwise(self, f: Function, index: int) -> Jet:
        """As `_general`, for an elementwise function: derivatives are products, so their other factors are summed."""
        slopes = _Forms(f, [index]).slopes()
        given, n = self.jets[id(f.inputs[index])], self.directions

        def h(i: int, j: int) -> Variable | None:
            return given.get((min(i, j), max(i, j)))

        v = [given.get((i,)) for i in n]
        c = [given.get((i, -1)) for i in n]
        laplacian = sum_of_products([(1, h(i, i)) for i in n])
        length = sum_of_products([(1, product_of(v[i], v[i])) for i in n])
        turned = [sum_of_products([(1, product_of(v[j], h(i, j))) for j in n]) for i in n]
        jet: dict[Place, Variable | None] = {}
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
            (1, product_of(slopes[0], given.get(FOURTH))), (1, product_of(slopes[1], second)),
            (1, product_of(slopes[2], third)), (1, product_of(slopes[3], length, length)),
        ])
        return {place: value for place, value in jet.items() if value is not None}

    def _general(self, f: Function, live: list[int]) -> list[Jet]:
        """The chain rule at the top of this file, for any function."""
        forms, n = _Forms(f, live), self.directions
        given = [self.jets[id(f.inputs[i])] for i in live]

        def at(*place: int) -> Moved:
            return tuple([jet.get(place) for jet in given])

        def h(i: int, j: int) -> Moved:
            return at(min(i, j), max(i, j))

        laplacian = tuple([sum_of_products([(1, jet.get((i, i))) for i in n]) for jet in given])
        results: list[tuple[Place, list[Variable | None]]] = []

        def enter(place: Place, parts: Sequence[tuple[int, Sequence[Moved]]]) -> None:
            moved = [(weight, forms(*directions)) for weight, directions in parts]
            sums = [sum_of_products([(weight, each[k]) for weight, each in moved]) for k in range(len(f.specs))]
            results.append((place, sums))

        for i in n:
            enter((i,), [(1, [at(i)])])
            enter((i, -1), [
                (1, [at(i, -1)]), (1, [at(i), laplacian]), *[(2, [at(j), h(i, j)]) for j in n],
                *[(1, [at(i), at(j), at(j)]) for j in n],
            ])
        for i, j in self.pairs:
            enter((i, j), [(1, [h(i, j)]), (1, [at(i), at(j)])])
        enter(FOURTH, [
            (1, [at(*FOURTH)]), *[(4, [at(i), at(i, -1)]) for i in n], (1, [laplacian, laplacian]),
            *[(2 if i == j else 4, [h(i, j), h(i, j)]) for i, j in self.pairs],
            *[(4 if i == j else 8, [at(i), at(j), h(i, j)]) for i, j in self.pairs],
            *[(2, [at(i), at(i), laplacian]) for i in n],
            *[(1 if i == j else 2, [at(i), at(i), at(j), at(j)]) for i, j in self.pairs],
        ])
        jets: list[Jet] = [{} for _ in f.specs]
        for place, values in results:
            for jet, value in zip(jets, values, strict=True):
                if value is not None:
                    jet[place] = value
        return jets


class _Forms:
    """The derivatives of one function along directions, each built once on placeholders and reused.

    Called with k directions, it returns the derivative of order k along them for each output; None for zero.
    """

    def __init__(self, f: Function, live: list[int]) -> None:
        self._f, self._live = f, live
        inputs = list(f.inputs)
        for i in live:
            inputs[i] = leaf_of(NdArray.of_spec(inputs[i].spec))
        self._points = [inputs[i] for i in live]
        single = create(f.op, tuple(inputs), f.arguments)
        values: list[Variable] = list(single) if f.op.multiple_results else [single]
        self._given = dict(zip([*self._points, *values], [*[f.inputs[i] for i in live], *f.outputs], strict=True))
        self._directions: list[list[Variable]] = []
        self._orders: list[list[Variable]] = [values]
        self._paths: list[list[Function]] = [[]]

    def __call__(self, *directions: Moved) -> list[Variable | None]:
        if any([all([t is None for t in each]) for each in directions]):
            return [None] * len(self._f.specs)
        while len(self._orders) <= len(directions):
            self._differentiate([leaf_of(NdArray.of_spec(x.spec)) for x in self._points])
        given = dict(self._given)
        for leaves, each in zip(self._directions, directions, strict=False):
            for leaf, t in zip(leaves, each, strict=True):
                given[leaf] = zeros_like(leaf) if t is None else t
        return [None if is_zero(t) else t for t in self._applied(len(directions), given)]

    def slopes(self) -> list[Variable | None]:
        """Returns the derivatives of orders 1 to 4 of a diagonal function with respect to its one moving input."""
        (x,) = self._points
        while len(self._orders) <= _ORDERS:
            self._differentiate([F.constant(val=1, shape=x.shape, dtype=x.dtype)])
        found = [self._applied(order, dict(self._given))[0] for order in range(1, _ORDERS + 1)]
        return [None if is_zero(t) else t for t in found]

    @contained
    def _differentiate(self, along: list[Variable]) -> None:
        """Add the next order, by differentiating the highest one along these leaves."""
        with switched(builder=None, precision=None):
            results = Pushforward()(self._orders[-1], self._points, along)
        self._directions.append(along)
        self._orders.append(results)
        sources = [*self._points, *[t for leaves in self._directions for t in leaves]]
        self._paths.append(path_between(results, [*sources, *self._orders[0]], of_values=True)[0])

    def _applied(self, order: int, given: dict[Variable, Variable]) -> list[Variable]:
        """Returns the derivatives of this order, with Variables replaced as in `given`."""
        for f in self._paths[order]:
            if all([y in given for y in f.outputs]):
                continue
            result = apply(f.op, tuple([given.get(x, x) for x in f.inputs]), f.arguments)
            given.update(zip(f.outputs, result if f.op.multiple_results else (result,), strict=True))
        return [given.get(y, y) for y in self._orders[order]]


_ORDERS = 4


def product_of(*factors: Variable | None) -> Variable | None:
    """Returns the product; None where a factor is zero."""
    given = [x for x in factors if x is not None]
    if len(given) < len(factors):
        return None
    y = given[0]
    for x in given[1:]:
        y = y * x
    return y


def sum_of_products(parts: Sequence[tuple[int, Variable | None]]) -> Variable | None:
    """Returns the weighted sum; None if all terms are zero."""
    given = [x if weight == 1 else weight * x for weight, x in parts if x is not None and not is_zero(x)]
    if not given:
        return None
    y: Variable = given[0] if len(given) == 1 else F.add_n(*given)
    return y
