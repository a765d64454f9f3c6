"""Algebra on graphs: each distinct expression once, numbers exact, products and sums as polynomials, masks outermost.

    rules.py        the list of rewriting rules, which may be printed, and switched off one by one
    hash_consing.py the hash-consing table: the functions that gradients ask for, each distinct one once
    numbers.py      exact numbers, and the constants that stand for them
    products.py     products as monomials
    sums.py         sums as linear combinations
    linear.py       numbers move out of linear functions, movements compose, sums of what is repeated
    masks.py        selections of gradients stay outermost
    builder.py      what gradients are built by
"""

from .builder import simplify
from .rules import RULES, show_rewrites

__all__ = ["RULES", "show_rewrites", "simplify"]
