"""Thresholds: the numbers by which the kernel decides, each with what set it and how to measure it again.

Seconds and bytes are those of one machine with two x86-64 cores. Whoever changes a number runs the benchmark that is
named beside it, or at the head of its section. One without a figure was chosen, and not measured.
"""

from __future__ import annotations

from jaxlib import version

# ---------------------------------------------------------------- what is remembered

MOST_ANSWERS = 1 << 14
"""Of how many questions about shapes an op remembers the answers."""

MOST_DERIVED = 1024
"""How many results are remembered of each way to derive bodies from bodies."""

FEWEST_ASKED = 4
"""The gradient of fewer functions is emitted as quickly as it is looked for. Repeat with `benchmarks/rebuilding.py`."""

MOST_ASKED = 50_000
"""A graph of more functions is not remembered: it would take the place of all others."""

BYTES_ASKED = 400
"""About what a step takes, of what is asked about or of the answer: 280 measured, and 400 once it was instantiated."""

BYTES_OF_A_STEP = 200
"""About what a step of a program takes as a part of a key."""

BYTES_OF_AN_EXECUTABLE = 3 << 19
"""About what an executable takes, however small: measured as the growth of the process, for XLA's CPU backend."""

BYTES_OF_A_FUNCTION = 16 << 10
"""About what it takes besides for each function: 5 kB for a `sin`, 20 kB for a matrix product."""

MOST_GRAPHS = 64
"""For so many combinations of shapes and dtypes graphs are kept."""


# ---------------------------------------------------------------- small arrays

SMALL_ARRAY = 1 << 14
"""Bytes up to which a NumPy array stays one: handing it to an executable is cheaper than a transfer. Repeat with
`benchmarks/classifier.py`."""

SMALL_RESULT = 1 << 14
"""Bytes of an array that it costs nothing to keep."""


# ---------------------------------------------------------------- canonical form

MOST_TERMS = 64
"""From how many distinct terms on a sum is itself a term. Else a chain of n additions would take n^2: repeat with
`benchmarks/building.py`."""

DEEPEST_SUM = 16
"""How far into sums of sums one looks, where they are not in canonical form."""

MOST_POWER = 64
"""Up to which power factors merge: so far a power is computed by multiplication."""

MOST_MASKS = 4
"""How many masks are moved at once. In a longer row the older ones stay where they are, or each of n functions in a row
would have to move up to n of them."""


# ---------------------------------------------------------------- gradients

MOST_COORDINATES = 4
"""Up to how many coordinates there are tangents: of all second derivatives by d of them forward mode takes (d + 1) (d +
2) / 2 passes and gradients of gradients 2 (d + 1), but of those along the axes alone 2 d + 1. Repeat with
`benchmarks/physics.py`."""

FEW_VALUES = 16
"""Up to how many values for each Variable each is a Variable of its own, whatever they are of: these make no larger
graph than the Laplacian of a Laplacian. Repeat with `benchmarks/order_four.py`."""

SUMS_ON_HOST = 30
"""In so many calls NumPy adds, which takes 35 us longer for each array; to compile a sum of one takes 10 ms, of 100
arrays 200 ms."""

MOST_SUMS = 256
"""How many sums one executable computes: the time to compile it grows with the square of their number."""


# ---------------------------------------------------------------- recomputation

CLOSE = 1.2
"""Candidates whose predicted peaks differ by less are compared by the compiler. Repeat with `benchmarks/memory`."""

CLOSE_TO_PLAIN = 5
"""So is the plain graph, which is less alike: of convolutions, whose operands are copied, the structure shows half."""

MOST_FINALISTS = 3
"""So many candidates are compiled at most to be compared, each of which takes as long as the graph itself."""

WORTH_IT = 0.95
"""What of the arithmetic of a plan may be left for one with less of it to be taken: another graph is another risk."""

MOST_READ = 512
"""A function that would have a loop read more than this has memory of its own."""

MOST_LEVELS = 10
"""How many segments lie within each other at most."""

MOST_SEGMENTS = 256
"""How many segments a graph is cut into at most."""


# ---------------------------------------------------------------- tiers
# Repeat with `benchmarks/first_result`.

LARGE = 50
"""Programs of so many functions have two tiers. The optimised executable of a gradient of 50 functions takes half a
second to compile, if there are convolutions in it some seconds; the quick one about a fifth of that."""

SHARE_LOST = 1 / 3
"""Of what compiling the optimised executable takes, the calls of the quick one may lose so much. A program that is
called no more from then on has lost the rest."""

SECONDS_OF_A_KIND = 15e-3
"""Seconds in which XLA optimises what functions of one kind do. By this, and by the two that follow, programs of 25 to
140 kinds and of 1e5 to 2e7 elements were estimated to 0.5 to 1.5 of what was measured: residual networks, a transformer
block, an LSTM of 50 steps, derivatives of order 6 and 10."""

SECONDS_OF_AN_ELEMENT = 1e-9
"""Seconds that the quick executable takes longer for each element that a function reads or writes."""

SECONDS_OF_A_CALL = 5e-5
"""Seconds that a call of it takes longer: it goes through Python."""

CALLS_OF_A_PART = 8
"""A part that the quick tier compiles by itself takes as long as so many functions more: 15 ms, where each takes 2."""

WORTH_PARTS = 1 / 2
"""What is left to compile, at most, where the quick tier compiles equal parts. A call takes up to twice as long then,
15 us for each part. Repeat with examples/nnabla/maml.py, of 3 to 16 tasks."""

FEWEST_IN_A_PART, MOST_IN_A_PART = 8, 200
"""How many functions a part has, but for the last one."""

MOST_BYTES_IN_PARTS = 256 << 20
"""What passes from part to part is in memory. A program whose values take more together is left in one piece."""


# ---------------------------------------------------------------- what is read without a forward()
# Repeat with `benchmarks/drop_in.py`.

DEEP = 32
"""A graph of fewer ranks is one executable."""

STRIDE = 8
"""Ranks between two places where a deeper one may be cut."""

MOST_PASSING = 2
"""So many values may pass a cut, as the states of an LSTM."""

MOST_BYTES_PASSING = 64 << 20
"""What passes a cut and takes more is not remembered."""


# ---------------------------------------------------------------- what XLA's compiler takes at once
# Repeat with `tests/faults/test_scale.py`, and with chains of 1,000 to 5,000 functions.

MOST_FUSED = 2000
"""How many elementwise operations XLA may fuse. The gradient of a chain of `sin` takes one second to compile with 1,500
of them, four with 3,000, and fails with 4,500."""

MOST_PARTS = 500
"""How many leaves XLA may join, and parts of arrays give, in one program. To compile a join of 1,000 takes it a second,
of 4,000 ten, of 16,000 a minute; and 1,000 parts 4 to 18 seconds."""

MOST_CALLS = 64
"""How many operations a partition has. Of a chain whose values are all returned XLA computes each from the first one
again, so that the work of a partition may grow with the square of this."""

MOST_OPERANDS = 128
"""How many inputs a sum or a join has in a partition."""

MOST_INPUTS_OF_AN_OP = 100
"""Past so many inputs an op is not compiled by itself: an executable for the sum of 1,000 arrays takes seconds to
compile, whatever its shape, and adding them one after the other takes milliseconds."""

MOST_TRUSTED = 500
"""Programs of so many functions XLA compiles, whatever they are."""


# ---------------------------------------------------------------- passes for CPUs
# Repeat with `benchmarks/passes.py`.

SLOW_BELOW = 512 if version.__version__ == "0.11.1" else 0
"""Rows of fewer bytes are stacked in segments, so that no step writes less than this at once into the whole stack. On
CPUs XLA of jaxlib 0.11.1 goes over all of a stack to write a row of less than 450 to 480 bytes into it: 40,000 steps of
four bytes take 0.7 s, and of 128 bytes 15 s, where 0.11.0, 0.11.2 and 0.12 take 0.0003 s and 0.003 s."""

MANY_SUMS = 512
"""From how many sums on those over leading axes are, on CPUs, a matrix product with ones. XLA's reduction there draws
all that is before it into one fusion, and where more than 16384 sums are made takes twenty times as long. To sum 64
rows of 4,000 numbers takes 0.14 ms without it and 0.06 with it, of 20,000 7.5 and 0.4, of 150,000 132 and 2."""

WRITTEN_ANEW = 1 << 25
"""From how many bytes on an array that is computed element by element for one sum alone is added up as it is computed,
if it is tall. To write it takes memory that is new at each run, and longer than to sum it: of 16384 rows of 768
products 56 ms become 13, of products with a tanh 46 become 21. Of smaller arrays neither way is faster throughout."""

TALL = 4
"""How many times as long as it is wide such an array is at least. Reductions to more sums are slow: a normalisation of
1024 rows of 4096 numbers, with its gradient, took twice the time."""

WORTH_THE_LIBRARY = 16
"""How many times as many products a library for convolutions may take on CPUs as a loop that XLA compiles. For 64
channels, 9x9 kernels and strides of 2 on 6x6 places it takes 3.9 times as many: 0.27 s become 0.02, and 22 s 0.12 where
the loop is compiled quickly. With 16 times as many, 4x4 kernels on 2x2 places, it took a seventh of the time."""

WORTH_A_CALL = 256
"""From how many bytes on a sine that several loops read is computed once on CPUs, in a call of its own. Of 2,000 angles
it takes the Jacobian of a pendulum's collocation 0.5 of the time; of smaller arrays than this there is nothing to gain,
and XLA compiles a loop over a few of them in one piece, which with calls in it takes up to four times as long."""

MOST_SLICES = 32
"""Into so many slices arrays are cut, each with the elements at one place of all windows, and combined by functions
that the compiler fuses: several times faster than its own loops over windows, on a CPU."""

MOST_SOURCES = 8
"""What one loop reads more arrays for than this is to be computed once. By this a highway network of 30 layers runs in
0.35 to 0.75 of the time, on an idle machine and on a busy one."""

MANY_SOURCES = 4 * MOST_SOURCES
"""Only where some loop would read more than this, it is worth it: a barrier takes memory of its own."""

FAR = 512
"""How many calls after a sum are searched for something heavy."""

PARTS_ADDED_UP = 8
"""How many parts of a sum over the steps are added up together."""

LEAST = 4
"""How many steps a recurrence has at least."""

LEAST_CALLS = 256
"""Blocks of so many calls are looked through."""

LEAST_STEPS = 8
"""How many steps a loop must have to be worth it."""

LEAST_SAVED = 16
"""How many calls fewer a loop must leave."""

MOST_LEFT = 4
"""A block is looked through again where, for each call in a loop, so many are left that are in none."""

MOST_AT_THE_EDGES = 2
"""Of so many calls, one at most may be needed to take a loop's values apart or to put together what it reads."""

MOST_BEFORE = 4
"""How many steps back a value is read at most."""

MOST_BYTES_STACKED = 64
"""Arrays of so many bytes may be stacked for a loop to read: a random key for each step, and not a layer's weight."""

TRIALS = 8
"""How often a step that differs is left off at the ends."""

WINDOWS = (2, 8, 32, 128, 512)
"""How many labels in a row are looked for where they were before. A stretch of one period is seen by those windows that
occur once in it: short ones where a step has few labels, long ones where a step repeats within itself."""

MOST_PERIODS = 6
"""How many periods are tried for each length of a window, the most frequent first. So the work is in proportion to the
length of the sequence."""
