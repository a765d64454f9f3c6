"""What trains the recipes of `nngrad train`, which are in `examples/recipes`: each is the file of its name, and may be
copied from."""

NAMES = {
    "gan": "digits are drawn by a generator, whose critic is held by a gradient penalty",
    "pinn": "two solitons: an equation with a third derivative is solved by a network",
    "forces": "a force field of small clusters is learned from forces and energies",
}
"""The recipes that the wheel has too, and what they do."""
