"""Laplacians of what Laplacians are in, without differentiating these again."""

from __future__ import annotations

import nngrad.functions as F

from ..autodiff.binding import own_leaves
from ..autodiff.forward_mode import Pushforward
from ..autodiff.request import derivation_of
from ..autodiff.symmetry import NotApplicable, obstacle
from ..graph import Variable, functions_of, path_between
from .bilaplacian import bilaplacian_of, is_linear
from .directions import over_directions
from .parts import second


def laplacian_of_laplacians(y: Variable, x: Variable, lead: int) -> Variable:
    """Returns the Laplacian of y = r(x) + L(w), with a linear function L of some w that are Laplacians by x: that of r,
    and L of the bilaplacians.

    Args:
        y: What is differentiated.
        x: By what.
        lead: Number of leading axes of x that have no directions of their own.

    Raises:
        NotApplicable: `y` is not of this form, or it would be no better so.
        NoForwardMode: A rule on the way is of no use forward.
    """
    sources: dict[int, tuple[Variable, Variable]] = {}

    def is_other(w: Variable) -> bool:
        derived_by = derivation_of(w)
        source = None if derived_by is None else derived_by.laplacian
        if source is None or source[1] is not x or source[2] != lead or w._need_grad is False:
            return True
        sources[id(w)] = w, source[0]
        return False

    functions_of([y], through=is_other)
    stop_ids = frozenset(sources)
    inner = [w for w, _ in sources.values()]
    path, reached, _ = path_between([y], inner, stop_ids=stop_ids)
    if id(y) not in reached:
        raise NotApplicable("there is no Laplacian in it")
    (inputs,) = own_leaves([y], [x])
    _, beside, _ = path_between([y], inputs, stop_ids=stop_ids)
    active = reached | beside
    for f in path:
        if not is_linear(f, [i for i, v in enumerate(f.inputs) if id(v) in active]):
            raise NotApplicable("it is not linear in the Laplacians in it")
    reason = obstacle(path)
    if reason:
        raise NotApplicable(reason)
    moved = [bilaplacian_of(u, x, lead) for _, u in sources.values()]
    parts = [moved[0]] if y is inner[0] else Pushforward()([y], inner, moved)
    if id(y) in beside:
        parts.append(over_directions(lambda t: second(y, x, t, stop_ids), x, lead, collapse=True))
    result: Variable = F.add_n(*parts) if len(parts) > 1 else parts[0]
    return result
