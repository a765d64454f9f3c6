"""Algebra on graphs: each distinct expression once, numbers exact, products and sums as polynomials, masks outermost.

    builder.py      makes the functions that gradients ask for, each distinct one once
    numbers.py      exact numbers, and the constants that stand for them
    polynomial.py   products as monomials, sums as linear combinations
    canonical.py    the canonical form of each op
    masks.py        selections of gradients
"""
