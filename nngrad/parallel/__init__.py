"""Many devices and many processes.

    devices/    meshes, and the sharding of parameters and batches over them
    hosts/      processes that train together: joining, watching, and what happens when one fails
"""
