"""Selecting and placing elements: gather, scatter, sorting, masks."""

from __future__ import annotations
