"""nnabla as nngrad has it: `import nngrad.nnabla as nn` for `import nnabla as nn`, and likewise each of its modules.

It has all names of `nngrad`, and beside them what only programs written for nnabla and Chainer need: modules for data,
communicators, monitors and extensions, the logger, protocols for functions, tables of names.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import nngrad

from . import links as _links  # noqa: F401 - methods of Variables
from .logger import logger as logger

_OWN = {"FunctionNode": "function_node", "PythonFunction": "python_function"}
"""The modules of names that are here alone, apart from `logger`."""
_MODULES = (
    "backward_functions", "communicators", "ext_utils", "function", "functions", "initializer", "monitor", "parameter",
    "parametric_functions", "random", "solver", "solvers", "utils",
)  # fmt: skip

if TYPE_CHECKING:
    from nngrad import *  # noqa: F403

    from .function_node import FunctionNode as FunctionNode
    from .python_function import PythonFunction as PythonFunction


def __getattr__(name: str) -> Any:  # loads them when they are asked for
    if name in _OWN:
        return getattr(import_module(f"{__name__}.{_OWN[name]}"), name)
    return import_module(f"{__name__}.{name}") if name in _MODULES else getattr(nngrad, name)


def __dir__() -> list[str]:
    return [*dir(nngrad), *_OWN, *_MODULES, "logger"]
