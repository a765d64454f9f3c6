"""Algebra on graphs: each distinct expression once, numbers exact, products and sums as polynomials, masks outermost.

    rules.py        the list of rewriting rules, which may be printed, and switched off one by one
    numbers.py      exact numbers, and the constants that stand for them
    products.py     products as monomials
    sums.py         sums as linear combinations
    linear.py       numbers move out of linear functions, movements compose, sums of what is repeated, slices of what is
                    joined
    masks.py        selections of gradients stay outermost
    loops.py        equal carries of loops are one
    builder.py      what gradients are built by: a hash-consing table, in which each distinct function is once
"""

from . import linear, loops, masks  # noqa: F401 - their rules
from .builder import simplify
from .rules import RULES, show_rewrites

__all__ = ["RULES", "show_rewrites", "simplify"]
