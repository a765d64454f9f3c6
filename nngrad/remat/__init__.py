"""Recompute instead of keep: gradient graphs that compute forward values again, where that saves memory.

    policies.py   what a user can ask for
    mirror.py     the plans for a policy, and which is taken
    ways.py       the ways to cut a graph, and the graphs that come of it
    segments.py   where a forward pass is cut, and how segments are nested
    folds.py      the same for a graph that contains gradients
    originals.py  gradients of rematerialised gradients that read what is kept
    stages.py     which segment each function of the backward pass waits for
    rebuild.py    the gradient graph that follows a plan
    keeping.py    the other way round: sums that XLA would compute again, and need not
    costs.py      what functions cost
    fusion.py     what XLA does with functions: which it fuses, which it would rather keep
    loops.py      the loops that it makes of a graph, and what each finds in memory
    liveness.py   the order in which they run, and the memory that they take
"""

from .costs import reads
from .liveness import Timeline, predicted_peak, timeline
from .mirror import rematerialised
from .policies import LeastMemory, MemoryBudget, Segments, policy_key, recompute

__all__ = [
    "LeastMemory",
    "MemoryBudget",
    "Segments",
    "Timeline",
    "policy_key",
    "predicted_peak",
    "reads",
    "recompute",
    "rematerialised",
    "timeline",
]
