"""The parts of nnabla's `utils` that training programs import: data, images, learning rate schedules, networks."""

from typing import TYPE_CHECKING, Any

from ...extend import no_attribute as _no_attribute
from . import data_iterator as data_iterator
from . import data_source as data_source
from . import data_source_implements as data_source_implements
from . import data_source_loader as data_source_loader
from . import image_utils as image_utils
from . import learning_rate_scheduler as learning_rate_scheduler
from . import load as load
from . import nnp_graph as nnp_graph
from . import save as save

if not TYPE_CHECKING:  # type checkers report missing names themselves

    def __getattr__(name: str) -> Any:
        raise _no_attribute(f"nngrad.nnabla.utils has no {name!r}", name, globals(), module="nngrad.nnabla.utils")
