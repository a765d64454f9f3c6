"""Backward rules of cofactors. Those of what decompositions are made of are in `spectra.py`."""

from __future__ import annotations

import nngrad.functions as F
from nngrad.graph import Function, Variable

from . import backward


@backward(F.batch_cofactor)
def batch_cofactor_backward(f: Function, gy: Variable) -> tuple[Variable | None, ...]:
    """It is a symmetric form: in a direction it is linear, and its derivative in x has one direction more"""
    x, *directions = f.inputs
    if len(f.inputs) > x.shape[-1]:
        return (None,) * len(f.inputs)
    gx = F.batch_cofactor(x, *directions, gy) if len(f.inputs) < x.shape[-1] else None
    others = [directions[:i] + directions[i + 1 :] for i in range(len(directions))]
    return gx, *[F.batch_cofactor(x, *rest, gy) for rest in others]
