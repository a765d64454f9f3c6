"""Faults that change nothing that is computed, each with the reason."""

EQUIVALENT: dict[str, str] = {}
