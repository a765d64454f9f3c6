"""Thresholds of the search for what to recompute, each with its reason, as in `nngrad.graph.thresholds`."""

from __future__ import annotations

CLOSE = 1.2
"""Candidates whose predicted peaks differ by less than this factor are compared by compiling them. Repeat with
`benchmarks/memory.py`."""

CLOSE_TO_PLAIN = 5
"""The same for the plain graph, which is less alike: for convolutions, whose operands are copied, the prediction sees
half."""

MOST_FINALISTS = 3
"""How many candidates are compiled for comparison, each of which takes as long as the graph itself."""

WORTH_IT = 0.95
"""A plan is chosen for less arithmetic only at this fraction of it or below: another graph is another risk."""

MOST_READ = 512
"""A function that would make a loop read more arrays than this is computed into its own buffer."""

MOST_LEVELS = 10
"""How deep segments are nested at most."""

MOST_SEGMENTS = 256
"""How many segments a graph is cut into at most."""
