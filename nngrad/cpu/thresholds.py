"""Thresholds of the passes for CPUs, each with its reason, as in `nngrad.graph.thresholds`. Repeat with
`benchmarks/passes.py`."""

from __future__ import annotations

MANY_SUMS = 512
"""From this many sums on, sums over leading axes become a matrix product with ones on CPUs. XLA's CPU reduction fuses
everything before it, and takes twenty times as long if it makes more than 16384 sums. Summing 64 rows of 4,000 numbers
takes 0.14 ms without this and 0.06 with it, of 20,000 7.5 and 0.4, of 150,000 132 and 2."""

FEW_ROWS = 8
"""Sums over up to this many elements, of which the last axis is none, are added one by one instead. Squares of 4 rows
of 200,000 are summed in 0.28 ms for 0.72 by a product with ones, which needs them written; from 16 rows on the layers
before and after take as long both ways. Sums over a middle axis are given to YNNPACK by XLA: of 2 products for each of
4 x 131,072 it takes 12 ms of CPU for 0.6, of 8 for 32 x 4,096 1.5 for 0.6."""

MOST_AT_ONCE = 15
"""How often a loop computes an element anew at most, as in XLA, which otherwise writes what the slices are taken of.
Where sums over 8 pairs read sums over 3 directions, it wrote three arrays of squares: 21 MB become 14, in 0.9 of the
time."""

WRITTEN_ANEW = 1 << 25
"""An array of at least this many bytes that is computed elementwise for a single sum is summed as it is computed, if it
is tall. Writing it takes new memory at each run, and longer than summing it: for 16384 rows of 768 products 56 ms
become 13, for products with a tanh 46 become 21. For smaller arrays neither way is faster throughout."""

TALL = 4
"""The least ratio of length to width of such an array. Reductions to more sums are slow: a normalisation of
1024 rows of 4096 numbers, with its gradient, took twice the time."""

WORTH_THE_LIBRARY = 16
"""The factor by which a convolution library may do more products than a loop compiled by XLA for CPUs. For 64 channels,
9x9 kernels and strides of 2 on 6x6 places it does 3.9 times as many: 0.27 s become 0.02, and 22 s 0.12 where the loop
is compiled quickly. With 16 times as many, 4x4 kernels on 2x2 places, it took a seventh of the time."""

TAKEN_BY_YNNPACK = 16
"""XLA gives convolutions of images to YNNPACK if they take or make more channels than this. Of 32 to 128 channels each
way, these and gradients by the data take 0.56 to 0.96 of that in Eigen; of 3 to 16 channels 1.2 to 2.9."""

LEAST_BATCH = 8
"""From this batch on gradients of convolutions by the weights take 0.4 to 0.8 in Eigen, below it up to 4.5."""

FEW_CHANNELS = 4
"""Up to this many channels are convolved as one product of matrices, unless it reads more than twice the result's
numbers, or YNNPACK is given them: on 32x32 places, from 3 channels to 16 1.7 ms become 1.1, from 1 to 8 1.2 become 0.6.
Of more channels Eigen is faster, but for kernels of one element: those are products of matrices in 0.4 to 0.8 of the
library's time, gradients by the weights in 0.1 to 0.7; with strides for few channels too, which gain in gradients: 1.0
and 0.44 ms become 0.45 and 0.24."""

MOST_TAPS = 64
"""The most elements of a kernel that a convolution in groups goes through one by one. For 7x7, 64 channels by
themselves and 32x32 places, 24 to 32 ms become 2 to 9."""

MANY_GROUPS = 16
"""Up to this many groups are convolved one after another by the library, which takes 0.1 s to compile for each."""

WIDE_GROUP = 32
"""From this many channels in a group on, the library, or XLA's own loop, is as fast as products of matrices for each
element of the kernel: in 64 bits, and for the weights' gradient. Of 8 groups of 16 channels on 32x32 places that takes
1.6 ms by products and 5.7 by the library, of 16 groups of 32 on 16x16 2.5 and 1.9, of 8 of 64 on 32x32 13 and 9. In 64
bits the convolutions take 6 ms and 23, and 6.5 and 2.9."""

WORTH_A_CALL = 256
"""A sine of at least this many bytes that several calls read is computed once on CPUs, in a call of its own. A loss
with second derivatives of a network of sines takes 0.6 of the time. Smaller arrays gain nothing, and XLA compiles a
loop over a few of them in one piece, which with calls in it takes up to four times as long. The same holds of sums."""

MOST_SOURCES = 8
"""Inputs for which one loop would read more arrays than this are computed once. So a highway network of 30 layers runs
in 0.45 of the time."""

FAR = 512
"""How many calls after a sum are searched for a loop that depends on it through something heavy."""

# ---------------------------------------------------------------- rolled recurrences

LEAST = 4
"""The fewest steps of a recurrence."""

LEAST_CALLS = 256
"""The fewest calls of a block that is searched for loops."""

LEAST_STEPS = 8
"""The fewest steps that make a loop worthwhile."""

LEAST_SAVED = 16
"""By how many calls a loop must shorten the block."""

MOST_LEFT = 4
"""A block is searched again if the calls outside loops are this many times as many as those inside."""

MOST_AT_THE_EDGES = 2
"""A loop may have at most one call per this many to take its values apart or to assemble its inputs."""

MOST_BEFORE = 4
"""How many steps back a value is read at most."""

TRIALS = 8
"""How often an irregular step at either end is dropped."""

WINDOWS = (2, 8, 32, 128, 512)
"""How many consecutive labels are searched for earlier occurrences. A stretch of one period is found by windows that
occur once in a period: short ones if a step has few labels, long ones if a step repeats within itself."""

MOST_PERIODS = 6
"""How many periods are tried for each window length, the most frequent first. So the work is proportional to the length
of the sequence."""
