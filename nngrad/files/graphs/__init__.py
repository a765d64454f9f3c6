"""Graphs in files."""

from .kept import KeptGraph, load_graph, save_graph

__all__ = ["KeptGraph", "load_graph", "save_graph"]
