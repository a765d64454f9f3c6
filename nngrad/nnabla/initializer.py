"""nnabla's module of initialisers, which is `nngrad.initializer`."""

import sys
from typing import TYPE_CHECKING

import nngrad.initializer

if TYPE_CHECKING:
    from nngrad.initializer import *  # noqa: F403
else:
    sys.modules[__name__] = nngrad.initializer
