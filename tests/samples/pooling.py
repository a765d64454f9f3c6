"""Samples of the family `pooling`."""

from . import Sample

SAMPLES: list[Sample] = []
