"""Samples of the family `comparison`."""

from . import Sample

SAMPLES: list[Sample] = []
