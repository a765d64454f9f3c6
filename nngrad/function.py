"""nnabla's module of the Functions in graphs, and of functions written in Python."""

from .graph import Function as Function
from .nnabla.python_function import PythonFunction as PythonFunction
