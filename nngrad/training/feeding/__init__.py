"""Training input: batches from any source, moved to devices ahead of use."""

from .feed import Feed as Feed
from .feed import feed as feed
