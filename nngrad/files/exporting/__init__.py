"""Export of graphs as programs that run without the graph."""

from .export import export as export
from .exported import ExportedFunction as ExportedFunction
from .exported import load_exported as load_exported
