"""Backward rules of ops with bodies: each is a method of the op (`nngrad/functions/bodies/`)."""

from __future__ import annotations

from nngrad.functions.bodies.alternatives import (
    body_with_gradient,
    body_with_surrogate,
    checkpoint_of_body,
    switch_of_bodies,
)
from nngrad.functions.bodies.implicit import factored_solve, factors_of_body, iterative_solve, root_of_body
from nngrad.functions.bodies.mapping import mapped_one, mapped_several
from nngrad.functions.bodies.scans import scan_of_body
from nngrad.functions.bodies.while_loops import while_of_bodies
from nngrad.functions.loops import step_keys

from .rules import Rule, non_differentiable, of_bodies, registry

non_differentiable(factors_of_body, step_keys)
of_bodies(checkpoint_of_body, factored_solve, iterative_solve, root_of_body, scan_of_body, switch_of_bodies)
of_bodies(while_of_bodies, kind="forward only")
for _op in (mapped_one, mapped_several):
    # What is mapped may have a rule that is not its derivative.
    registry.add(_op, Rule(_op.backward, "rule", False, __name__))
registry.add(body_with_gradient, Rule(body_with_gradient.backward, "user", True, __name__))
registry.add(body_with_surrogate, Rule(body_with_surrogate.backward, "user", False, __name__))
