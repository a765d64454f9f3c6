"""Higher-order derivatives, and mixed partial derivatives."""

from __future__ import annotations

from collections.abc import Sequence

import nngrad.functions as F

from ..autodiff.carried import followed_axes
from ..autodiff.grad import grad, own_leaves
from ..autodiff.request import differentiable
from ..graph import Variable, contained, functions_of, path_between
from ..graph.arguments import checked_count
from ..graph.value import together
from ..rewrite.builder import emitting
from .directions import independent_rows
from .parts import built, one_floating, pushed


def derivatives(y: Variable, wanted: Sequence[Variable | Sequence[Variable]]) -> list[Variable]:
    """Partial derivatives of several orders, with common ones computed once.

        u, = ...;  u_t, u_x, u_xx, u_xt = nn.derivatives(u, [(t,), (x,), (x, x), (x, t)])

    Each derivative is the gradient of the sum of the previous one. So it is the partial derivative if each element of y
    depends on one element of every variable, as of coordinates `(B,)` or `(B, 1)` of B points.

    A y with more elements than a variable has several values at each point: components of a field, `(B, m)`, or the
    functions that an operator network learns, `(functions, B)`. Then each value is differentiated, in forward mode
    along all points at once. Computations that depend on the points alone, such as a DeepONet's trunk, are thus
    differentiated once for all functions (the aim of zero coordinate shift: Leng et al. 2023, arXiv 2311.00860).

    Args:
        y: Variable to differentiate.
        wanted: For each derivative, the Variables to differentiate by, in turn. (x, t) and (t, x) are the same partial
            derivative, and are built once if rows can be shown to be independent.

    Returns:
        One Variable for each of `wanted`, in the shape of its variables, which must be the same within an entry; in the
        shape of y if y has more elements than some variable.

    Raises:
        TypeError: Something is not a Variable, or not of a floating dtype.
        ValueError: An entry is empty, or its variables differ in shape. For a larger y: it cannot be shown that each
            element of y depends on one element of each variable.
        MissingRule, NoForwardMode: An op on the path has no backward rule; for a larger y, none for forward mode.
    """
    y = one_floating(y, "y")
    if not isinstance(wanted, list | tuple):
        raise TypeError(f"wanted: expected a list of tuples of Variables, got {type(wanted).__name__}")
    entries = [tuple(differentiable(entry, f"wanted[{i}]")) for i, entry in enumerate(wanted)]
    for i, entry in enumerate(entries):
        if not entry:
            raise ValueError(f"wanted[{i}] is empty; expected the Variables to differentiate by")
        if len({x.shape for x in entry}) > 1 and not any([x.size < y.size for x in entry]):
            raise ValueError(f"wanted[{i}]: Variables must have the same shape, got {[x.shape for x in entry]}")
    place = {x: i for i, x in enumerate(dict.fromkeys(x for entry in entries for x in entry))}
    larger = any([x.size < y.size for x in place])
    for x in place if larger else ():
        _check_one_element(y, x)
    if larger or all([x.size == (x.shape[0] if x.ndim else 1) and independent_rows(y, x) for x in place]):
        entries = [tuple(sorted(entry, key=place.__getitem__)) for entry in entries]
    return _of_each_element(y, entries) if larger else _partials(y, entries)


@contained
def nth_derivative(y: Variable, x: Variable, n: int) -> list[Variable]:
    """The derivatives of `y` with respect to `x` of orders 1 to n, each built on the ones before it.

    The k-th is the gradient of the sum of the (k-1)-th. So if each element of y depends on one element of x, as in a
    network evaluated at points `(B, 1)`, it is d^k y / dx^k at every point; the number of matrix products in the graph
    of all n orders then grows linearly with n.

    Args:
        y: Variable to differentiate; a first derivative sums over the elements of y that depend on one element of x.
        x: The variable.
        n: The highest order, at least 1.

    Returns:
        n Variables of the shape and dtype of x.

    Raises:
        TypeError: Something is not a Variable, or not of a floating dtype; n is not an int.
        ValueError: n is less than 1.
        MissingRule: An op on the path has no backward rule.
    """
    y, x, n = one_floating(y, "y"), one_floating(x, "x"), checked_count(n, "n")
    results, first = [], y
    with emitting(functions_of([y]), 1):  # so that all orders share common subexpressions
        for _ in range(n):
            (y,) = grad(y, x)
            results.append(y)
    together(results, lambda: nth_derivative(first, x, n))
    return results


def _check_one_element(y: Variable, x: Variable) -> None:
    """Raise unless each element of `y` can be shown to depend on one element of `x`."""
    axes = tuple([a for a, n in enumerate(x.shape) if n != 1])
    for leaf in own_leaves([y], [x])[0]:
        path, active, _ = path_between([y], [leaf])
        if axes and id(y) in active and followed_axes(path, leaf, axes).get(id(y)) is None:
            raise ValueError(
                f"y of shape {y.shape} has several values for each element of a variable of shape {x.shape}, and a "
                "value may depend on several elements. Use nn.grad for the gradient of the sum, nn.jacobian with "
                "batched=False for all derivatives, or nn.jvp along ones if each value depends on one element"
            )


def _of_each_element(y: Variable, entries: list[tuple[Variable, ...]]) -> list[Variable]:
    """The derivatives of each element, in the shape of `y`, along all elements of a variable at once."""

    def build() -> list[Variable]:
        known: dict[tuple[Variable, ...], Variable] = {(): y}
        for entry in entries:
            for order, x in enumerate(entry):
                if entry[: order + 1] not in known:
                    ones = F.constant(val=1, shape=x.shape, dtype=x.dtype)
                    (known[entry[: order + 1]],) = pushed([known[entry[:order]]], [x], [ones])
        return [known[entry] for entry in distinct]

    distinct = list(dict.fromkeys(entries))
    values = dict(zip(distinct, built([y, *[x for entry in distinct for x in entry]], build), strict=True))
    return [values[entry] for entry in entries]


def _partials(y: Variable, entries: list[tuple[Variable, ...]]) -> list[Variable]:
    """The derivatives, from the lowest order up; those that differ in the last variable alone share a walk."""
    known: dict[tuple[Variable, ...], Variable] = {(): y}
    highest = max([len(entry) for entry in entries], default=0)
    for order in range(highest):
        nexts: dict[tuple[Variable, ...], dict[Variable, None]] = {}
        for entry in entries:
            if len(entry) > order:
                nexts.setdefault(entry[:order], {})[entry[order]] = None
        for prefix, xs in nexts.items():
            # One reverse pass gives the first derivatives by all variables; each base of higher ones has its own.
            gradients = grad(known[prefix], list(xs)) if highest == 1 else [grad(known[prefix], x)[0] for x in xs]
            known.update({(*prefix, x): gx for x, gx in zip(xs, gradients, strict=True)})
    results = [known[entry] for entry in entries]
    together(results, lambda: _partials(y, entries))
    return results
