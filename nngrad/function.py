"""nnabla's module of the Functions in graphs, and of functions written in Python."""

from .autodiff.custom import PythonFunction as PythonFunction
from .graph import Function as Function
