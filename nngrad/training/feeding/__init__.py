"""Input of training: batches from anywhere, moved to devices ahead of use."""

from .feed import Feed as Feed
from .feed import feed as feed
