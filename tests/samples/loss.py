"""Samples of the family `loss`."""

from . import Sample

SAMPLES: list[Sample] = []
