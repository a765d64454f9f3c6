"""Passes for XLA's CPU compiler: each works around one of its habits; `benchmarks/passes.py` shows the effects.

Importing this package registers them. Facts about ops that only they read are declared here (`facts.py`,
`substitutes.py`).
"""

from ..extend import register_pass
from .facts import CHANNELS_LAST, KEPT_UNROLLED, TAKEN_FOR_LIGHT
from .layouts import with_channels_last
from .once import with_sines_once, with_sums_once
from .rolling import with_recurrences_rolled
from .slices import with_slices_in_turn
from .substitutes import SUBSTITUTES, with_substitutes
from .thresholds import LEAST_CALLS, MOST_SOURCES

register_pass(
    "cpu", "channels_last", with_channels_last, what="convolutions to run with channels last",
    may_apply=lambda block: any([op.heavy and op in CHANNELS_LAST for op in block.ops]),
)  # fmt: skip
register_pass(
    "cpu", "slices", with_slices_in_turn, what="slices of leaves that would be copied long before they are read",
    may_apply=lambda block: not KEPT_UNROLLED.isdisjoint(block.ops),
)  # fmt: skip
register_pass(
    "cpu", "substitute", with_substitutes, what="functions with another forward for this compiler",
    may_apply=lambda block: not SUBSTITUTES.keys().isdisjoint(block.ops), of_single_ops=SUBSTITUTES.__contains__,
)  # fmt: skip
register_pass(
    "cpu", "roll", with_recurrences_rolled, what="unrolled recurrences to turn into loops",
    may_apply=lambda block: len(block.steps) >= LEAST_CALLS and KEPT_UNROLLED.isdisjoint(block.ops),
)  # fmt: skip
register_pass(
    "cpu", "sine_once", with_sines_once, what="sines that would be computed several times",
    may_apply=lambda block: not TAKEN_FOR_LIGHT.isdisjoint(block.ops),
)  # fmt: skip
register_pass(
    "cpu", "sum_once", with_sums_once, what="sums along recurrences that would be computed several times",
    may_apply=lambda block: len(block.steps) > MOST_SOURCES, if_uncut=True,
)  # fmt: skip
