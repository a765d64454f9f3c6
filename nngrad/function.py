"""nnabla's module of functions in graphs, and of functions that are written in Python."""

from .autodiff.custom import PythonFunction as PythonFunction
from .graph import Function as Function
