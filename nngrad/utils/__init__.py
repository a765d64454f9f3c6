"""The parts of nnabla's `utils` that programs of training import: data, images, schedules."""

from . import data_iterator as data_iterator
from . import data_source as data_source
from . import data_source_implements as data_source_implements
from . import data_source_loader as data_source_loader
from . import image_utils as image_utils
from . import learning_rate_scheduler as learning_rate_scheduler
