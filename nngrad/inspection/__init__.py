"""What a graph is made of, what it costs, and where it goes wrong."""

from .count import Count, Tally, count
from .explanation import Explanation, OrderOfGradient, explain
from .listing import Line, Listing, show
from .memory import MemoryReport, memory_report
from .nan import InputState, NanReport, find_nan

__all__ = [
    "Count",
    "Explanation",
    "InputState",
    "Line",
    "Listing",
    "MemoryReport",
    "NanReport",
    "OrderOfGradient",
    "Tally",
    "count",
    "explain",
    "find_nan",
    "memory_report",
    "show",
]
