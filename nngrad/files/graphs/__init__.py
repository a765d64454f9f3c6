"""Graphs in files: `nn.save_graph` and `nn.load_graph`."""

from .kept import KeptGraph, load_graph, save_graph

__all__ = ["KeptGraph", "load_graph", "save_graph"]
