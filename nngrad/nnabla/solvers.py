"""nnabla's module of solvers, which is `nngrad.solvers`."""

import sys
from typing import TYPE_CHECKING

import nngrad.solvers

if TYPE_CHECKING:
    from nngrad.solvers import *  # noqa: F403
else:
    sys.modules[__name__] = nngrad.solvers
