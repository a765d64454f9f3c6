"""Functions of JAX's that are opened: the table of them, one file per family, which `test_opening.py` goes through."""
