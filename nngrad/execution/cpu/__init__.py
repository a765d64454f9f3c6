"""Passes for XLA's compiler on CPUs: each goes round a habit of its own, and `benchmarks/passes.py` says for what."""
