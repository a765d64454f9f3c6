"""F: the functions that graphs are made of, one file per family.

On import, F takes from each family the names that it defines. `__init__.pyi` lists them for editors and type checkers;
`python -m tests.stubs` writes it.
"""

from __future__ import annotations

import importlib
from typing import Any

from ..graph import Composite, Op
from ..graph.messages import no_attribute
from . import docstrings as docstrings  # which completes those of ops and composites

FAMILIES = (
    "arithmetic", "polynomial", "comparison", "elementwise", "rounding", "special", "bessel",
    "incomplete", "activation", "reduction", "cumulative", "array", "movement", "shaping", "selection", "slicing",
    "indexing", "numbers", "bits", "clipping", "sets", "validation", "control", "linear", "solves", "decompositions",
    "contractions", "weighting", "units", "convolution", "deformable", "separable", "pooling", "patches", "fourier",
    "resampling", "weighted_points", "warping", "regions", "detection", "batch_statistics", "normalization", "fused",
    "quantization", "attention", "recurrent", "packed_sequences", "loss", "distances", "likelihoods",
    "stochastic", "distributions", "augmentation", "images", "noise", "collectives",
)  # fmt: skip
"""The files that define functions, in order."""

PLAIN = {
    "associative": ("associative_scan",),
    "attention": ("multi_head_attention",),
    "bessel": ("bessel_j",),
    "branches": ("cond", "switch"),
    "chains": ("argmax_crf1d", "crf1d"),
    "incomplete": ("expn",),
    "traced.jax_functions": ("jax_function",),
    "likelihoods": ("negative_sampling",),
    "lists": (
        "broadcast_arrays", "dstack", "get_item", "hstack", "pad_sequence", "split_axis", "transpose_sequence",
        "vstack",
    ),
    "loops": ("fori_loop", "map", "scan"),
    "noise": ("rrelu", "simplified_dropconnect"),
    "normalization": ("tensor_normalization",),
    "sparse": ("CooMatrix", "sparse_matmul"),
    "special": ("polygamma", "zeta"),
    "weighting": ("average",),
    "while_loops": ("while_loop",),
}  # fmt: skip
"""Functions, by file, that are neither ops nor composites: they take a function, a list, or first a number."""


def names() -> list[str]:
    """Names of all functions, sorted."""
    return sorted(name for name, value in globals().items() if isinstance(value, Op | Composite))


def plain_names() -> tuple[str, ...]:
    """Names of the functions of F that are neither ops nor composites."""
    return tuple(sorted(name for names in PLAIN.values() for name in names if name.islower()))


def functions_in(file: str) -> dict[str, Any]:
    """The names that a file defines for F."""
    module = importlib.import_module(f"{__name__}.{file}")
    own = {n: f for n, f in vars(module).items() if isinstance(f, Op | Composite) and f.module == module.__name__}
    plain = {name: getattr(module, name) for name in PLAIN.get(file, ())}
    return plain | (own if file in FAMILIES else {})


for _file in (*FAMILIES, *PLAIN):
    globals().update(functions_in(_file))


for _name in ("array", "linear"):
    del globals()[_name]  # F.linear, a file here, is a function elsewhere: the message for it says what it is here


def __dir__() -> list[str]:
    return [*names(), *plain_names(), "names", "plain_names"]


def __getattr__(name: str) -> Any:
    message, known = f"nngrad.functions has no function {name!r}", [*names(), *plain_names()]
    fallback = "; dir(nngrad.functions) lists all functions"
    raise no_attribute(message, name, known, fallback, module="nngrad.functions")
