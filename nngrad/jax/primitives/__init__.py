"""Rules that open JAX's primitives, one file per family. `@opens(name)` adds a primitive."""

from . import (  # noqa: F401
    control,
    elementwise,
    matrices,
    movement,
    points,
    reductions,
)
from .complex_numbers import COMPLEX as COMPLEX
from .complex_numbers import COMPLEX_POINTWISE as COMPLEX_POINTWISE
from .registry import CONTROL as CONTROL
from .registry import POINTWISE as POINTWISE
from .registry import RULES as RULES
from .registry import JaxprEquation as JaxprEquation
from .registry import Unsupported as Unsupported
