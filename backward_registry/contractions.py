"""Backward rules of contractions."""

from __future__ import annotations

import nngrad.functions as F
from nngrad.functions.contractions import contraction_like
from nngrad.graph import Function, Variable

from .rules import backward


@backward(F.contraction)
def contraction_backward(f: Function, gy: Variable) -> list[Variable]:
    """y = sum of products: the gradient of an operand is the same sum with gy in the operand's place. It repeats along
    an index that only this operand has."""
    terms, output = f.args["terms"], f.args["output"]
    grads = []
    for place, (x, term) in enumerate(zip(f.inputs, terms, strict=True)):
        others = [i for i in range(len(terms)) if i != place]
        operands, indices = [gy, *(f.inputs[i] for i in others)], (output, *(terms[i] for i in others))
        present = {i for t in indices for i in t}
        once = tuple(dict.fromkeys(term))
        common = tuple(i for i in once if i in present)
        gx = contraction_like(f, operands, indices, common if common != once else term)
        if common != once:
            sizes = dict(zip(term, x.shape, strict=True))
            gx = F.reshape(gx, shape=tuple(sizes[i] if i in common else 1 for i in once))
            gx = F.broadcast(gx, shape=tuple(sizes[i] for i in once))
            if once != term:
                gx = F.contraction(gx, terms=(once,), output=term)
        grads.append(gx)
    return grads
