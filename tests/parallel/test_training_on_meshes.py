"""Training steps with all their options on eight CPU devices; see `training_on_meshes.py`."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from tests.processes import Found, found_by

pytestmark = pytest.mark.slow  # whole trainings


@pytest.fixture(scope="module")
def found() -> Found:
    """What `training_on_meshes.py` has found."""
    return found_by(8, ("tests.training_on_meshes",))[0]


@pytest.mark.parametrize(("case", "tolerance"), [("float32", 1e-5), ("bfloat16", 0.05)])
def test_eight_devices_do_what_one_does(found: Found, case: str, tolerance: float) -> None:
    one, eight = found[case]
    for name in ("losses", "norms", "outputs", "averages"):
        for a, b in zip(jax.tree.leaves(one[name]), jax.tree.leaves(eight[name]), strict=True):
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=name)


def test_a_step_that_is_not_finite_changes_nothing(found: Found) -> None:
    for run in found["float32"]:
        assert run["kept"]
        assert "the loss is nan, and the gradients of" in run["error"]
