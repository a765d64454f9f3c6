"""Samples of the family `reduction`."""

from . import Sample

SAMPLES: list[Sample] = []
