"""Samples of the family `elementwise`."""

from . import Sample

SAMPLES: list[Sample] = []
