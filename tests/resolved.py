"""What an expression such as `nn.Variable.visit` means, as tables of names have it."""

from __future__ import annotations

import pkgutil

_ROOTS = {
    "nn": "nngrad", "nngrad": "nngrad", "F": "nngrad.functions", "PF": "nngrad.parametric_functions",
    "S": "nngrad.solvers", "I": "nngrad.initializer", "C": "nngrad.nnabla.communicators",
}  # fmt: skip
"""What the expressions begin with."""


def resolve(expression: str) -> bool:
    """True for an expression that means something."""
    first, *names = expression.split(".")
    try:
        pkgutil.resolve_name(".".join([_ROOTS[first], *names]))
    except (KeyError, ImportError, AttributeError):
        return False
    return True
