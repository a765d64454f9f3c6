"""Rematerialisation: gradient graphs that recompute forward values instead of keeping them, where that saves memory.

    policies.py    what a user can ask for, and marks
    search.py      the candidates for a policy: ranked by structure, decided by the compiler
    candidates.py  the possible graphs of a gradient, including those that contain gradients, and their costs
    plan.py        costs of functions; and plans, in one form: how the forward pass is cut into segments, how these are
                   nested, and what is not kept
    rebuild.py     the gradient graph that follows a plan, in which functions wait for the segments that they depend on
    liveness.py    the memory that a program takes, estimated from its structure; the compiler reports what it is

`nn.grad` and `backward()` ask for it by `engine.rematerialised`, which is provided here.
"""

from ..extend import engine, provide
from .liveness import Timeline, peak_bytes, timeline, timeline_of
from .plan import reads
from .policies import LeastMemory, MemoryBudget, Segments, policy_key, recompute
from .search import rematerialised

__all__ = ["LeastMemory", "MemoryBudget", "Segments", "Timeline", "reads", "recompute", "timeline", "timeline_of"]

provide(engine, {"rematerialised": rematerialised, "policy_key": policy_key, "peak_bytes": peak_bytes})
