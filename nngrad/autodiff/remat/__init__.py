"""Recompute instead of keep: gradient graphs that compute forward values again, where that saves memory.

    policies.py    what a user can ask for
    search.py      the candidates for a policy: ranked by structure, decided by the compiler
    candidates.py  the graphs that a gradient can be computed by, those that contain gradients too, and what they cost
    plan.py        what is computed again, said in one way: where the forward pass is cut into segments, how these are
                   nested, what is not kept
    rebuild.py     the gradient graph that follows a plan
    stages.py      which segment each function of the backward pass waits for
    costs.py       what functions cost
    liveness.py    the memory that a program takes, estimated from its structure
"""

from .costs import reads
from .liveness import Timeline, timeline
from .policies import LeastMemory, MemoryBudget, Segments, policy_key, recompute
from .search import rematerialised

__all__ = [
    "LeastMemory", "MemoryBudget", "Segments", "Timeline", "policy_key", "reads", "recompute", "rematerialised",
    "timeline",
]  # fmt: skip
