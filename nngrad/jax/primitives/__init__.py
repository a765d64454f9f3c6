"""What stands for each primitive of JAX; one file per family. A primitive is added by a function under `opens`."""

from . import (  # noqa: F401
    control,
    elementwise,
    matrices,
    movement,
    points,
    products,
    randomness,
    reductions,
    truth,
)
from .complex_numbers import COMPLEX as COMPLEX
from .complex_numbers import COMPLEX_POINTWISE as COMPLEX_POINTWISE
from .registry import CONTROL as CONTROL
from .registry import POINTWISE as POINTWISE
from .registry import RULES as RULES
from .registry import JaxprEquation as JaxprEquation
from .registry import Unsupported as Unsupported
