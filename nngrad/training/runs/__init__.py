"""The training loop `nn.fit`, and its parts for custom loops."""

from .fit import Run as Run
from .fit import fit as fit
from .log import TrainingLog as TrainingLog
from .log import training_log as training_log
