"""The backward rules of ops, in files named as in `nngrad/functions`; families whose ops pass no gradient share
`without_gradients.py`, and some that are declared as pairs of transposes `adjoints.py`. Composites need none.

A rule is a function on graphs: `rule(f, *gys)` gets the Function and the gradient of each of its outputs, and returns
one gradient per input (alone if there is one input). It calls `F` and operators, so its result can be differentiated in
turn. `None` means that the gradient is zero.
"""

import importlib
import pkgutil

from .rules import OWN as OWN
from .rules import MissingRule as MissingRule
from .rules import Registry as Registry
from .rules import Rule as Rule
from .rules import backward as backward
from .rules import missing as missing
from .rules import non_differentiable as non_differentiable
from .rules import register as register
from .rules import registry as registry
from .rules import show_registry as show_registry

# Their files ask for the names above.
for _file in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_file.name}")
