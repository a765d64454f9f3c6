"""Samples of the family `normalization`."""

from . import Sample

SAMPLES: list[Sample] = []
