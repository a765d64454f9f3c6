"""Join processes that compute together, on one machine or many."""

from .joining import Membership as Membership
from .joining import initialize as initialize
from .sharing import is_first as is_first
from .sharing import part_of as part_of
