"""Samples of the family `convolution`."""

from . import Sample

SAMPLES: list[Sample] = []
