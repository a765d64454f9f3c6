"""Random functions: what is drawn is drawn once per forward and shared by every gradient."""

from __future__ import annotations
