"""Benchmarks: nngrad beside its peers, in one process, as ratios. Run `python -m benchmarks`."""

import os

os.environ.setdefault("NNGRAD_DISK_CACHE", "off")  # what is compiled is a part of what is measured
