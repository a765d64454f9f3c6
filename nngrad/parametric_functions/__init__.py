"""PF: functions with parameters of their own, made in the present scope at the first call and found there after.

`name=` puts a scope around a call: `PF.affine(x, 10, name="fc")` makes 'fc/affine/W' and 'fc/affine/b'.
Initializers are functions of a shape (`nngrad.initializer`), arrays or numbers. `fix_parameters` lets no gradient
reach the parameters. `apply_w` and `apply_b` are functions that the weight or bias goes through.

Layers are taken from their files when PF is imported. `__init__.pyi` says the same for editors and checkers of types;
`python -m tests.stubs` writes it.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from ..graph.elsewhere import no_attribute
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
    raise no_attribute(message, name, globals(), nnabla="nnabla.parametric_functions")
