"""Recompute instead of keep: gradient graphs that compute forward values again, where that saves memory.

    policies.py    what a user can ask for
    search.py      the candidates for a policy: ranked by structure, decided by the compiler
    candidates.py  the graphs that a gradient can be computed by, those that contain gradients too, and what they cost
    plan.py        what functions cost; what is computed again, said in one way: where the forward pass is cut into
                   segments, how these are nested, what is not kept
    rebuild.py     the gradient graph that follows a plan, in which functions wait for the segments that they depend on
    liveness.py    the memory that a program takes, estimated from its structure
"""

from .liveness import Timeline, timeline
from .plan import reads
from .policies import LeastMemory, MemoryBudget, Segments, policy_key, recompute
from .search import rematerialised

__all__ = [
    "LeastMemory", "MemoryBudget", "Segments", "Timeline", "policy_key", "reads", "recompute", "rematerialised",
    "timeline",
]  # fmt: skip
