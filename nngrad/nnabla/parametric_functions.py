"""nnabla's module of layers, which is `nngrad.parametric_functions`."""

import sys
from typing import TYPE_CHECKING

import nngrad.parametric_functions

if TYPE_CHECKING:
    from nngrad.parametric_functions import *  # noqa: F403
else:
    sys.modules[__name__] = nngrad.parametric_functions
