"""Backward rules of exchanges between processes. They are linear in the arrays of all processes: the rule is the
transpose of that."""

import nngrad.functions as F
from nngrad.graph import Function, Variable

from .rules import adjoint_pair, backward

adjoint_pair(F.all_gather, F.reduce_scatter)


@backward(F.all_reduce)
def all_reduce_backward(f: Function, gy: Variable) -> Variable:
    """gx_r = sum_s gy_s"""
    return F.all_reduce(gy, processes=f.args["processes"])


@backward(F.bcast)
def bcast_backward(f: Function, gy: Variable) -> Variable:
    """gx_src = sum_s gy_s, and zeros elsewhere"""
    return F.reduce_to_process(gy, processes=f.args["processes"], dst=f.args["src"])


@backward(F.reduce_to_process)
def reduce_to_process_backward(f: Function, gy: Variable) -> Variable:
    """gx_r = gy_dst"""
    return F.bcast(gy, processes=f.args["processes"], src=f.args["dst"])
