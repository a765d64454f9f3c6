"""Programs lowered for platforms that are not at hand, and what in them is not for these."""

from __future__ import annotations

import re
from typing import Any

PLATFORMS = ("cuda", "rocm", "tpu")
"""All that JAX knows but for CPUs."""

_CALL = re.compile(r'custom_call @"?([\w.$]+)')
_THEIR_OWN = re.compile(
    r"cu(blas|dnn|fft|solver|sparse)?_\w+|hip(blas|fft|solver|sparse)?_\w+"  # libraries and kernels on GPUs
    r"|Cholesky|Eigh|LuDecomposition|ProductOfElementaryHouseholderReflectors|Qr"  # the compiler's for TPUs
)


def lowered_for(traced: Any, *platforms: str) -> str:
    """The text of a `jax.stages.Traced`, lowered for platforms; for several at once it has all that any of them gets.
    """
    text: str = traced.lower(lowering_platforms=platforms).as_text()
    return text


def detours(text: str) -> set[str]:
    """What a program calls by name, LAPACK or Python, that is none of the libraries of `PLATFORMS`."""
    return {name for name in _CALL.findall(text) if not _THEIR_OWN.fullmatch(name)}


def turned(text: str) -> int:
    """How many convolutions have their channels last."""
    return len(re.findall(r"dim_numbers = \[b, \d", text))
