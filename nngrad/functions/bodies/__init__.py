"""Ops with bodies: control flow, checkpoints and implicit functions (`nngrad/graph/body_op.py` has their interface).

    alternatives.py     branches, of which one runs, and checkpoints, which are one branch
    scans.py            loops of so many steps; what is derived of their arguments (`loop.py`) is in scan_back.py,
                        segments.py, equal_carries.py and fusion.py
    while_loops.py      loops by condition
    carries.py          what both kinds of loop have in common
    implicit.py         solutions of linear systems, and roots; matrices.py has the bodies that are matrices
    flows.py            solutions of differential equations
    mapping.py          other ops, mapped along an axis
"""
