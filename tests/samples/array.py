"""Samples of the family `array`."""

from . import Sample

SAMPLES: list[Sample] = []
