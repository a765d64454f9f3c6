"""Inspection: listings, pictures, costs, hooks, gradient checks and the search for NaN."""


from .cost import Count, Tally, count
from .debugging import source_locations
from .description import BodyEntry, Description, Kind, describe
from .explanation import Explanation, OrderOfGradient, explain, show_passes, show_rewrites
from .lines import Line
from .listing import Listing, show
from .memory import MemoryReport, memory_report
from .nan import InputState, NanReport, find_nan
from .recomputation import State

__all__ = [
    "BodyEntry", "Count", "Description", "Explanation", "InputState", "Kind", "Line", "Listing",
    "MemoryReport", "NanReport", "OrderOfGradient", "State", "Tally", "count", "describe", "explain", "find_nan",
    "memory_report", "show", "show_passes", "show_rewrites", "source_locations",
]  # fmt: skip
