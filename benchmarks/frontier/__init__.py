"""Benchmarks of what few tools have: each beside the nearest peer, which may be JAX with the method written by hand."""
