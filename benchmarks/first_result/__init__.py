"""The first result: from nothing to numbers, in a fresh process for each figure."""

from .table import run as run
