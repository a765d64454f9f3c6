"""User-defined functions: a forward on arrays and a backward on Variables, in the protocols that users know."""

from .custom_gradient import custom_gradient
from .function_node import FunctionNode
from .python_function import PythonFunction

__all__ = ["FunctionNode", "PythonFunction", "custom_gradient"]
