"""Benchmarks: nngrad beside its peers, in one process, as ratios. Run `python -m benchmarks`."""

import os

os.environ.setdefault("JAX_ENABLE_COMPILATION_CACHE", "false")  # what is compiled is a part of what is measured
