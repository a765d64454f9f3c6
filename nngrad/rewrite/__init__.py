"""Algebra on graphs: common subexpressions merged, exact numbers, products and sums as polynomials, masks outermost.

    numbers.py      exact numbers, and the constants that stand for them
    products.py     products as monomials
    sums.py         sums as linear combinations
    quotients.py    exact quotients by norms
    linear.py       numbers move out of linear functions, movements compose, sums of broadcast values, slices of joined
                    ones
    masks.py        selections of gradients stay outermost
    loops.py        equal carries of loops are merged
    builder.py      the rewriting rules, which can be printed, and switched off one by one; the gradient builder:
                    a hash-consing table, which holds each distinct function once
"""

from . import linear, loops, masks, quotients  # noqa: F401 - their rules
from .builder import RULES, simplify

__all__ = ["RULES", "simplify"]
