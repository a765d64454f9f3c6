"""The parts of nnabla's `utils` that programs of training import: data, images, schedules."""

from typing import TYPE_CHECKING, Any

from ..graph.elsewhere import no_attribute as _no_attribute
from . import data_iterator as data_iterator
from . import data_source as data_source
from . import data_source_implements as data_source_implements
from . import data_source_loader as data_source_loader
from . import image_utils as image_utils
from . import learning_rate_scheduler as learning_rate_scheduler

if not TYPE_CHECKING:  # checkers of types say it themselves

    def __getattr__(name: str) -> Any:
        raise _no_attribute(f"nngrad.utils has no {name!r}", name, globals(), nnabla="nnabla.utils")
