"""Samples of the family `indexing`."""

from . import Sample

SAMPLES: list[Sample] = []
