"""Training: steps compiled to one executable, the loop and its log, checkpoints, input feeding, averages, Modules."""

from .moving_average import MovingAverage as MovingAverage
from .train_step import train_step as train_step
