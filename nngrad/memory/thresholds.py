"""Thresholds of the search for what to recompute, each with its reason, as in `nngrad.graph.thresholds`."""

from __future__ import annotations

CLOSE = 1.2
"""A candidate is compared with the plain graph, by compiling both, unless its predicted peak is higher by more than
this factor."""

CLOSE_TO_PLAIN = 5
"""Nor is it compared if the plain graph's is higher by more than this: for convolutions, whose operands are copied, the
prediction sees half. Candidates err alike: in eight searches of `benchmarks/memory.py` and like it, none that was
ranked lower took 5% less memory than the first. Repeat with that."""

MOST_FINALISTS = 3
"""How many candidates are compiled at most, each of which takes as long as the graph itself."""

MOST_READ = 512
"""A function that would make a loop read more arrays than this is computed into its own buffer."""

MOST_LEVELS = 10
"""How deep segments are nested at most."""

MOST_SEGMENTS = 256
"""How many segments a graph is cut into at most."""
