"""The training of recipes for `nngrad train`. The recipes are files in `examples/recipes`, named after them, and can be
copied to start one's own: they import absolutely, so that a copy runs."""

NAMES = {
    "gan": "digits are drawn by a generator, whose critic is held by a gradient penalty",
    "pinn": "two solitons: an equation with a third derivative is solved by a network",
    "forces": "a force field of small clusters is learned from forces and energies",
}
"""The recipes that the wheel includes, with descriptions."""
