"""Many devices: meshes, and how parameters are placed on them."""

from .mesh import mesh as mesh
from .mesh import shard as shard
