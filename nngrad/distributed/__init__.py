"""Many devices and many processes.

    devices/    meshes, and how parameters and batches are divided over them
    hosts/      processes that train together: joining, watching, and what happens when one fails
"""
