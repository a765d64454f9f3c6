"""nnabla's module of parameters and their scopes, which is `nngrad.parameter`."""

import sys
from typing import TYPE_CHECKING

import nngrad.parameter

if TYPE_CHECKING:
    from nngrad.parameter import *  # noqa: F403
else:
    sys.modules[__name__] = nngrad.parameter
