"""PF: layers with parameters, created in the current scope at the first call and reused afterwards.

`name=` puts a scope around a call: `PF.affine(x, 10, name="fc")` creates 'fc/affine/W' and 'fc/affine/b'. Initializers
are functions of a shape (`nngrad.initializer`), arrays or numbers. `fix_parameters` stops gradients at the parameters.
`apply_w` and `apply_b` are functions applied to the weight and the bias.

On import, PF takes the layers from their files. `__init__.pyi` lists them for editors and type checkers; `python -m
tests.stubs` writes it.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from ..extend import no_attribute
from ..parameter import get_parameter_or_create as get_parameter_or_create
from .layer_parameters import parametric_function_api as parametric_function_api
from .recurrent import LSTMCell as LSTMCell

_FILES = (
    "activation", "affine", "attention", "batch_statistics", "convolution", "low_rank", "normalization", "quantized",
    "recurrent", "weights",
)  # fmt: skip
"""The files with the layers."""


def _of(file: str) -> dict[str, Any]:
    """The layers that a file defines."""
    module = importlib.import_module(f"{__name__}.{file}")
    layers = {name: f for name, f in vars(module).items() if inspect.isfunction(f) and hasattr(f, "__wrapped__")}
    return {name: f for name, f in layers.items() if f.__module__ == module.__name__}


for _file in _FILES:
    globals().update(_of(_file))


def __getattr__(name: str) -> Any:
    message = f"nngrad.parametric_functions has no function {name!r}"
    raise no_attribute(message, name, globals(), module="nngrad.parametric_functions")
