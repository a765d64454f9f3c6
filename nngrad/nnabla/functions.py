"""nnabla's module of functions, which is `nngrad.functions`."""

import sys
from typing import TYPE_CHECKING

import nngrad.functions

if TYPE_CHECKING:
    from nngrad.functions import *  # noqa: F403
else:
    sys.modules[__name__] = nngrad.functions
