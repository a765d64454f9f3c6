"""Batch, layer, instance and group normalisation."""

from __future__ import annotations
