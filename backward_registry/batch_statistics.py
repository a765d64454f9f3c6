"""Normalisations by the statistics of batches are composites: their parts have rules, and they need none."""
