"""Normalisations are composites: their parts have rules, and they need none."""
