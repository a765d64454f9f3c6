"""Benchmarks: nngrad beside its peers, in one process, as ratios. Run `python -m benchmarks`."""
