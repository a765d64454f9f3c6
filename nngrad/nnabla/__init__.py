"""What exists for programs of nnabla and Chainer: protocols for functions, methods of Variables, tables of names."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .function_node import FunctionNode as FunctionNode
    from .python_function import PythonFunction as PythonFunction


def __getattr__(name: str) -> Any:  # loads them when they are asked for
    if name == "FunctionNode":
        from .function_node import FunctionNode

        return FunctionNode
    if name == "PythonFunction":
        from .python_function import PythonFunction

        return PythonFunction
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
