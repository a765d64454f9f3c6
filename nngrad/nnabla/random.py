"""nnabla's module of random numbers, which is `nngrad.random`."""

import sys
from typing import TYPE_CHECKING

import nngrad.random

if TYPE_CHECKING:
    from nngrad.random import *  # noqa: F403
else:
    sys.modules[__name__] = nngrad.random
