"""Faults that change nothing that is computed, each with the reason."""

EQUIVALENT: dict[str, str] = {
    "747ad44d": "of a gradient and its lower limit the larger is taken, whichever is named first",
    "bea345d2": "what is cut at the first input that is not given is cut at a later one as well, to the same",
    "ca3d17fe": "a body of one result has two with its tangent, so that the second is the last",
    "c06d7d4f": "where a rank is as large as the largest, that is the largest",
    "2637618f": "of an array with the most bytes that can be counted the forward says the same as the fact `shape`",
    "62685ba8": "what the quick check does not settle is counted in full",
    "3396a7a3": "the list of rules says it, and no rule asks",
    "0455c763": "operands that have a core in common are like terms, and then the sum is not written as it came",
}
