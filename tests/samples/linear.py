"""Samples of the family `linear`."""

from . import Sample

SAMPLES: list[Sample] = []
