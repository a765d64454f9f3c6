"""Pooling over windows, and unpooling."""

from __future__ import annotations
