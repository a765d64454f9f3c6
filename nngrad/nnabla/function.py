"""nnabla's module of the Functions in graphs, and of functions written in Python."""

from ..extend import Function as Function
from .python_function import PythonFunction as PythonFunction
