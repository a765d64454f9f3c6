"""Thresholds: the numbers by which the kernel decides, each with its reason and how to measure it again.

Seconds and bytes are those of one machine with two x86-64 cores. Whoever changes a number runs the benchmark named
beside it, or at the head of its section. A number without a measurement was chosen, not measured.
"""

from __future__ import annotations

# ---------------------------------------------------------------- caches

MOST_ANSWERS = 1 << 14
"""How many shape inferences an op caches."""

MOST_DERIVED = 1024
"""How many results each function that derives bodies from bodies caches."""

FEWEST_ASKED = 4
"""Gradients of fewer functions are emitted as fast as they are looked up. Repeat with `benchmarks/rebuilding.py`."""

MOST_ASKED = 50_000
"""Graphs of more functions are not cached: one would evict all others."""

BYTES_ASKED = 400
"""The approximate size of a step in a cached request or gradient: 280 measured, and 400 once it was instantiated."""

BYTES_OF_AN_EXECUTABLE = 3 << 19
"""The approximate size of an executable, however small: measured as the growth of the process, for XLA's CPU backend.
"""

BYTES_OF_A_FUNCTION = 16 << 10
"""Its approximate additional size per function: 5 kB for a `sin`, 20 kB for a matrix product."""


# ---------------------------------------------------------------- small arrays

SMALL_ARRAY = 1 << 14
"""The largest NumPy array, in bytes, that stays one: passing it to an executable is cheaper than a transfer. Repeat
with `benchmarks/classifier.py`."""

SMALL_RESULT = 1 << 14
"""The largest array, in bytes, that costs nothing to keep."""


# ---------------------------------------------------------------- canonical form

MOST_EXPANDED = 32
"""A gradient that is to be divided by a norm is expanded to this many terms, of this many functions."""

MOST_TERMS = 64
"""A sum of this many distinct terms becomes a term itself. Otherwise a chain of n additions would take n^2: repeat with
`benchmarks/building.py`."""

DEEPEST_SUM = 16
"""How deep to search sums of sums that are not in canonical form."""

MOST_POWER = 64
"""The largest power to which factors merge: up to here a power is computed by multiplication."""

MOST_MASKS = 4
"""How many nested masks are moved at once. Beyond this the older ones stay in place; otherwise each of n functions in a
row would have to move up to n of them."""


# ---------------------------------------------------------------- gradients

MOST_SUMS = 256
"""How many sums one executable computes: its compile time grows with the square of their number."""


# ---------------------------------------------------------------- tiers
# Repeat with `benchmarks/first_result.py`.

LARGE = 50
"""Programs of this many functions have two tiers. The optimised executable of a gradient of 50 functions takes half a
second to compile, with convolutions some seconds; the quick one about a fifth of that."""

# ---------------------------------------------------------------- reading

MOST_BYTES_KEPT = 64 << 20
"""Results of a function that take more than this together are not kept for those who read another one, or a part."""


# ---------------------------------------------------------------- limits of XLA's compiler
# Repeat with `tests/faults/test_scale.py`, and with chains of 1,000 to 5,000 functions.

MOST_FUSED = 2000
"""How many elementwise operations XLA may fuse. The gradient of a chain of `sin` takes one second to compile with 1,500
of them, four with 3,000, and fails with 4,500."""

MOST_IN_BODIES = 8
"""How many numbers in bodies may be inputs: those of a user who anneals one, and not the coefficients of a solver, each
of which a loop would carry along."""

FEW_INDICES = 2
"""How many integer indices of a program may be inputs: `h[i, j]`, `x[i + 1] - x[i]`."""

LONG_AXIS = 8
"""The shortest axis along which they may be: a shorter one is that of coordinates or channels, each with a role of its
own, and has few."""

MOST_PLACES = 1 << 24
"""The longest axis: above this, a float32 does not hold every index."""

MOST_PARTS = 500
"""How many leaves one program may join, and how many parts of arrays it may return. Compiling a join of 1,000 takes XLA
a second, of 4,000 ten, of 16,000 a minute; and 1,000 parts 4 to 18 seconds."""

MOST_CALLS = 64
"""How many operations a partition has. If all values of a chain are returned, XLA computes each from the start again,
so that the work of a partition may grow with the square of this."""

MOST_OPERANDS = 128
"""How many inputs a sum or a join in a partition has."""

MOST_INPUTS_OF_AN_OP = 100
"""An op with more inputs is not compiled by itself: an executable for the sum of 1,000 arrays takes seconds to compile,
whatever their shape, and adding them one by one takes milliseconds."""


# ---------------------------------------------------------------- windows

MOST_SLICES = 32
"""The most slices that arrays are cut into, each with one element of every window, to be combined by functions that the
compiler fuses: several times faster than its own loops over windows, on a CPU."""
