"""How training steps scale with the number of devices, by the compiler's account: `python -m benchmarks scaling`."""

from __future__ import annotations

from .table import run as run
