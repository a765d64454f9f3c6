"""The state of a solver as arrays by name, to compare."""

from __future__ import annotations

import numpy as np

import nngrad.solvers as S


def state_arrays(solver: S.Solver) -> dict[str, np.ndarray]:
    """All that `get_states` gives: 'mean:W' for an array, 't:W' for a count."""
    states = solver.get_states()
    arrays = {f"{what}:{name}": x.d for name, state in states.items() for what, x in state.pstate.items()}
    return arrays | {f"t:{name}": np.array(state.t) for name, state in states.items()}
