"""Samples of the family `control`."""

from . import Sample

SAMPLES: list[Sample] = []
