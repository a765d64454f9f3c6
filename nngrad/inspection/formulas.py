"""What backward rules compute, in a line each."""

from __future__ import annotations

from backward_registry import registry

from ..graph import Op

_KINDS_OF_RULES = {
    "adjoint pair": "linear: the gradient is that by the transpose",
    "bilinear": "bilinear: the gradient takes the place of what it was derived by",
    "multilinear": "multilinear: the gradient takes the place of what it was derived by",
    "non-differentiable": "the gradient is zero",
}
"""What is said of rules that are not written out."""


def formula_of(op: Op) -> str:
    """What the backward rule of an op computes, in a line: the beginning of the rule's docstring. Empty where there is
    no rule, or it says nothing."""
    rule = registry.find(op)
    if rule is None:
        return ""
    text = (rule.function.__doc__ or "").strip().partition("\n\n")[0]
    return " ".join(text.split()) or _KINDS_OF_RULES.get(rule.kind, "")
