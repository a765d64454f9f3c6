"""Faults that change nothing that is computed, each with the reason."""

EQUIVALENT: dict[str, str] = {
    "747ad44d": "of a gradient and its lower limit the larger is taken, whichever is named first",
    "91c9203a": "a body of one result has two with its tangent, so that the second is the last",
}
