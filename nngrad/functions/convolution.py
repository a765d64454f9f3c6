"""Convolutions of one to three spatial axes, and their adjoints."""

from __future__ import annotations
