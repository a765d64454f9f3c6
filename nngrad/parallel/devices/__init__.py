"""Meshes of devices, and the sharding of parameters over them."""

from .mesh import mesh as mesh
from .mesh import shard as shard
