"""Samples of the family `stochastic`."""

from . import Sample

SAMPLES: list[Sample] = []
