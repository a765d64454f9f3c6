"""Training: steps as one executable, and averages of parameters."""

from .moving_average import MovingAverage as MovingAverage
from .train_step import train_step as train_step
