"""Passes for XLA's compiler on CPUs: each goes round a habit of its own; `benchmarks/passes.py` says what that saves."""
