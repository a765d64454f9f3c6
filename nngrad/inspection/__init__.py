"""What a graph is made of, what it costs, and where it goes wrong."""

from .count import Count, Tally, count

__all__ = ["Count", "Tally", "count"]
