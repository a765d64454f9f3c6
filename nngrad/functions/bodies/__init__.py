"""Ops with bodies: control flow, checkpoints and implicit functions (`nngrad/graph/body_op.py` has their interface).

    alternatives.py     branches, of which one runs, and checkpoints, which have one branch
    scans.py            loops with a known number of steps; functions derived from their arguments (`loop.py`) are in
                        scan_back.py, segments.py and fusion.py
    while_loops.py      loops by condition
    carries.py          what both kinds of loop share
    implicit.py         solutions of linear systems, and roots; matrices.py has the bodies that are matrices
    mapping.py          other ops, mapped along an axis
"""
